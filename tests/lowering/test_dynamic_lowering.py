"""Programs with dynamic dims, lowered: bounds in the file, and at every shape what torch computes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram, export, save

from refsim.core.errors import GraphError
from refsim.exec.model import Model, built
from refsim.formats.pte.read import read_pte
from refsim.partition.container import write
from refsim.partition.load import load
from refsim.partition.lower import lower

from .dynamic_programs import PROGRAMS

#: What an output may be off, in parts of its largest value: sums in float, in another order than torch's.
OFF = 2e-6
#: The dims that may change; of the others the second.
DIMS = {
    "lin_rows": (0,), "fcn_add": (2, 3), "square": (2, 3), "clone_branch": (2, 3), "batch_conv": (0,), "w4_4d": (2,),
    "im2col": (2, 3), "general_bound": (2, 3), "upcat": (2, 3), "mixed_float": (2, 3), "bilinear": (2, 3),
    "gemv_lead": (0,), "perm_neg": (2,), "idxsel": (2,),
}  # fmt: skip
#: Sizes that a dim takes are multiples of this many steps of two.
STEPS = {"upcat": 4}
NEEDS_TORCHAO = ("da4w_rows", "w4_rows", "w4_4d", "attn_da4w", "tok_emb")


def exported(name: str) -> ExportedProgram:
    if name in NEEDS_TORCHAO:
        if importlib.util.find_spec("torchao") is None:
            pytest.skip("torchao is not installed")
        import torchao.quantization.quant_primitives  # noqa: F401
    return PROGRAMS[name]()


def lowered(program: ExportedProgram, name: str) -> Model:
    return built(read_pte(write(lower(program)), name))


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_shape_is_as_in_torch(name: str, tmp_path: Path) -> None:
    """The program as it was exported, and as a file holds it, give the same model."""
    program = exported(name)
    save(program, tmp_path / "program.pt2")
    data = write(lower(program))
    assert data == write(lower(load(tmp_path / "program.pt2", trust=name in NEEDS_TORCHAO)))
    model = built(read_pte(data, name))
    (row,) = model.border
    assert row.dynamic
    for smaller in (0, 2, 4):
        shape = list(row.sizes)
        for dim in DIMS.get(name, (1,)):
            shape[dim] = max(2, shape[dim] - smaller * STEPS.get(name, 1))
        x = torch.randint(0, 32, shape) if row.dtype == np.int64 else torch.randn(*shape)
        want = program.module()(x)
        outs = model.run([x.numpy()])
        for out, need in zip(outs, want if isinstance(want, tuple) else (want,), strict=True):
            need = np.asarray(need.detach() if isinstance(need, torch.Tensor) else need)
            assert out.shape == need.shape
            assert np.abs(out - need).max() <= OFF * max(np.abs(need).max(), 1)


def test_what_a_file_says_of_shapes() -> None:
    model = lowered(exported("symout"), "symout")
    assert model.plan is not None
    held = [model.plan.values[number] for number in (*model.plan.inputs, *model.plan.outputs)]
    assert [getattr(value, "shape_dynamism", None) for value in held] == [1, 1, None]
    assert [str(number) for number in model.numbers(0)][-1].endswith("= 32")


def test_a_size_without_a_bound() -> None:
    program = export(nn.Sigmoid(), (torch.randn(3, 4),), dynamic_shapes=({0: Dim("s")},))
    with pytest.raises(GraphError, match="a size has no bound"):
        lower(program)
