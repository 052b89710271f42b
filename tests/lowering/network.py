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


def same(channels: int, out: int, **more: Any) -> Part:
    """A convolution of 3 x 3 whose output is as large as its input."""
    return conv(channels, out, 3, padding=1, **more)


def weight(*shape: int, scale: float = 0.2) -> Part:
    """A parameter of its own, for matrix products."""
    return lambda: nn.Parameter(torch.randn(shape) * scale)


@dataclass(frozen=True)
class Network:
    """``forward`` of a module that has these parts, and of ``inputs``, or their shapes; ``options`` of `quantize`."""

    forward: Callable[..., Any]
    inputs: tuple[tuple[int, ...] | Tensor, ...]
    parts: dict[str, Part]
    options: dict[str, Any] = field(default_factory=dict)

    def made(self, name: str, seed: int | None = None) -> tuple[nn.Module, tuple[Tensor, ...]]:
        """The module and its inputs, the same ones each time; the name is the seed if there is no other."""
        torch.manual_seed(sum(map(ord, name)) if seed is None else seed)
        module: nn.Module = type(name, (nn.Module,), {"forward": self.forward})()
        for key, part in self.parts.items():
            setattr(module, key, part())
        return module, tuple(x if isinstance(x, Tensor) else torch.randn(x) for x in self.inputs)


def network(
    forward: Callable[..., Any],
    *inputs: tuple[int, ...] | Tensor,
    options: dict[str, Any] | None = None,
    **parts: Part,
) -> Network:
    return Network(forward, inputs, parts, options or {})
