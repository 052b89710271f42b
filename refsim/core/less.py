"""Smaller numbers to try in place of one, where a failing case or program is made smaller."""

from __future__ import annotations


def less(size: int, least: int = 1) -> list[int]:
    """Smaller sizes, the smallest first; whole words among them."""
    options = (least, 4, size // 2, (size - 1) // 4 * 4, size - 1)
    return [one for one in dict.fromkeys(options) if least <= one < size]
