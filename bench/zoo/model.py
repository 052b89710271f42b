"""What a model of the zoo is: where its class is found, its inputs, and how it is quantized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: How a model can be quantized; bench/zoo/quantize.py has one function for each.
STATIC, DYNAMIC_4, WEIGHT_4, WEIGHT_8 = "static int8", "8da4w", "4-bit weights", "8-bit weights"
SCHEMES = (STATIC, DYNAMIC_4, WEIGHT_4, WEIGHT_8)


@dataclass(frozen=True)
class Input:
    """One input: standard normal floats; with ``below`` integers from 0 up to it, not included."""

    shape: tuple[int, ...]
    below: int | None = None


@dataclass(frozen=True)
class Model:
    """One architecture with random weights.

    ``source`` is ``module:function`` or ``module:Class``, called with ``args`` and ``options``. Nothing is imported
    before it is built, so the catalogue can be read without torch.
    """

    name: str
    family: str
    source: str
    inputs: tuple[Input, ...]
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    scheme: str = STATIC


def image(size: int, channels: int = 3, batch: int = 1) -> tuple[Input, ...]:
    """A square image, or several."""
    return (Input((batch, channels, size, size)),)


def tokens(length: int, below: int) -> tuple[Input, ...]:
    """One sequence of token ids."""
    return (Input((1, length), below),)
