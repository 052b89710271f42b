"""Networks quantized as users do it (PT2E, XNNPACKQuantizer): ExecuTorch's graph and plan against ours."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from lowering.idioms import IDIOMS
from torch.export import ExportedProgram
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from refsim.formats.pte import schema
from refsim.formats.pte.read import Pte, read_pte
from refsim.partition.container import write
from refsim.partition.lower import lower

from . import executorch_lowering as theirs


def quantized(name: str) -> ExportedProgram:
    module, inputs = IDIOMS[name]()
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(module, inputs).module(), quantizer)
    with torch.no_grad():
        prepared(*inputs)
    return torch.export.export(convert_pt2e(prepared), inputs)


def plan_of(pte: Pte) -> list[tuple[Any, ...]]:
    """Inputs, calls and outputs of the plan; tensors are numbered by their first appearance."""
    plan = pte.plan()
    numbers: dict[int, int] = {}

    def describe(number: int) -> Any:
        value = plan.values[number]
        if isinstance(value, schema.Tensor):
            return (numbers.setdefault(number, len(numbers)), value.sizes, value.scalar_type)
        if isinstance(value, schema.TensorList | schema.OptionalTensorList | schema.IntIdList):
            return [describe(item) if item >= 0 else None for item in value.items]
        return value

    found: list[tuple[Any, ...]] = [("in", *map(describe, plan.inputs))]
    for chain in plan.chains:
        for call in chain.instructions:
            name = str(plan.operators[call.op_index]) if isinstance(call, schema.KernelCall) else "delegate"
            found.append((name, *map(describe, call.args)))
    return [*found, ("out", *map(describe, plan.outputs))]


@pytest.mark.parametrize("name", IDIOMS)
def test_graph(name: str) -> None:
    exported = quantized(name)
    mine = read_pte(write(lower(exported, name)), name)
    other = theirs.lower(exported)
    for one, two in zip(theirs.delegates(mine), theirs.delegates(other), strict=True):
        assert theirs.contents(one) == theirs.contents(two)
    assert plan_of(mine) == plan_of(other)
