"""A kernel and all that it calls, as plain functions in which one number selects an edit ("mutant schemata").

Each function is copied once, with the names of other modules resolved, so that all copies live in one namespace. Of the
function that is edited a second copy is used, in which each place with alternatives asks for the number; so the others
run as fast as they can. Loops count their steps: no edit runs for ever.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from refsim.bytediff.search.plain import ADDED, LEAVES, Scalars
from refsim.bytediff.search.sites import Alternative, Names, alternatives
from refsim.core import jit
from refsim.ops.base.registry import OPS

ROOT = Path(__file__).parents[3]
#: A compiled copy gives up after so many steps of one loop.
MOST_STEPS = 1 << 22
#: Zeros behind each input: what reads outside of a buffer give on most devices.
BEHIND = 4096


class EndlessError(Exception):
    """A loop of a wrong kernel that does not end in time."""


@dataclass(frozen=True, eq=False)
class Edit:
    """One edit of one function: ``new`` stands for ``old``; None if a statement is left out."""

    number: int
    copy: Copy
    old: ast.AST
    made: Alternative

    @property
    def line(self) -> int:
        """Of the file."""
        return self.copy.first + getattr(self.old, "lineno", 1) - 1


@dataclass(eq=False)
class Copy:
    """One function of a schema: its name there, its tree with resolved names, where it stands, and its edits."""

    schema: Schema
    name: str
    function: FunctionType
    path: str = ""
    first: int = 0
    tree: Any = None
    calls: list[Copy] = field(default_factory=list)
    #: Node -> its edits, one behind the other.
    at: dict[ast.AST, list[Edit]] = field(default_factory=dict)

    def read(self) -> None:
        """Parse the function, and those that it calls."""
        lines, self.first = inspect.getsourcelines(self.function)
        file = Path(inspect.getfile(self.function))
        self.path = str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else file.name
        (tree,) = ast.parse(textwrap.dedent("".join(lines))).body
        assert isinstance(tree, ast.FunctionDef)
        if isinstance(tree.body[0], ast.Expr) and isinstance(tree.body[0].value, ast.Constant):
            del tree.body[0]
        tree.decorator_list, tree.returns, tree.name = [], None, self.name
        for argument in tree.args.args:
            argument.annotation = None
        self.tree = _Resolve(self).visit(tree)
        self.schema.find_edits(self)

    @cached_property
    def switched(self) -> Callable[..., Any]:
        """The copy in which the number in the namespace selects an edit."""
        return self.schema.made(self, "switch")

    @cached_property
    def watched(self) -> Callable[..., Any]:
        """The copy that tells which of its places were reached, and with floats or not."""
        return self.schema.made(self, "watch")


class Schema:
    """All copies and edits of one kernel."""

    def __init__(self, kernel: Any, rows: Any) -> None:
        self.names = Names(rows)
        self.copies: dict[FunctionType, Copy] = {}
        self.edits: list[Edit] = []
        self.left = [0]
        self.seen: dict[int, int] = {}
        self.namespace: dict[str, Any] = {
            "np": Scalars, **ADDED, "_edit": -1, "_left": self.left, "_watch": self._watch, "_Endless": EndlessError,
        }  # fmt: skip
        self.kernel = self.copy_of(getattr(kernel, "py_func", kernel))
        for copy in self.copies.values():
            self.namespace[copy.name] = self.made(copy, "plain")

    def copy_of(self, function: FunctionType) -> Copy:
        """The copy of a function, made at first."""
        if function not in self.copies:
            self.copies[function] = Copy(self, f"{function.__name__}__f{len(self.copies)}", function)
            self.copies[function].read()
        return self.copies[function]

    def find_edits(self, copy: Copy) -> None:
        """Number the edits of a function."""
        for node in ast.walk(copy.tree):
            for made in alternatives(node, copy.tree, self.names, copy.function):
                edit = Edit(len(self.edits), copy, node, made)
                self.edits.append(edit)
                copy.at.setdefault(node, []).append(edit)
        self.namespace.update(self.names.values)

    def made(self, copy: Copy, way: str) -> Callable[..., Any]:
        """A function of the namespace."""
        return _compiled(_Rewrite(copy.at, way).visit(copy.tree), self.namespace, copy.name)

    def _watch(self, number: int, value: Any) -> Any:
        self.seen[number] = self.seen.get(number, 0) | (1 if isinstance(value, (float, np.floating)) else 2)
        return value

    def select(self, edit: Edit | None) -> None:
        """Let the namespace have one edit, or none."""
        held = self.namespace
        if held["_edit"] >= 0:
            before = self.edits[held["_edit"]].copy
            held[before.name] = held.pop("_before")
        held["_edit"] = -1
        if edit is not None:
            held["_before"] = held[edit.copy.name]
            held["_edit"], held[edit.copy.name] = edit.number, edit.copy.switched

    def watching(self, on: bool) -> None:
        """Let all functions tell which places they reach, or none."""
        for copy in self.copies.values():
            self.namespace[copy.name] = copy.watched if on else self.made(copy, "plain")

    @property
    def run(self) -> Callable[..., Any]:
        """The kernel as it is now."""
        found: Callable[..., Any] = self.namespace[self.kernel.name]
        return found

    def built(self, edit: Edit) -> Callable[..., Any]:
        """The kernel with one edit, compiled. Only the edited function and its callers are made again."""
        njit = jit.ready().njit(nogil=True, error_model="numpy", boundscheck=True)
        space = {**self.namespace, "np": np, **self.names.originals}
        space |= {name: njit(f) for name, f in ADDED.items()}
        space |= {copy.name: copy.function for copy in self.copies.values()}
        for copy in self._callers(edit.copy):
            tree = _Rewrite(copy.at, "compiled", edit.number).visit(copy.tree)
            space[copy.name] = njit(_compiled(tree, space, copy.name))
        found: Callable[..., Any] = space[self.kernel.name]
        return found

    def _callers(self, copy: Copy) -> Iterator[Copy]:
        """A function and those through which the kernel calls it, the innermost first."""
        reach: dict[Copy, bool] = {}

        def reaches(at: Copy) -> bool:
            if at not in reach:
                reach[at] = False
                found = [reaches(called) for called in at.calls]
                reach.pop(at)
                reach[at] = at is copy or any(found)
            return reach[at]

        reaches(self.kernel)
        return (at for at, found in reach.items() if found)


@cache
def schema_of(op: str) -> Schema:
    """The schema of an operator's kernel."""
    spec = OPS[op]
    return Schema(spec.kernel, (spec.push, spec.spec))


def _compiled(tree: ast.AST, space: dict[str, Any], name: str) -> Callable[..., Any]:
    module = ast.fix_missing_locations(ast.Module([tree], []))  # type: ignore[list-item]
    made: dict[str, Any] = {}
    exec(compile(module, f"<edited {name}>", "exec"), space, made)
    return FunctionType(made[name].__code__, space, name)


class _Resolve(ast.NodeTransformer):
    """Names of other modules become names of the schema's namespace; NumPy's functions stay."""

    def __init__(self, copy: Copy) -> None:
        self.copy, self.names = copy, copy.schema.names
        code = copy.function.__code__
        self.own = {*code.co_varnames, *code.co_cellvars}

    def value(self, node: ast.AST) -> Any:
        """What a name of the function's module or of one that it imports is; None if it is neither."""
        if isinstance(node, ast.Name) and node.id not in self.own:
            return self.copy.function.__globals__.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self.value(node.value)
            return None if base is None or base is np else getattr(base, node.attr, None)
        return None

    def resolved(self, node: ast.AST) -> ast.AST | None:
        value = self.value(node)
        if value is None or value is np or isinstance(value, ModuleType):
            return None
        text = ast.unparse(node)
        if isinstance(value, FunctionType):
            if value not in LEAVES and value.__module__.startswith("refsim."):
                called = self.copy.schema.copy_of(value)
                self.copy.calls.append(called)
                self.names.texts[called.name] = text
                return ast.copy_location(ast.Name(called.name, ast.Load()), node)
            name = self.names.of(text, value, LEAVES.get(value, value))
        else:
            name = self.names.of(text, value)
        return ast.copy_location(ast.Name(name, ast.Load()), node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.resolved(node) or node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self.resolved(node) or self.generic_visit(node)


class _Rewrite(ast.NodeTransformer):
    """A copy of a tree: ``switch`` asks for the number at each place, ``watch`` tells of each, ``plain`` does neither.

    ``compiled`` has the edit ``only`` alone, if it is here.
    """

    def __init__(self, at: dict[ast.AST, list[Edit]], way: str, only: int = -1) -> None:
        self.at, self.way, self.only, self.loops = at, way, only, 0

    def visit(self, node: ast.AST) -> Any:
        new = self.rebuilt(node)
        edits = self.at.get(node)
        if isinstance(node, ast.For | ast.While):
            new = self.counted(new)
        if edits:
            new = self.selected(new, edits) if isinstance(node, ast.expr) else self.left_out(new, edits)
        if self.way == "compiled" and isinstance(node, ast.Attribute) and ast.unparse(node) in _PADDED:
            new = ast.BinOp(new, ast.Sub(), ast.Constant(BEHIND))
        return new

    def rebuilt(self, node: ast.AST) -> Any:
        """The same node with rewritten parts."""
        parts: dict[str, Any] = {}
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                rows: list[Any] = []
                for each in value:
                    new = self.visit(each) if isinstance(each, ast.AST) else each
                    rows += new if isinstance(new, list) else [new]
                parts[name] = rows
            else:
                parts[name] = self.visit(value) if isinstance(value, ast.AST) else value
        return ast.copy_location(type(node)(**parts), node)

    def selected(self, new: ast.expr, edits: list[Edit]) -> ast.expr:
        first, last = edits[0].number, edits[-1].number
        if self.way == "watch":
            return ast.Call(ast.Name("_watch", ast.Load()), [ast.Constant(first), new], [])
        if self.way == "compiled" and first <= self.only <= last:
            return edits[self.only - first].made.new  # type: ignore[return-value]
        if self.way != "switch":
            return new
        chain: Any = edits[-1].made.new
        for edit in reversed(edits[:-1]):
            chain = ast.IfExp(_number(ast.Eq(), edit.number), edit.made.new, chain)  # type: ignore[arg-type]
        within = ast.Compare(
            ast.Constant(first), [ast.LtE(), ast.LtE()], [ast.Name("_edit", ast.Load()), ast.Constant(last)]
        )
        return ast.copy_location(ast.IfExp(within, chain, new), new)

    def left_out(self, new: Any, edits: list[Edit]) -> Any:
        """A statement, unless its edit is selected."""
        (edit,) = edits
        body = new if isinstance(new, list) else [new]
        if self.way == "compiled" and edit.number == self.only:
            return ast.Pass()
        if self.way == "watch":
            call = ast.Call(ast.Name("_watch", ast.Load()), [ast.Constant(edit.number), ast.Constant(0)], [])
            return [ast.Expr(call), *body]
        return ast.If(_number(ast.NotEq(), edit.number), body, []) if self.way == "switch" else new

    def counted(self, loop: Any) -> Any:
        """A loop that counts its steps."""
        if self.way != "compiled":
            loop.body = [*_COUNT, *loop.body]
            return loop
        if "ndindex" in ast.unparse(loop.iter if isinstance(loop, ast.For) else loop.test):
            return loop
        self.loops += 1
        name = f"_steps{self.loops}"
        source = f"{name} += 1\nif {name} > {MOST_STEPS}:\n    raise RuntimeError"
        loop.body = [*ast.parse(source).body, *loop.body]
        return [*ast.parse(f"{name} = 0").body, loop]


#: What kernels ask of an input that is longer in a compiled copy.
_PADDED = ("bias.size",)
_COUNT = ast.parse("_left[0] -= 1\nif _left[0] < 0:\n    raise _Endless").body


def _number(how: ast.cmpop, number: int) -> ast.Compare:
    return ast.Compare(ast.Name("_edit", ast.Load()), [how], [ast.Constant(number)])
