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

MODULES = (amx, depthwise, elementwise, gemm, groups, pool, quantize, relayout, winograd)
#: Numbers at their level that do not tune: what they are is part of how a kernel works, or of a proof.
FIXED = {"SLACK", "MAX_ROWS", "MEAN_BYTES", "MEAN_VECTORS", "MOST"}
#: Of the schedule: what threads cost to wake, and an element and a weight to compute.
SCHEDULE = ("WAKING", "ELEMENT", "WEIGHT")
FACTORS = (1 / 16, 1 / 3, 1, 3, 16)


def numbers(module: ModuleType) -> set[str]:
    """Names of the numbers at a module's level."""
    found = set()
    for node in ast.parse(Path(str(module.__file__)).read_text()).body:
        if isinstance(node, ast.Assign):
            names = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
            found |= {name.id for name in names if isinstance(name, ast.Name)}
    return {name for name in found if isinstance(getattr(module, name), int | float)}


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(6))
def test_bytes_do_not_depend_on_them(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Rng(7000 + seed)
    rows = [(module, name) for module in MODULES for name in sorted(numbers(module) - FIXED)]
    assert len(rows) > 40
    for module, name in (*rows, *((schedule, name) for name in SCHEDULE)):
        was = getattr(module, name)
        value = was * rng.choice(FACTORS)
        monkeypatch.setattr(module, name, value if isinstance(was, float) else max(1, int(value)))
    threads = 1 + seed % 3
    taken = {
        check(wide(op, 40 * seed + number), NativeExecutor(threads)) for op in OPS for number in range(2)
    }
    assert len(taken) > 8, taken
    for route in ("winograd4", "gemm", "amx_emulated"):
        for layout in ("4C", "4W4C"):
            case = conv("q8ta_conv2d_im2col", (2, 20, 19, 30), 70, 3, layout=layout)
            assert check(case, NativeExecutor(threads, {"*": route})) == route
