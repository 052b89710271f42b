"""Turn numbers that stand for tensors (``x + 2``) into constants of the dtype that the operator computes in."""

from __future__ import annotations

from typing import Any

import torch

from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import tensors_of


def run(program: FxProgram) -> FxProgram:
    program = program.copy()
    for node in program.calls():
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            continue
        for index, (argument, value) in enumerate(zip(schema.arguments, node.args, strict=False)):
            if isinstance(argument.type, torch.TensorType) and isinstance(value, bool | int | float):
                dtype = _dtype(node.args, value)
                constant = program.add_constant(f"scalar_{_text(value)}", torch.tensor(value, dtype=dtype))
                node.update_arg(index, constant)
    return program


def _dtype(args: Any, value: float) -> torch.dtype:
    """The dtype that torch computes in. A number counts less than a tensor there: it does not widen a float32."""
    others = [tensor for arg in args for tensor in tensors_of(arg)]
    return torch.result_type(others[0], value) if others else torch.tensor(value).dtype


def _text(value: float) -> str:
    return str(value).replace("-", "minus_").replace(".", "_").replace("+", "")
