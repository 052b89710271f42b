"""The rooms of refsim and what they may import: no circle, no arrow that points up, no torch and no kp."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.house import ROOT, Import, circles, every_import, modules
from refsim.check.runtime import DEFAULT, releases

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
#: by ExecuTorch itself; when somebody asks for a GPU.
LATE = {
    "refsim_gpu": {"refsim.exec.factory"},
    "torch": {"refsim.aten.bridge", "refsim.devtools.inspector"},
    "executorch": {"refsim.devtools.inspector"},
    "distributed": {"refsim.sweep.cluster"},
}


def room(module: str) -> str:
    return module.split(".")[1] if module.startswith("refsim.") else ""


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


@pytest.fixture(scope="module")
def every() -> list[Import]:
    return every_import({"refsim": ROOT / "refsim", "refsim_gpu": ROOT / "gpu"})


@pytest.fixture(scope="module")
def ours(every: list[Import]) -> list[Import]:
    """Those of refsim itself."""
    return [each for each in every if not each.module.startswith("refsim_gpu")]


def test_every_folder_is_a_room() -> None:
    folders = {path.parent.name for path in (ROOT / "refsim").glob("*/__init__.py")}
    assert folders == set(ROOMS), "a new room needs a row in docs/architecture.md"
    loose = {path.name for path in (ROOT / "refsim").glob("*.py")}
    assert loose == {"__init__.py"}


def test_rooms_stand_on_those_above_them_in_the_table() -> None:
    names = list(ROOMS)
    for number, name in enumerate(names):
        assert ROOMS[name] <= set(names[:number])


def test_every_import_that_the_page_allows_is_used(ours: list[Import]) -> None:
    used = {(room(arrow.module), room(arrow.name)) for arrow in ours if arrow.name.startswith("refsim.")}
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


def test_no_circle(every: list[Import]) -> None:
    assert not circles(every)


def test_nothing_knows_the_room_of_other_tools_but_one_table(ours: list[Import]) -> None:
    """Verbs load it by name, as they load what other packages bring; `refsim.__init__` has its public function."""
    own = {path for path in (ROOT / "refsim").rglob("*.py") if "devtools" in path.read_text()}
    named = {
        path
        for path in own
        if path.parent.name != "devtools" and any("devtools" in text for text in literals(path.read_text()))
    }
    assert named == {ROOT / "refsim/cli/kit/verb.py", ROOT / "refsim/__init__.py"}
    assert {arrow.module for arrow in ours if room(arrow.name) == "devtools"} <= {
        "refsim",
        *(arrow.module for arrow in ours if room(arrow.module) == "devtools"),
    }
    assert "devtools" not in set().union(*ROOMS.values())


def test_imports_are_those_of_the_page(ours: list[Import]) -> None:
    assert not strangers(ours)


def test_refsim_does_without_torch_and_kp(ours: list[Import]) -> None:
    assert not heavy(ours)


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
        ("core/a.py", "def f():\n    import_module('refsim.core.b')", circles),
        ("core/a.py", "B = {'b': 'b'}\ndef f(name):\n    import_module(f'refsim.core.{B[name]}')", circles),
    ],
)
def test_what_is_wrong_is_found(tmp_path: Path, file: str, line: str, check) -> None:
    """A made-up tree with one wrong import; without it nothing is found."""
    for name in ROOMS:
        (tmp_path / "refsim" / name).mkdir(parents=True)
    (tmp_path / "refsim" / "core" / "b.py").write_text("from refsim.core import a\n")
    (tmp_path / "refsim" / file).write_text("import numpy\n")
    assert not check(every_import({"refsim": tmp_path / "refsim"}))
    (tmp_path / "refsim" / file).write_text(line + "\n")
    assert check(every_import({"refsim": tmp_path / "refsim"}))


#: Literals that are the name of a runtime, too: a function, an entry point of SPIR-V, an extra of pip.
OTHER_NAMES = {("cli/__init__.py", "main"), ("spirv/rewrite.py", "main"), ("core/extras.py", "webgpu")}


def literals(source: str) -> set[str]:
    """The strings of a module, without its docstrings."""
    tree = ast.parse(source)
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in said)
    return {node.value for node in constants if isinstance(node.value, str)}


def test_no_code_asks_which_runtime_it_is() -> None:
    """What depends on a runtime is a fact of its description; only the reader knows a name, the default."""
    versions = re.compile(rf"\b({'|'.join(map(re.escape, set(releases()) - {'main'}))})\b", re.I)
    sources = {path: path.read_text() for path in (ROOT / "refsim").rglob("*.py")}
    found = {
        (path.relative_to(ROOT / "refsim").as_posix(), text)
        for path, source in sources.items()
        if '"main"' in source or versions.search(source)
        for text in literals(source)
        if text == "main" or versions.search(text)
    }
    assert found == {*OTHER_NAMES, ("check/runtime.py", DEFAULT)}
