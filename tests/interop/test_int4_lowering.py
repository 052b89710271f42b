"""Programs with weights of 4 bits in groups: lowered here and by ExecuTorch, the same operators and constants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torchao.quantization.quant_primitives  # noqa: F401  (registers dequantize_affine)
from executorch.exir.passes import _quant_patterns_and_replacements  # noqa: F401  (registers embedding_4bit)
from torch import nn
from torch.export import ExportedProgram, export

import refsim
from refsim.formats.vkgraph.read import read_blob
from refsim.partition.check import check
from refsim.partition.container import write
from refsim.partition.lower import lower

from . import executorch_lowering as theirs


class Grouped(nn.Module):
    """int8 values in [-8, 7] with a scale for each group, dequantized by torchao."""

    def __init__(self, rows: int, k: int, group: int, zero_point: int = 0) -> None:
        super().__init__()
        self.group = group
        self.register_buffer("w", torch.randint(-8, 8, (rows, k), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(rows, k // group) + 0.1)
        self.register_buffer("zeros", torch.full((rows, k // group), zero_point, dtype=torch.int8))

    def weight(self) -> torch.Tensor:
        return torch.ops.torchao.dequantize_affine(
            self.w, [1, self.group], self.scales, self.zeros, torch.int8, -8, 7
        )


class Table(Grouped):
    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        return nn.functional.embedding(indices, self.weight())


class Linear(Grouped):
    def __init__(self, rows: int, k: int, group: int, bias: bool = True, zero_point: int = 0) -> None:
        super().__init__(rows, k, group, zero_point)
        self.bias = nn.Parameter(torch.randn(rows)) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight(), self.bias)


class PackedTable(nn.Module):
    """A table whose bytes have the even element in the high nibble."""

    def __init__(self, rows: int, width: int, group: int) -> None:
        super().__init__()
        self.register_buffer("w", torch.randint(0, 256, (rows, width // 2), dtype=torch.uint8))
        self.register_buffer("scales", torch.rand(rows, width // group) + 0.1)

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        return torch.ops.quantized_decomposed.embedding_4bit.dtype(
            self.w, self.scales, None, -8, 7, indices, dtype=torch.float32
        )


def indices(*shape: int) -> torch.Tensor:
    return torch.randint(0, 10, shape)


PROGRAMS = {
    "table": (lambda: Table(20, 64, 32), lambda: indices(5)),
    "table of small groups": (lambda: Table(11, 32, 4), lambda: indices(2, 3)),
    "packed table": (lambda: PackedTable(12, 128, 64), lambda: indices(1, 6)),
    "rows": (lambda: Linear(16, 64, 32), lambda: torch.randn(6, 64)),
    "one row": (lambda: Linear(12, 64, 16, bias=False), lambda: torch.randn(1, 64)),
    "K % 8 == 4": (lambda: Linear(8, 12, 12), lambda: torch.randn(5, 12)),
    "a plane": (lambda: Linear(16, 64, 32, bias=False), lambda: torch.randn(1, 3, 64)),
}


def program(name: str) -> tuple[ExportedProgram, torch.Tensor, torch.Tensor]:
    """(program, its input, torch's output)."""
    torch.manual_seed(3)
    module, given = (make() for make in PROGRAMS[name])
    with torch.no_grad():
        return export(module.eval(), (given,)), given, module(given)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_graph(name: str) -> None:
    exported, _given, _out = program(name)
    lowered = lower(exported, name)
    mine = [read_blob(d.serialized.blob(name), name) for d in lowered.delegates]
    other = theirs.delegates(theirs.lower(exported))
    assert [theirs.contents(blob) for blob in mine] == [theirs.contents(blob) for blob in other]
    assert not [row for row in check(lowered) if row.wrong]


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_the_file_computes(name: str, tmp_path: Path) -> None:
    """torch's bits for a lookup; a sum in another order is as good as torch's own, to some rounding errors."""
    exported, given, need = program(name)
    path = tmp_path / "program.pte"
    path.write_bytes(write(lower(exported, name)))
    (out,) = refsim.load(path).run([given.numpy()])
    if "table" in name:
        assert out.tobytes() == need.numpy().tobytes()
    else:
        np.testing.assert_allclose(out, need.numpy(), rtol=0, atol=2e-5 * float(need.abs().max()))


@pytest.mark.parametrize(
    ("module", "given", "code"),
    [
        (Linear(10, 64, 32), torch.randn(3, 64), "out-channels"),
        (Linear(8, 32, 2), torch.randn(3, 32), "in-channels"),
    ],
)
def test_refused(module: nn.Module, given: torch.Tensor, code: str) -> None:
    lowered = lower(export(module.eval(), (given,)))
    assert code in {row.code for row in lowered.unfused}
    assert not any("q4gsw" in fused.operator for d in lowered.delegates for fused in d.fused)


def test_a_zero_point_is_not_dropped() -> None:
    lowered = lower(export(Linear(8, 32, 16, zero_point=1).eval(), (torch.randn(3, 32),)))
    assert not any("q4gsw" in fused.operator for d in lowered.delegates for fused in d.fused)
