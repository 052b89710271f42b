"""Nobody changes by accident how long the arrays of a shader's builds are: no byte would show it.

After a change on purpose: ``python tests/ops/specialized.py --write``, and look at what it changed.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import specialized
from specialized import Specialized

from refsim.ops.base import gemm
from refsim.ops.base.registry import OPS
from refsim.spirv.module import Module
from refsim_gpu import build_shaders


def test_arrays_are_as_long_as_written_down() -> None:
    assert specialized.lines() == specialized.FILE.read_text().splitlines()


@pytest.mark.long
def test_a_longer_array_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose length is computed from the launch's constants."""
    before, plain = specialized.lines(), specialized.module
    linear, size = plain("q8ta_linear").copy(), _row(plain("q8ta_linear"))
    linear.globals[:] = [
        each.with_args(*each.args[:4], each.args[3]) if each.args[3:] == size else each
        for each in linear.globals
    ]
    monkeypatch.setattr(specialized, "module", lambda name: linear if name == "q8ta_linear" else plain(name))
    found = [line for line, other in zip(specialized.lines(), before, strict=True) if line != other]
    assert "shared:tile_a:ivec4[128]" in found[0] and all(line.startswith("q8ta_linear") for line in found)


def _row(module: Module) -> tuple[int, ...]:
    """Operands of ROW, the vectors of a row of positions: a quarter of the positions, and one more."""
    types = Specialized(module, {})
    (number,) = (number for number, name in types.names.items() if name == "ROW")
    return types.row(number).args[3:]


@pytest.mark.parametrize("tile", gemm.TILE_CONFIGS, ids=lambda tile: tile.name)
def test_lengths_are_those_that_another_evaluator_finds(tile: gemm.TileConfig, tmp_path: Path) -> None:
    """spirv-opt sets the same constants and folds them."""
    if shutil.which("spirv-opt") is None:
        pytest.skip("spirv-opt is not installed: apt-get install spirv-tools")
    spec = dict(enumerate((*tile.local, *tile.tile)))
    for name in (name for name, op in OPS.items() if op.variants == gemm.TILE_CONFIGS):
        source, folded = build_shaders.SHADERS / "spirv" / f"{name}.spv", tmp_path / "folded.spv"
        given = " ".join(f"{number}:{word}" for number, word in spec.items())
        done = [
            "--set-spec-const-default-value",
            given,
            "--freeze-spec-const",
            "--fold-spec-const-op-composite",
        ]
        subprocess.run(["spirv-opt", *done, str(source), "-o", str(folded)], check=True)
        ours = Specialized(Module.parse(source.read_bytes(), name), spec)
        theirs = Specialized(Module.parse(folded.read_bytes(), name), {})
        assert specialized.SPEC_CONSTANT_OP not in {row.op for row in theirs.module.globals}
        assert list(ours.arrays()) and list(ours.arrays()) == list(theirs.arrays())


SIGNED = [(7, 2), (-7, 2), (7, -2), (-7, -2), (1 << 30, 3)]


@pytest.mark.parametrize(("a", "b"), SIGNED)
def test_constants_are_computed_with_their_signs(a: int, b: int) -> None:
    """Division rounds towards 0; of what is left, one operation has the sign of a, another that of b."""
    mask, of = specialized.MASK, specialized.OPERATIONS
    x, y = a & mask, b & mask
    towards_0 = int(a / b)
    assert of[135](x, y) == towards_0
    assert of[138](x, y) == a - b * towards_0
    assert of[139](x, y) == a % b
    assert of[195](x, 1) == a >> 1 and of[194](x, 1) == x >> 1
    assert (of[173](x, y), of[175](x, y), of[177](x, y), of[179](x, y)) == (a > b, a >= b, a < b, a <= b)
    assert (of[172](x, y), of[176](x, y)) == (x > y, x < y)
    assert of[126](x) & mask == -a & mask and of[200](x) & mask == ~a & mask
