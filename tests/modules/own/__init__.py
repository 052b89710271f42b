"""Kernels of other teams and ports: not ExecuTorch's, called as right/refsim.toml says."""
