"""Numbers that only tune are free: whatever stands there, the bytes are the same, however the work is divided.

So random changes of the sources need not draw them (docs/mutants.md): none could be noticed by bytes. What they make of
the work is written down in tests/data/plans.
"""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import pytest
from cases import conv
from wide import check, wide

from refsim.core.rng import Rng
from refsim.exec.cpu import NativeExecutor, schedule
from refsim.exec.cpu.amx import prepack as amx
from refsim.exec.cpu.depthwise import prepack as depthwise
from refsim.exec.cpu.elementwise import prepack as elementwise
from refsim.exec.cpu.gemm import prepack as gemm
from refsim.exec.cpu.groups import prepack as groups
from refsim.exec.cpu.pool import prepack as pool
from refsim.exec.cpu.quantize import prepack as quantize
from refsim.exec.cpu.relayout import prepack as relayout
from refsim.exec.cpu.winograd import prepack as winograd
from refsim.ops.base.registry import OPS

#: Sizes of blocks and tasks, and costs by which one way is held for faster than another.
TUNING: dict[ModuleType, tuple[str, ...]] = {
    amx: (
        "BLOCK_BYTES", "BLOCK_PIXELS", "PRODUCT", "STEP", "VECTOR", "GROUP", "PIXEL", "PANEL", "TASK", "PACK_WORD",
        "FOREIGN_WORD", "KEPT_LOAD", "KEPT", "SHARED_PIXELS", "NEAR", "NEXT", "DIRECT", "DIRECT_VECTOR",
    ),
    depthwise: ("REGION_BYTES", "VECTOR", "K4", "TASK"),
    elementwise: ("WORDS_PER_TASK", "ROW_BYTES"),
    gemm: (
        "BLOCK_BYTES", "LEAST_PIXELS", "BLOCK_PIXELS", "GATHER_PRODUCTS", "WORTH_IT", "PACK_WORD", "PIXEL", "PANEL",
        "TASK",
    ),
    quantize: ("ROW_BYTES",),
    relayout: ("TASK_PIXEL16S",),
    winograd: ("BLOCK_BYTES", "MIN_TILES", "MAX_TILES", "ELEMENT_BYTES", "TASKS", "NEAR", "FAR_BYTES"),
    schedule: ("WAKING", "ELEMENT", "WEIGHT"),
}  # fmt: skip
#: Others at module level: what they are is part of how a kernel works, or of a proof.
FIXED: dict[ModuleType, tuple[str, ...]] = {
    amx: ("SLACK",), gemm: ("SLACK", "MAX_ROWS"), pool: ("MEAN_BYTES", "MEAN_VECTORS"), groups: ("MOST",),
}  # fmt: skip
FACTORS = (1 / 16, 1 / 3, 1, 3, 16)


def numbers(module: ModuleType) -> set[str]:
    """Names of the numbers at a module's level."""
    found = set()
    for node in ast.parse(Path(str(module.__file__)).read_text()).body:
        if isinstance(node, ast.Assign):
            names = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
            found |= {name.id for name in names if isinstance(name, ast.Name)}
    return {name for name in found if isinstance(getattr(module, name), int | float)}


@pytest.mark.parametrize("module", [*TUNING, groups, pool], ids=lambda module: module.__name__)
def test_every_number_is_declared(module: ModuleType) -> None:
    assert numbers(module) == {*TUNING.get(module, ()), *FIXED.get(module, ())}


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(6))
def test_bytes_do_not_depend_on_them(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Rng(7000 + seed)
    for module, names in TUNING.items():
        for name in names:
            value = getattr(module, name) * rng.choice(FACTORS)
            monkeypatch.setattr(
                module, name, value if isinstance(getattr(module, name), float) else max(1, int(value))
            )
    threads = 1 + seed % 3
    taken = {
        check(wide(op, 40 * seed + number), NativeExecutor(threads)) for op in OPS for number in range(2)
    }
    assert len(taken) > 8, taken
    for route in ("winograd4", "gemm", "amx_emulated"):
        for layout in ("4C", "4W4C"):
            case = conv("q8ta_conv2d_im2col", (2, 20, 19, 30), 70, 3, layout=layout)
            assert check(case, NativeExecutor(threads, {"*": route})) == route
