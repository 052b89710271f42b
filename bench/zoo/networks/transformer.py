"""A model of the package transformers from its configuration, with one tensor out."""

from __future__ import annotations

from typing import Any

import transformers
from torch import Tensor, nn


class OneOutput(nn.Module):
    """Calls a model with one input and takes one tensor of its result."""

    def __init__(self, model: nn.Module, output: str) -> None:
        super().__init__()
        self.model, self.output = model, output

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = getattr(self.model(x), self.output)
        return found


def build(cls: str, output: str, **config: Any) -> nn.Module:
    """``cls`` is the common part of the names, as in BertConfig and BertModel."""
    made = getattr(transformers, f"{cls}Config")(**config)
    made._attn_implementation = "eager"
    return OneOutput(getattr(transformers, f"{cls}Model")(made), output)
