"""A place of a kernel's tree, the names of the namespace that its function lives in, and what might stand there."""

from __future__ import annotations

import ast
import copy as shallow
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from refsim.core.push import Field, Words


@dataclass(frozen=True)
class Alternative:
    """What stands for a node: None if a statement is left out. ``kind`` is the kind of edit.

    ``wants`` says what the right value must be for the edit to change anything: 1 a float, 2 a whole number, 3 either.
    ``words`` tell the edit where its text would be long.
    """

    new: ast.expr | None
    kind: str
    wants: int = 3
    words: str = ""


@dataclass
class Names:
    """The names of a schema's namespace that stand for what other modules have.

    ``rows`` are the operator's own rows of words; those of the modules it uses are found as they are met.
    """

    rows: Sequence[Words]
    texts: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    originals: dict[str, Any] = field(default_factory=dict)

    def of(self, text: str, value: Any, stands: Any = None) -> str:
        """The name for what a module calls ``text``; ``stands``: what a plain copy uses for it."""
        for name, held in self.texts.items():
            if held == text and self.originals.get(name) is value:
                return name
        name = f"{text.replace('.', '_')}__v{len(self.texts)}"
        self.texts[name] = text
        self.originals[name] = value
        self.values[name] = value if stands is None else stands
        return name

    def ref(self, text: str, value: Any) -> ast.Name:
        """An expression for what a module calls ``text``."""
        return ast.Name(self.of(text, value), ast.Load())

    def text(self, node: ast.AST | None) -> str:
        """A node as its author wrote it."""
        if node is None:
            return ""
        return ast.unparse(Renamed(self.texts).visit(cloned(node)))


class Renamed(ast.NodeTransformer):
    """Variables under other names."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)


def cloned(node: ast.AST) -> ast.AST:
    """A deep copy of a tree alone."""
    new = shallow.copy(node)
    for name, value in ast.iter_fields(node):
        if isinstance(value, list):
            setattr(new, name, [cloned(each) if isinstance(each, ast.AST) else each for each in value])
        elif isinstance(value, ast.AST):
            setattr(new, name, cloned(value))
    return new


@dataclass(frozen=True)
class KernelSite:
    """A node with what the rules need to know: its function's tree and the names of other modules."""

    node: Any
    tree: ast.FunctionDef
    names: Names
    function: FunctionType

    def called(self, call: ast.AST) -> str:
        """The name of the function that is called, without its module unless that is NumPy."""
        if not isinstance(call, ast.Call):
            return ""
        text = ast.unparse(call.func)
        text = self.names.texts.get(text, text)
        return text if text.startswith("np.") else text.rpartition(".")[2]


def kinds(rows: Sequence[Words], scope: dict[str, Any]) -> dict[str, str]:
    """Name of a word -> what kind it is, of a module's own rows and of the operator's."""
    fields: list[Field] = [each for row in rows for each in row.fields]
    for value in scope.values():
        if isinstance(value, Words):
            fields += value.fields
        elif isinstance(value, tuple) and value and isinstance(value[0], Field):
            fields += [each for each in value if isinstance(each, Field)]
    return {
        name: f"{each.type.glsl} {len(each.type.parts)} {each.type.need}"
        for each in fields
        for name in each.constants
    }


def similar(a: str, b: str) -> bool:
    """Whether two names are of one kind: single letters, i and j, ih and iw or oh, a_zp and b_zp, lo and hi."""
    if a == b:
        return False
    if {a, b} in _PAIRED:
        return True
    first, second = a.lower(), b.lower()
    if len(first) <= 3 and len(second) <= 3:
        return (len(first) == len(second) == 1) or (
            len(first) == len(second) and bool(set(first) & set(second))
        )
    return bool(set(first.split("_")) & set(second.split("_")) - {"", "x"})


_PAIRED = (
    {"lo", "hi"},
    {"low", "high"},
    {"least", "most"},
    {"ih", "iw"},
    {"IN_SCALE", "INV"},
    {"sums", "scales"},
)


def times(a: ast.expr, b: ast.expr) -> ast.BinOp:
    return ast.BinOp(a, ast.Mult(), b)


def call(name: str, *args: ast.expr) -> ast.Call:
    func: Any = ast.parse(name, mode="eval").body
    return ast.Call(func, list(args), [])


Rule = Callable[[KernelSite], Iterator[Alternative]]
