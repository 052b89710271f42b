"""Turn numbers that stand for tensors (``x + 2``) into constants, each of its own: int64, float32 or bool, no dims."""

from __future__ import annotations

import torch

from refsim.partition.fx_program import FxProgram


def run(program: FxProgram) -> FxProgram:
    program = program.copy()
    for node in program.calls():
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            continue
        for index, (argument, value) in enumerate(zip(schema.arguments, node.args, strict=False)):
            if isinstance(argument.type, torch.TensorType) and isinstance(value, bool | int | float):
                name = f"scalar_{_text(value)}"
                node.update_arg(index, program.add_constant(name, torch.tensor(value), shared=False))
    return program


def _text(value: float) -> str:
    return str(value).replace("-", "minus_").replace(".", "_").replace("+", "")
