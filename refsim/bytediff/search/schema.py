"""A kernel and all that it calls, as plain functions in which one number selects an edit ("mutant schemata").

Each function is copied once, with the names of other modules resolved, so that all copies live in one namespace. Of the
function that is edited a second copy is used, in which each place with alternatives asks for the number; so the others
run as fast as they can. Loops count their steps: no edit runs for ever.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import count
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

import numpy as np

from refsim.bytediff.search.plain import ADDED, LEAVES, Scalars
from refsim.bytediff.search.rewrite import Rewrite, compiled
from refsim.bytediff.search.ruled import function_of
from refsim.bytediff.search.site import Alternative, Names
from refsim.bytediff.search.sites import alternatives
from refsim.core import index, jit
from refsim.ops.base.epilogue import FORMULAS
from refsim.ops.base.registry import kernel_of
from refsim.ops.base.requantization import Requantization

ROOT = Path(__file__).parents[3]
#: Modules whose functions compute whole numbers from whole numbers, and how many results of each are kept.
_WHOLE, MOST_KEPT = ("refsim.core.lanes", "refsim.core.index", "refsim.ops.base.int4"), 1 << 15
NOTHING: Mapping[Any, Any] = MappingProxyType({})
#: How many kernels are kept with all their edits: one for each operator, and for each rule and scale.
MOST_SCHEMAS = 64
#: How many kernels with an edit are kept compiled: the next wrong buffer may be due to the same edit.
MOST_BUILT = 16


class EndlessError(Exception):
    """A loop of a wrong kernel that does not end in time."""


@dataclass(frozen=True, eq=False)
class KernelEdit:
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

    schema: KernelSchema
    name: str
    function: FunctionType
    path: str = ""
    first: int = 0
    tree: Any = None
    calls: list[Copy] = field(default_factory=list)
    codes: dict[tuple[str, int], CodeType] = field(default_factory=dict)
    #: Node -> its edits, one behind the other.
    at: dict[ast.AST, list[KernelEdit]] = field(default_factory=dict)

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
        given = tree.args
        for argument in (*given.args, *given.kwonlyargs):
            argument.annotation = None
        given.defaults, given.kw_defaults = [], [None] * len(given.kwonlyargs)
        self.tree = _Resolve(self, tree).visit(tree)
        self.schema.find_edits(self)

    def code(self, way: str, also: int = -1) -> CodeType:
        """The compiled copy: ``switch`` asks for the edit's number at each place, ``watch`` tells of each place."""
        if (way, also) not in self.codes:
            tree = Rewrite(self.at, way, (also,), not self.schema.host).visit(self.tree)
            self.codes[way, also] = compiled(tree, self.name)
        return self.codes[way, also]

    def made(self, way: str, space: dict[str, Any], also: int = -1) -> FunctionType:
        """The function in a namespace; ``also`` is an edit that it has for good."""
        made = FunctionType(self.code(way, also), space, self.name, self.function.__defaults__)
        made.__kwdefaults__ = self.function.__kwdefaults__
        return made

    @cached_property
    def kept(self) -> Callable[..., Any] | None:
        """The right function with its results kept, if it computes whole numbers alone: sums repeat them."""
        arguments = {argument.arg for argument in self.tree.args.args}
        if self.function.__module__ not in _WHOLE or "meta" in arguments:
            return None
        return lru_cache(MOST_KEPT, typed=True)(self.made("plain", self.schema.namespace))

    @cached_property
    def reach(self) -> frozenset[Copy]:
        """The function and all that it calls."""
        entries = [entry.copy for entry in self.schema.entries] if self is self.schema.kernel else []
        return frozenset((self,)).union(*(called.reach for called in (*self.calls, *entries)))


@dataclass(frozen=True, eq=False)
class Entry:
    """A place of the kernel that computes an address: the functions that it calls are its own, to be edited alone."""

    name: str
    copy: Copy
    line: int
    text: str


class KernelSchema:
    """All copies and edits of one kernel, which runs on single numbers, or of a function of the ``host``.

    ``instead``: what stands for functions that the kernel calls. ``lacking``: it is wrong, and edits make it right.
    """

    def __init__(
        self, kernel: Any, rows: Any, host: bool = False, instead: Mapping[Any, Any] = MappingProxyType({}),
        lacking: bool = False,
    ) -> None:  # fmt: skip
        self.names, self.host, self.instead, self.lacking = Names(rows), host, instead, lacking
        #: What stands for functions that are not edited.
        self.rest, self.leaves = ("plain", {}) if host else ("kept", LEAVES)
        self.copies: dict[FunctionType, Copy] = {}
        self.edits: list[KernelEdit] = []
        self.left = [0]
        #: What types of values places had while they were watched, and a counter of the values.
        self.watched: set[tuple[int, type]] = set()
        self.counter = count()
        self._selected: list[tuple[dict[str, Any], Copy]] = []
        self._also: KernelEdit | None = None
        self.namespace: dict[str, Any] = {
            "np": np if host else Scalars, **ADDED, "_edit": -1, "_left": self.left, "_watch": self._watch,
            "_Endless": EndlessError,
        }  # fmt: skip
        self.entries: list[Entry] = []
        self.top: FunctionType = getattr(kernel, "py_func", kernel)
        self.kernel = self.copy_of(self.top)
        #: Of each entry: the same namespace, with functions of its own.
        self.spaces = {entry: dict(self.namespace) for entry in self.entries}
        self._all(self.rest)

    def copy_of(self, function: FunctionType) -> Copy:
        """The copy of a function, made at first."""
        function = self.instead.get(function, function)
        if function not in self.copies:
            self.copies[function] = Copy(self, f"{function.__name__}__f{len(self.copies)}", function)
            self.copies[function].read()
        return self.copies[function]

    def find_edits(self, copy: Copy) -> None:
        """Number the edits of a function."""
        own = list[KernelEdit]()
        for node in ast.walk(copy.tree):
            for made in alternatives(node, copy.tree, self.names, copy.function, self.lacking):
                own.append(KernelEdit(len(self.edits) + len(own), copy, node, made))
        self.edits += own
        for edit in own:
            copy.at.setdefault(edit.old, []).append(edit)
        self.namespace.update(self.names.values)

    def _all(self, way: str) -> None:
        """Let every function of every namespace be of one kind."""
        for space in (self.namespace, *self.spaces.values()):
            for copy in self.copies.values():
                self._put(space, copy, way)

    def _put(self, space: dict[str, Any], copy: Copy, way: str) -> None:
        also = self._also
        kept = copy.kept if way == "kept" and (also is None or also.copy not in copy.reach) else None
        number = also.number if also is not None and also.copy is copy else -1
        space[copy.name] = kept or copy.made("plain" if way == "kept" else way, space, number)
        for entry, own in self.spaces.items():
            if own is space and entry.copy is copy:
                self.namespace[entry.name] = space[copy.name]

    def _watch(self, number: int, value: Any) -> Any:
        """Called for each place of a work item: a million times a second."""
        next(self.counter)
        self.watched.add((number, value.__class__))
        return value

    @property
    def seen(self) -> dict[int, int]:
        """What kinds of values places had while they were watched: 1 a float, 2 another."""
        found: dict[int, int] = {}
        for number, kind in self.watched:
            found[number] = found.get(number, 0) | (1 if issubclass(kind, float | np.floating) else 2)
        return found

    @property
    def places(self) -> int:
        """How many values were watched; being asked counts as one."""
        return next(self.counter)

    def select(
        self, edit: KernelEdit | None, entry: Entry | None = None, also: KernelEdit | None = None
    ) -> None:
        """Let the kernel have one edit, everywhere or where one entry leads to it; or none. ``also``: a second one."""
        for space, copy in self._selected:
            self._put(space, copy, self.rest)
            space["_edit"] = -1
        self._selected = []
        if also is not self._also:
            self._also = also
            self._all(self.rest)
        if edit is None:
            return
        spaces = [self.spaces[entry]] if entry is not None else [self.namespace, *self.spaces.values()]
        copies = () if self.host else self.copies.values()
        callers = [copy for copy in copies if copy.kept and edit.copy in copy.reach]
        self._selected = [
            (space, copy) for space in spaces for copy in {edit.copy: 0, **dict.fromkeys(callers)}
        ]
        for space, copy in self._selected:
            self._put(space, copy, "switch" if copy is edit.copy else "plain")
            space["_edit"] = edit.number

    def forget(self) -> None:
        """What was seen."""
        self.watched.clear()
        self.counter = count()

    def watching(self, on: bool) -> None:
        """Let all functions tell which places they reach, or none."""
        self._all("watch" if on else self.rest)

    def alone(self, edit: KernelEdit) -> list[Entry]:
        """The entries through which an edit may be made alone: there are other ways to its function as well."""
        found = [entry for entry in self.entries if edit.copy in entry.copy.reach]
        others = any(edit.copy in called.reach for called in self.kernel.calls)
        return found if len(found) + others > 1 else []

    @property
    def run(self) -> Callable[..., Any]:
        """The kernel as it is now."""
        found: Callable[..., Any] = self.namespace[self.kernel.name]
        return found

    @lru_cache(MOST_BUILT)  # noqa: B019 - schemas are kept as long as the process lives
    def built(
        self, edit: KernelEdit | None, entry: Entry | None = None, also: KernelEdit | None = None
    ) -> Callable[..., Any]:
        """The kernel with one edit or two, compiled. Only the edited functions and their callers are made again."""
        edits = [one for one in (edit, also) if one is not None]
        numbers, edited = [one.number for one in edits], {one.copy for one in edits} or {self.kernel}
        njit = jit.ready().njit(nogil=True, error_model="numpy", boundscheck=True)
        space = {**self.namespace, "np": np, **self.names.originals}
        space |= {name: njit(f) for name, f in ADDED.items()}
        space |= {copy.name: copy.function for copy in self.copies.values()}
        own = space if entry is None else dict(space)

        def add(where: dict[str, Any], copy: Copy) -> None:
            tree = Rewrite(copy.at, "compiled", numbers).visit(copy.tree)
            where[copy.name] = njit(FunctionType(compiled(tree, copy.name), where))

        for copy in self._callers(edited, self.kernel if entry is None else entry.copy):
            if copy is not self.kernel:
                add(own, copy)
        space |= {e.name: (own if entry in (e, None) else space)[e.copy.name] for e in self.entries}
        add(space, self.kernel)
        found: Callable[..., Any] = space[self.kernel.name]
        return found

    @cached_property
    def addresses(self) -> tuple[frozenset[ast.AST], frozenset[Copy], frozenset[str]]:
        """What the place of a word that is written depends on: nodes of the kernel, functions, entries."""
        tree, names, nodes = self.kernel.tree, set[str](), set[ast.AST]()
        stores = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "out"
        ]
        grown: list[ast.AST] = [node.slice for node in stores]
        while grown:
            nodes.update(each for node in grown for each in ast.walk(node))
            names = {node.id for node in nodes if isinstance(node, ast.Name)}
            grown = [
                value
                for node in ast.walk(tree)
                if (value := _set(node, names)) is not None and value not in nodes
            ]
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        called = [copy for copy in self.copies.values() if copy.name in names]
        called += [entry.copy for entry in self.entries if entry.name in names]
        return frozenset(nodes), frozenset[Copy]().union(*(copy.reach for copy in called)), frozenset(names)

    def moves(self, edit: KernelEdit, entry: Entry | None) -> bool:
        """Whether an edit may change the place of what is written."""
        nodes, copies, names = self.addresses
        if edit.copy is self.kernel:
            return edit.old in nodes
        return edit.copy in copies and (entry is None or entry.name in names)

    def _callers(self, copies: set[Copy], top: Copy) -> list[Copy]:
        """Functions and those through which another calls them, the innermost first; those that call others instead."""
        remade = copies | {
            self.copies[function] for function in self.instead.values() if function in self.copies
        }
        return sorted((at for at in top.reach if remade & at.reach), key=lambda at: len(at.reach))


@lru_cache(MOST_SCHEMAS)
def schema_of(
    op: str, rule: Requantization | None = None, out_scale: float = 0.0, lacking: bool = False
) -> KernelSchema:
    """The schema of an operator's kernel, which may requantize by another library's rule, or be ``lacking``."""
    kernel = kernel_of(op)
    instead = {}
    if rule is not None:
        instead = dict.fromkeys(FORMULAS.values(), function_of(rule, out_scale))
    return KernelSchema(kernel.run, (kernel.push, kernel.spec), instead=instead, lacking=lacking)


class _Resolve(ast.NodeTransformer):
    """Names of other modules become names of the schema's namespace; NumPy's functions stay."""

    def __init__(self, copy: Copy, tree: ast.FunctionDef) -> None:
        self.copy, self.names = copy, copy.schema.names
        code = copy.function.__code__
        stored = (
            node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )
        self.own = {*code.co_varnames, *code.co_cellvars, *(node.id for node in stored)}

    def value(self, node: ast.AST) -> Any:
        """What a name of the function's module or of one that it imports is; None if it is neither."""
        if isinstance(node, ast.Name) and node.id not in self.own:
            return self.copy.function.__globals__.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self.value(node.value)
            return None if base is None or base is np else getattr(base, node.attr, None)
        return None

    def called(self, function: Any, text: str) -> ast.Name:
        """The name of the copy of a function, which an author calls ``text``."""
        copy = self.copy.schema.copy_of(function)
        self.copy.calls.append(copy)
        self.names.texts[copy.name] = text
        return ast.Name(copy.name, ast.Load())

    def resolved(self, node: ast.AST) -> ast.AST | None:
        value = self.value(node)
        if value is None or value is np or isinstance(value, ModuleType):
            return None
        text, leaves = ast.unparse(node), self.copy.schema.leaves
        if isinstance(value, FunctionType):
            if value not in leaves and value.__module__.startswith("refsim.") and not value.__closure__:
                return ast.copy_location(self.called(value, text), node)
            name = self.names.of(text, value, leaves.get(value, value))
        else:
            name = self.names.of(text, value)
        return ast.copy_location(ast.Name(name, ast.Load()), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = self.value(node.func)
        schema = self.copy.schema
        if schema.host and isinstance(function, MethodType) and isinstance(node.func, ast.Attribute):
            node.args.insert(0, node.func.value)
            node.func = ast.copy_location(self.called(function.__func__, ast.unparse(node.func)), node.func)
            node.args = [self.visit(arg) for arg in node.args]
            return node
        if self.copy.function is schema.top and getattr(function, "__module__", "") == index.__name__:
            entry = f"{ast.unparse(node.func).replace('.', '_')}__e{len(schema.entries)}"
            text = ast.unparse(node)
            self.names.texts[entry] = ast.unparse(node.func)
            line = self.copy.first + node.lineno - 1
            schema.entries.append(Entry(entry, schema.copy_of(function), line, text))
            node.args = [self.visit(arg) for arg in node.args]
            node.func = ast.copy_location(ast.Name(entry, ast.Load()), node.func)
            return node
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.resolved(node) or node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self.resolved(node) or self.generic_visit(node)


def _set(node: ast.AST, names: set[str]) -> ast.AST | None:
    """What a statement sets one of these variables to, if it does."""
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AugAssign)
        else []
    )
    held = {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return node.value if held & names and isinstance(node, ast.Assign | ast.AugAssign) else None
