"""Limits on what a file may declare, checked before anything of that size is allocated."""

from __future__ import annotations

from dataclasses import dataclass

from refsim.core.errors import LimitError


@dataclass(frozen=True)
class Limits:
    """``rank``: dims per tensor; ``tensor_bytes``: one tensor's elements; ``total_bytes``: all tensors
    that are not constants; ``list_items``: values that one ValueList stands for, lists inside it included.
    """

    rank: int = 8
    tensor_bytes: int = 2**31
    total_bytes: int = 2**34
    list_items: int = 2**16
    list_depth: int = 8

    def check(self, where: str, name: str, got: int) -> None:
        """Raise LimitError if ``got`` exceeds the limit called ``name``."""
        allowed = getattr(self, name)
        if got > allowed:
            raise LimitError(where, f"exceeds the limit {name}", got=got, need=f"at most {allowed}")


LIMITS = Limits()
