"""A network as a row of a table: what it computes, with which parts, and on inputs of which shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

#: Makes a part of a network, with weights drawn when it is called.
Part = Callable[[], Any]

conv: Callable[..., Part] = partial(partial, nn.Conv2d)
linear: Callable[..., Part] = partial(partial, nn.Linear)


def weight(*shape: int, scale: float = 0.2) -> Part:
    """A parameter of its own, for matrix products."""
    return lambda: nn.Parameter(torch.randn(shape) * scale)


@dataclass(frozen=True)
class Network:
    """``forward`` of a module that has these parts, and of inputs of these ``shapes``; ``options`` of `quantize`."""

    forward: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    parts: dict[str, Part]
    options: dict[str, Any] = field(default_factory=dict)

    def made(self, name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
        """The module and its inputs, the same ones each time."""
        torch.manual_seed(sum(map(ord, name)))
        module: nn.Module = type(name, (nn.Module,), {"forward": self.forward})()
        for key, part in self.parts.items():
            setattr(module, key, part())
        return module, tuple(torch.randn(shape) for shape in self.shapes)


def network(
    forward: Callable[..., Any],
    *shapes: tuple[int, ...],
    options: dict[str, Any] | None = None,
    **parts: Part,
) -> Network:
    return Network(forward, shapes, parts, options or {})
