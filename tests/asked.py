"""What of the sources a failed test asked: the functions whose values it compares, and the files they are in."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

#: What stands before the functions; a few are told, those of the assertion itself first.
ASKED, MOST = "asked of ", 3
#: What a statement of a test raises if it takes what is not there, as it must be: an item, or so many of them.
TAKEN = (KeyError, IndexError, ValueError, StopIteration)
#: Packages of the sources, and their folders.
FOLDERS = {"refsim": "refsim", "refsim_gpu": "gpu"}


def told(error: BaseException) -> str:
    """``asked of FILE: FUNCTION, ..``; "" of an error that is no failed assertion of a test, or that asks nothing.

    A test that takes what is not there asserts that it is: by its name, its number, or as the only one.
    """
    if not isinstance(error, (AssertionError, *TAKEN)) or error.__traceback__ is None:
        return ""
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    if isinstance(error, TAKEN) and "tests" not in Path(last.tb_frame.f_code.co_filename).parts:
        return ""
    try:
        found = list(dict.fromkeys(_functions(last.tb_frame, last.tb_lineno)))
    except (OSError, TypeError, SyntaxError):  # its source cannot be read
        return ""
    return f"{ASKED}{', '.join(found[:MOST])}" if found else ""


def _functions(frame: FrameType, line: int) -> Iterator[str]:
    """Of what the statement at a line asks, and of what made the names that it uses, the latest first."""
    lines, first = inspect.getsourcelines(frame.f_code)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    at = line - max(first, 1) + 1
    statements = sorted(
        (node for node in ast.walk(tree) if isinstance(node, ast.stmt) and not hasattr(node, "body")),
        key=lambda node: node.lineno,
    )
    before = [node for node in statements if node.lineno <= at]
    if not before:
        return
    names: set[str] = set()
    for node in reversed(before):
        sets = _names(node, ast.Store)
        if node is before[-1] or sets & names:
            names |= _names(node, ast.Load)
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and (place := _place(_value(call.func, frame))):
                    yield place


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """The names that a statement uses, or sets."""
    return {
        each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, context)
    }


def _value(node: ast.expr, frame: FrameType) -> Any:
    """What a name, or an attribute of a module or class, stands for; None if only running it would tell."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        held = _value(node.value, frame)
        if isinstance(held, ModuleType | type) or hasattr(held, "__wrapped__"):
            return getattr(held, node.attr, None)
        return getattr(type(held), node.attr, None) if held is not None else None
    return None


def _place(value: Any) -> str:
    """``FILE: FUNCTION`` of a function or class of the sources; "" of anything else."""
    value = inspect.unwrap(value) if callable(value) else value
    value = getattr(value, "py_func", value)  # what Numba compiles
    package, _, rest = str(getattr(value, "__module__", "")).partition(".")
    name = getattr(value, "__name__", "")
    if package not in FOLDERS or not rest or not (inspect.isroutine(value) or isinstance(value, type)):
        return ""
    return f"{FOLDERS[package]}/{rest.replace('.', '/')}.py: {name}"
