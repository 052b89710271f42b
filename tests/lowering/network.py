"""One network of a list: its module, example inputs and how it is quantized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

#: Name -> what makes the module, its inputs and the options of `quantize`.
Networks = dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...], dict[str, Any]]]]


def network(
    into: Networks, *shapes: tuple[int, ...], **options: Any
) -> Callable[[type[nn.Module]], type[nn.Module]]:
    """Enter a module class by its name, with the shapes of its inputs and options of `quantize`."""

    def register(cls: type[nn.Module]) -> type[nn.Module]:
        def make() -> tuple[nn.Module, tuple[Tensor, ...], dict[str, Any]]:
            torch.manual_seed(sum(map(ord, cls.__name__)))
            return cls(), tuple(torch.randn(shape) for shape in shapes), options

        into[cls.__name__] = make
        return cls

    return register
