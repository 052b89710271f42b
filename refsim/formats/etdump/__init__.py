"""ETDumps: what ExecuTorch's runtime records of a run when it is built with its event tracer."""
