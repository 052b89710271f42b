"""The rooms of refsim and what they may import: no circle, no arrow that points up, no torch and no kp."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]

#: Room -> the rooms that it may import, as docs/architecture.md says, from the lowest room up.
ROOMS = {
    name: set(cell.split(", ")) - {"nothing"}
    for name, cell in re.findall(
        r"^\| `refsim/(\w+)/` \| [^|]+ \| ([\w, ]+) \|$", (ROOT / "docs/architecture.md").read_text(), re.M
    )
}

#: Packages that are heavy or may be missing -> the rooms that may import them when they are loaded.
HEAVY = {
    "torch": {"partition"},
    "torchao": {"partition"},
    "executorch": set(),
    "kp": set(),
    "refsim_gpu": set(),
    "distributed": set(),
}
#: The only modules that import one of them later: when a float operator has no row in NumPy; for a cluster; to be used
#: by ExecuTorch itself.
LATE = {
    "torch": {"refsim.aten.bridge", "refsim.device.inspector"},
    "executorch": {"refsim.device.inspector"},
    "distributed": {"refsim.sweep.cluster"},
}


class Import(NamedTuple):
    """One name that a module imports; ``late`` inside a function."""

    module: str
    line: int
    name: str
    late: bool


def modules(root: Path, package: str) -> dict[str, Path]:
    """Every module of a package by its dotted name."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = (package, *path.relative_to(root).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, known: dict[str, Path]) -> Iterator[Import]:
    """All imports of a module, those inside functions and under TYPE_CHECKING too."""
    tree = ast.parse(path.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    late = {id(node) for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(name, node.lineno, alias.name, id(node) in late)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: a relative import hides where it points"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield Import(name, node.lineno, full if full in known else str(node.module), id(node) in late)


def every_import(root: Path, package: str = "refsim") -> list[Import]:
    known = modules(root, package)
    return [found for name, path in known.items() for found in imports(name, path, known)]


def room(module: str) -> str:
    return module.split(".")[1] if module.startswith("refsim.") else ""


def circles(found: list[Import]) -> str:
    """The modules of a circle, or nothing."""
    arrows: dict[str, set[str]] = {}
    for arrow in found:
        if arrow.name != arrow.module:
            arrows.setdefault(arrow.module, set()).add(arrow.name)
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return " -> ".join(reversed(error.args[1]))
    return ""


def strangers(found: list[Import]) -> list[str]:
    """Imports from a room that the page does not allow, as lines."""
    return [
        f"{arrow.module}:{arrow.line} imports {arrow.name}"
        for arrow in found
        if arrow.name.startswith("refsim.")
        and arrow.module != "refsim"
        and room(arrow.name) not in {room(arrow.module), *ROOMS[room(arrow.module)]}
    ]


def heavy(found: list[Import]) -> list[str]:
    """Imports of what refsim must do without, as lines."""
    return [
        f"{arrow.module}:{arrow.line} imports {arrow.name}"
        for arrow in found
        if (package := arrow.name.split(".")[0]) in HEAVY
        and room(arrow.module) not in HEAVY[package]
        and not (arrow.late and arrow.module in LATE.get(package, ()))
    ]


REFSIM = every_import(ROOT / "refsim")


def test_every_folder_is_a_room() -> None:
    folders = {path.parent.name for path in (ROOT / "refsim").glob("*/__init__.py")}
    assert folders == set(ROOMS), "a new room needs a row in docs/architecture.md and one in the README"
    loose = {path.name for path in (ROOT / "refsim").glob("*.py")}
    assert loose == {"__init__.py"}


def test_rooms_stand_on_those_above_them_in_the_table() -> None:
    names = list(ROOMS)
    for number, name in enumerate(names):
        assert ROOMS[name] <= set(names[:number])


def test_the_page_names_no_import_that_there_is_not() -> None:
    used = {(room(arrow.module), room(arrow.name)) for arrow in REFSIM if arrow.name.startswith("refsim.")}
    assert {(name, other) for name, others in ROOMS.items() for other in others} <= used


def test_tests_mirror_the_rooms() -> None:
    assert set(ROOMS) <= {path.name for path in (ROOT / "tests").iterdir()}


def test_no_two_files_of_tests_have_one_name() -> None:
    """pytest takes files in folders that are no packages for one module each, and refuses the second of a name."""
    found: dict[str, Path] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        packages = [each.name for each in path.parents if (each / "__init__.py").exists()]
        name = ".".join((*reversed(packages), path.stem))
        if path.stem not in ("conftest", "__init__", "__main__"):
            assert name not in found, f"{path} and {found[name]}"
            found[name] = path


def test_no_circle() -> None:
    assert not circles(REFSIM + every_import(ROOT / "gpu", "refsim_gpu"))


def test_imports_are_those_of_the_page() -> None:
    assert not strangers(REFSIM)


def test_refsim_does_without_torch_and_kp() -> None:
    assert not heavy(REFSIM)


def test_loading_every_other_room_loads_none_of_them() -> None:
    names = [
        n for n in modules(ROOT / "refsim", "refsim") if room(n) != "partition" and not n.endswith("__main__")
    ]
    code = f"import sys, {', '.join(names)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(HEAVY) & set(done.stdout.split())


@pytest.mark.parametrize(
    ("file", "line", "check"),
    [
        ("core/a.py", "from refsim.ops import b", strangers),
        ("core/a.py", "def f():\n    from refsim.cli import main", strangers),
        ("graph/a.py", "if TYPE_CHECKING:\n    from refsim.exec.model import Model", strangers),
        ("bytediff/a.py", "from refsim.partition import lower", strangers),
        ("exec/a.py", "import kp", heavy),
        ("exec/a.py", "def f():\n    import torch", heavy),
        ("aten/bridge.py", "import torch", heavy),
        ("core/a.py", "def f():\n    from refsim_gpu import vulkan", heavy),
        ("core/a.py", "from refsim.core import b", circles),
    ],
)
def test_what_is_wrong_is_found(tmp_path: Path, file: str, line: str, check) -> None:
    """A made-up tree with one wrong import; without it nothing is found."""
    for name in ROOMS:
        (tmp_path / "refsim" / name).mkdir(parents=True)
    (tmp_path / "refsim" / "core" / "b.py").write_text("from refsim.core import a\n")
    (tmp_path / "refsim" / file).write_text("import numpy\n")
    assert not check(every_import(tmp_path / "refsim"))
    (tmp_path / "refsim" / file).write_text(line + "\n")
    assert check(every_import(tmp_path / "refsim"))
