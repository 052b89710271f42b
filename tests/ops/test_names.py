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
#: Rows of benchmarks name what they time; they decide nothing.
DATA = ("bench/gpu.py",)
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


def named(path: str) -> Iterator[str]:
    """Places where a string of the code holds an operator's name."""
    tree = ast.parse((ROOT / path).read_text())
    spared = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in spared:
            for match in NAME.finditer(node.value):
                yield f"{path}:{node.lineno}: {match.group()}"


@pytest.mark.parametrize("path", sources())
def test_no_operator_is_named(path: str) -> None:
    found = list(named(path))
    assert not found, "\n".join(found)


def test_the_lists_name_files() -> None:
    assert all((ROOT / path).exists() for path in (*HOMES, *DATA))
