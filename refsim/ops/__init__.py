"""One operator per file. refsim/ops/base holds what operators share."""
