"""No code decides anything by an operator's name: it asks for a trait of `OpSpec` instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from refsim.ops.base.registry import OPS

ROOT = Path(__file__).parents[2]
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
