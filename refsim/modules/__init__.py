"""A user's own shader modules: which of them refsim can run, and what is wrong with their kernels, case by case."""
