"""Programs with dynamic dims, lowered here and by ExecuTorch: the same graphs, and the same shapes in the program."""

from __future__ import annotations

import pytest
import torch
import torchao.quantization.quant_primitives  # noqa: F401  (registers torchao's operators)
from lowering.dynamic_programs import PROGRAMS

from refsim.formats.pte.read import Pte, read_pte
from refsim.formats.pte.schema import Tensor
from refsim.partition.container import write
from refsim.partition.lower import lower

from . import executorch_lowering as theirs

#: ExecuTorch traces a program again before it partitions it, and then asks for a size behind the first operator.
OTHER_ORDER = {"seq_slice"}


def border(pte: Pte) -> list[object]:
    plan = pte.plan()
    values = (plan.values[number] for number in (*plan.inputs, *plan.outputs))
    return [(v.sizes, v.shape_dynamism) if isinstance(v, Tensor) else v for v in values]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_graphs(name: str) -> None:
    torch.manual_seed(0)
    program = PROGRAMS[name]()
    need, found = theirs.lower(program), read_pte(write(lower(program)), name)
    assert border(found) == border(need)
    graphs = [[theirs.contents(blob) for blob in theirs.delegates(pte)] for pte in (found, need)]
    if name in OTHER_ORDER:
        names = [[sorted(call[0] for call in graph) for graph in one] for one in graphs]
        assert names[0] == names[1] and graphs[0] != graphs[1]
    else:
        assert graphs[0] == graphs[1]
