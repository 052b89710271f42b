"""The commands that install refsim's optional parts, in the one wording that all messages have."""

from __future__ import annotations


def install(extra: str, wheels: str = "") -> str:
    """The command that adds an extra to an installed refsim, from a checkout or not; ``wheels``: a folder of them."""
    found = f"--find-links {wheels} " if wheels else ""
    return f"pip install {found}'refsim[{extra}]'"


TORCH_FIX = install("torch")
SWEEP_FIX = install("sweep")
INTEROP_FIX = install("interop")
WEBGPU_FIX = install("webgpu")
