"""Inside the native executor imports point one way, as its package says."""

from __future__ import annotations

import ast
from pathlib import Path

import refsim.exec.cpu as package

ROOT = Path(package.__file__).parent
ROWS = (
    "ir isa",
    "args strides compiled job runner wake thread_pool",
    "table epilogue narrow tile4x4 nhwc dot",
    "conv_problem amx gemm winograd depthwise elementwise relayout quantize pool groups",
    "routes",
    "step fusion schedule stopwatch plan executor",
)
ROW = {name: number for number, names in enumerate(ROWS) for name in names.split()}


def imports(path: Path) -> set[str]:
    """Modules and families of the package that a file imports when it is loaded."""
    tree = ast.parse(path.read_text())
    found = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(package.__name__):
            inside = node.module.removeprefix(package.__name__).strip(".").split(".")[0]
            found |= {inside} if inside else {alias.name for alias in node.names}
    return found


def test_every_module_has_a_row_and_imports_none_below_it() -> None:
    graph: dict[str, set[str]] = {name: set() for name in ROW}
    for path in ROOT.rglob("*.py"):
        name = path.relative_to(ROOT).with_suffix("").parts[0]
        if name != "__init__":
            graph[name] |= imports(path) - {name}
    assert graph.keys() == ROW.keys()
    wrong = [(a, b) for a, used in graph.items() for b in used if ROW[b] > ROW[a]]
    assert not wrong, wrong
    left = dict(graph)
    while free := [name for name, used in left.items() if not used & left.keys()]:
        for name in free:
            del left[name]
    assert not left, f"in a circle: {sorted(left)}"
