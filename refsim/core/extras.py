"""The commands that install refsim's optional parts, in the one wording that all messages have."""

from __future__ import annotations

from pathlib import Path


def install(extra: str, wheels: str = "") -> str:
    """The command that adds an extra to an installed refsim, from a checkout or not; ``wheels``: a folder of them."""
    found = f"--find-links {wheels} " if wheels else ""
    return f"pip install {found}'refsim[{extra}]'"


TORCH_FIX = install("torch")
SWEEP_FIX = install("sweep")
INTEROP_FIX = install("interop")
WEBGPU_FIX = install("webgpu")


#: In a checkout its Makefile does it; an installed package has no Makefile.
GPU_FIX = (
    "make gpu"
    if Path(__file__).parents[2].joinpath("gpu", "gpu.mk").is_file()
    else "python -m refsim_gpu.build_kp --install"
)
#: What is missing if ``kp`` cannot be imported.
NO_KP = "the module kp is not built"
