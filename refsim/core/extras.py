"""The commands that install refsim's optional parts, in the one wording that all messages have."""

from __future__ import annotations


def install(extra: str) -> str:
    """The command that adds an extra to an installed refsim, from a checkout or not."""
    return f"pip install 'refsim[{extra}]'"


TORCH_FIX = install("torch")
SWEEP_FIX = install("sweep")
INTEROP_FIX = install("interop")
