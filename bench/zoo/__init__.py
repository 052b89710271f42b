"""Real architectures, each lowered by ExecuTorch and by refsim, run by refsim, and compared: python -m bench.zoo."""
