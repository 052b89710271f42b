"""No code decides anything by an operator's name: it asks for a trait of `OpSpec` instead."""

from __future__ import annotations

import ast
import importlib
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from refsim.core.errors import UnknownOperatorError
from refsim.ops.base import registry as op_module
from refsim.ops.base.registry import OPS
from refsim.ops.base.traits import Family

ROOT = Path(__file__).parents[2]
FOLDER = Path(op_module.__file__).parents[1]
#: The operators' own files, and where a lowering says which operator a pattern becomes.
HOMES = ("refsim/ops/", "refsim/partition/patterns/")
#: Rows of benchmarks, and the networks that they are of, name what they time; they decide nothing.
DATA = ("bench/gpu.py", "bench/networks.py", "bench/verdicts.py")
#: A bug's id, as cpu-N2-NAME, is no operator's name.
NAME = re.compile(rf"(?<![\w-])({'|'.join(OPS)})(?!\w)")


def sources() -> list[str]:
    """The files that the law is about, relative to the root."""
    folders = ("refsim", "gpu", "bench", "docs")
    found = (
        path.relative_to(ROOT).as_posix() for folder in folders for path in (ROOT / folder).rglob("*.py")
    )
    return sorted(path for path in found if not path.startswith(HOMES) and path not in DATA)


def docstrings(tree: ast.AST) -> set[int]:
    """Ids of the constants that are docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    """The code of each file that holds an operator's name, or asks for one."""
    found = {path: (ROOT / path).read_text() for path in (*sources(), *DATA)}
    return {path: ast.parse(s) for path, s in found.items() if NAME.search(s) or "op.name" in s}


def named(path: str, tree: ast.Module) -> Iterator[str]:
    """Places where a string of the code holds an operator's name."""
    spared = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in spared:
            for match in NAME.finditer(node.value):
                yield f"{path}:{node.lineno}: {match.group()}"


def test_no_operator_is_named(trees: dict[str, ast.Module]) -> None:
    found = [place for path, tree in trees.items() if path not in DATA for place in named(path, tree)]
    assert not found, "\n".join(found)


def about_a_name(node: ast.AST) -> bool:
    """Whether an expression is ``op.name`` or ends in ``.op.name``."""
    if not (isinstance(node, ast.Attribute) and node.attr == "name"):
        return False
    of = node.value
    return (isinstance(of, ast.Name) and of.id == "op") or (isinstance(of, ast.Attribute) and of.attr == "op")


def test_no_part_of_a_name_decides(trees: dict[str, ast.Module]) -> None:
    """Names of operators are printed and looked up; they are not compared with anything, nor taken apart."""
    parts = ("startswith", "endswith", "removeprefix", "removesuffix", "split", "partition")
    for path, node in ((path, node) for path, tree in trees.items() for node in ast.walk(tree)):
        compared = isinstance(node, ast.Compare) and any(map(about_a_name, (node.left, *node.comparators)))
        taken_apart = isinstance(node, ast.Attribute) and node.attr in parts and about_a_name(node.value)
        assert not (compared or taken_apart), f"{path}:{node.lineno}: {ast.unparse(node)}"


def test_the_lists_name_files() -> None:
    assert all((ROOT / path).exists() for path in (*HOMES, *DATA))


# --- the registry -------------------------------------------------------------------------------------------


def test_one_file_one_operator_of_the_same_name() -> None:
    files = sorted(path.stem for path in FOLDER.glob("[!_]*.py"))
    assert files == sorted(OPS) and len(OPS) >= 17
    for name in OPS:
        assert importlib.import_module(f"refsim.ops.{name}").OP is OPS[name]


def test_a_duplicate_name_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    real = op_module.importlib.import_module
    first, second, *_ = OPS

    def twice(name: str):
        return real(f"refsim.ops.{first}") if name == f"refsim.ops.{second}" else real(name)

    monkeypatch.setattr(op_module.importlib, "import_module", twice)
    with pytest.raises(RuntimeError, match=f"{first}: defined twice, again in {second}"):
        op_module._load()


def test_operators_of_a_family() -> None:
    assert all(op in OPS.of_family(op.family) for op in OPS.values())
    assert OPS.of_family(*Family) == tuple(OPS.values()) and not OPS.of_family()


def test_an_unknown_operator_is_named_with_those_there_are() -> None:
    with pytest.raises(UnknownOperatorError, match=r"unknown; got 'q8ta_sub', need .* and 19 more"):
        OPS["q8ta_sub"]
    with pytest.raises(UnknownOperatorError, match=r"and 19 more; did you mean q8ta_add\?"):
        OPS["q8ta_ad"]
    assert "q8ta_sub" not in OPS
    assert OPS.serialized("et_vk.q8ta_sub.default") is None
    assert OPS.serialized("") is None


def test_specs_travel_between_processes_by_name() -> None:
    assert pickle.loads(pickle.dumps(OPS["q8ta_add"])) is OPS["q8ta_add"]
