"""docs/architecture.md says which package may import which. The sources keep to it, and no imports form a circle."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| `refsim/(\w+)/` \| [^|]+ \| ([\w, ]+) \|$", re.M)
#: Package -> what it may import, as the page says.
ALLOWED = {
    name: set(cell.split(", ")) - {"nothing"}
    for name, cell in ROW.findall((ROOT / "docs/architecture.md").read_text())
}


@cache
def modules() -> dict[str, Path]:
    """Every module of refsim: its full name, and its file."""
    found = {}
    for path in (ROOT / "refsim").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes that run: not what stands under ``if TYPE_CHECKING``."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        yield from _statements(node)


def imported(name: str) -> set[str]:
    """Full names of all that a module imports, also inside functions."""
    found: set[str] = set()
    for node in _statements(ast.parse(modules()[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in modules() else node.module)
    return found


def package(name: str) -> str:
    return name.split(".")[1] if name.count(".") else ""


def test_the_page_has_a_row_for_every_package() -> None:
    assert set(ALLOWED) == {p.parent.name for p in (ROOT / "refsim").glob("*/__init__.py")}


def test_packages_form_no_circle() -> None:
    TopologicalSorter(ALLOWED).prepare()


def test_modules_form_no_circle() -> None:
    graph = {name: imported(name) & set(modules()) - {name} for name in modules()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("imports in a circle: " + " <- ".join(error.args[1]))


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_a_package_imports_what_it_may(name: str) -> None:
    wrong = [
        f"{module} imports {other}"
        for module in modules()
        if package(module) == name
        for other in imported(module)
        if other.partition(".")[0] == "refsim" and package(other) not in {"", name, *ALLOWED[name]}
    ]
    assert not wrong


def test_refsim_imports_nothing_of_the_gpu_package() -> None:
    assert not [
        name for name in modules() if any(i.split(".")[0] in ("refsim_gpu", "kp") for i in imported(name))
    ]


def test_only_partition_needs_torch_when_it_is_loaded() -> None:
    names = [n for n in sorted(modules()) if package(n) != "partition" and not n.endswith("__main__")]
    code = f"import sys, {', '.join(names)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "kp", "refsim_gpu"} & set(done.stdout.split())
