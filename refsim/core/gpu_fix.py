"""The command that makes running on a GPU possible, in the one wording that all messages have."""

from __future__ import annotations

from pathlib import Path

#: In a checkout its Makefile does it; an installed package has no Makefile.
GPU_FIX = (
    "make gpu"
    if Path(__file__).parents[2].joinpath("gpu", "gpu.mk").is_file()
    else "python -m refsim_gpu.build_kp --install"
)
#: What is missing if ``kp`` cannot be imported.
NO_KP = "the module kp is not built"
