"""Inside the native executor imports point one way, as its package says."""

from __future__ import annotations

from bench.house import ROOT, Import, circles, every_import

PACKAGE = "refsim.exec.cpu"
ROWS = (
    "ir isa",
    "args strides compiled job runner wake thread_pool",
    "table epilogue narrow tile4x4 nhwc dot",
    "conv_problem amx gemm winograd depthwise elementwise relayout quantize pool groups",
    "routes",
    "step fusion schedule stopwatch plan executor",
)
ROW = {name: number for number, names in enumerate(ROWS) for name in names.split()}


def part(module: str) -> str:
    """A module or family of the package; "" of what lies elsewhere."""
    return module.removeprefix(f"{PACKAGE}.").split(".")[0] if module.startswith(f"{PACKAGE}.") else ""


def test_every_module_has_a_row_and_imports_none_below_it() -> None:
    found = every_import({PACKAGE: ROOT / "refsim" / "exec" / "cpu"})
    arrows = {(part(each.module), part(each.name)) for each in found if not each.late}
    inside = [(one, other) for one, other in arrows if one and other and one != other]
    assert {part(each.module) for each in found} - {""} == ROW.keys()
    assert not [(one, other) for one, other in inside if ROW[other] > ROW[one]]
    assert not circles(Import(one, 0, other, False) for one, other in inside)
