"""A place of a kernel's tree, the names of the namespace that its function lives in, and what might stand there."""

from __future__ import annotations

import ast
import copy as shallow
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
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

    @property
    def parent(self) -> Any:
        """The node that has it as a part; None of a function's own statements."""
        return _parents(self.tree).get(self.node)

    @property
    def roles(self) -> Iterator[str]:
        """What the node is to the one that it is a part of."""
        node, parent = self.node, self.parent
        match parent:
            case ast.If(test=test) | ast.IfExp(test=test) if test is node:
                yield "test"
            case ast.BoolOp():
                yield "test"
            case ast.Call(args=args) if node is not parent.func:
                yield "passed"
                yield "place"
                if len(args) == 3 and args[0] is node and isinstance(node, ast.Compare):
                    yield "test"
                if self.called(parent) == "insert" and args[2] is node:
                    yield "byte"
            case ast.AugAssign(target=target, op=op, value=value) if value is node:
                yield "grown"
                if isinstance(target, ast.Name) and isinstance(op, ast.Add):
                    yield "added"
            case ast.BinOp(op=op):
                yield "operand"
                if isinstance(op, ast.Add | ast.Sub):
                    yield "place"
            case ast.Subscript(slice=value) | ast.Assign(value=value) if value is node:
                yield "place"
            case ast.Return():
                yield "returned"
                yield "byte"

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
    {"bias", "scales"},
    {"bias", "sums"},
)


def times(a: ast.expr, b: ast.expr) -> ast.BinOp:
    return ast.BinOp(a, ast.Mult(), b)


def call(name: str, *args: ast.expr) -> ast.Call:
    func: Any = ast.parse(name, mode="eval").body
    return ast.Call(func, list(args), [])


# --- what a function's tree says of a node ----------------------------------------------------------------


@lru_cache(256)
def _parents(tree: ast.FunctionDef) -> dict[ast.AST, ast.AST]:
    return {part: node for node in ast.walk(tree) for part in ast.iter_child_nodes(node)}


def value_of(site: KernelSite, node: ast.expr) -> ast.expr:
    """What a variable was set to last on a line before, whether or not a condition let it; else the node."""
    if not isinstance(node, ast.Name):
        return node
    before = [value for value in values(site.tree, node.id) if value.lineno < node.lineno]
    return max(before, key=lambda value: value.lineno, default=node)


def set_before(tree: ast.FunctionDef, node: ast.expr) -> list[str]:
    """Arguments, and variables that are set on a line before."""
    names = [argument.arg for argument in tree.args.args]
    names += [other.id for other in names_set(tree) if other.lineno <= node.lineno]
    return list(dict.fromkeys(names))


@lru_cache(256)
def names_set(tree: ast.FunctionDef) -> tuple[ast.Name, ...]:
    """The names of a function that are set."""
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return tuple(node for node in names if isinstance(node.ctx, ast.Store))


def values(tree: ast.FunctionDef, name: str) -> list[ast.expr]:
    """What a variable is set to."""
    return [value for each, value in assigned(tree) if each == name]


@lru_cache(256)
def assigned(tree: ast.FunctionDef) -> tuple[tuple[str, ast.expr], ...]:
    """The variables of a function that are set one at a time, each with what to."""
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.Assign) and len(node.targets) == 1)
    return tuple(
        (node.targets[0].id, node.value) for node in statements if isinstance(node.targets[0], ast.Name)
    )


def loops(tree: ast.FunctionDef, node: ast.AST) -> list[str]:
    """The variables that count from 0 in the loops around a node, the outermost first."""
    return [name for name, _, inside in counted(tree) if node in inside]


@lru_cache(256)
def counted(tree: ast.FunctionDef) -> tuple[tuple[str, ast.expr, frozenset[ast.AST]], ...]:
    """(variable, how many turns, what is inside) of the loops that count from 0."""
    return tuple(
        (node.target.id, node.iter.args[0], frozenset(each for part in node.body for each in ast.walk(part)))
        for node in ast.walk(tree)
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name)
        and isinstance(node.iter, ast.Call) and len(node.iter.args) == 1
    )  # fmt: skip


Rule = Callable[[KernelSite], Iterator[Alternative]]
