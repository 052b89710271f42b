"""Rules as text: a pattern of what a right kernel has, and what a wrong one has there instead.

``_x`` stands for an expression and ``_f(...)`` for a function, the same one wherever it occurs; ``_zp`` for what is
called a zero point, ``_n`` for a variable or an element; ``*_r`` for all further arguments; ``_`` for the whole, and
``_into`` for what it is added to. Other names stand for themselves, functions without their module unless that is
NumPy. ``(_x := pattern)`` is an expression, or a variable last set to one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from refsim.bytediff.search.site import Alternative, KernelSite, cloned, value_of

_STANDS = re.compile("_[a-z]{1,2}")
#: What patterns are listed under that fit any kind of node.
ANY = "any"
#: What a row says of the right value -> `Alternative.wants`.
_WANTS = {"float": 1, "whole": 2}


@dataclass(frozen=True)
class Pattern:
    """One row of a table: what is sought, and what may stand there instead, with words where its text is long.

    ``known`` are arguments that the function must have, ``roles`` what the node must be (`KernelSite.roles`).
    """

    kind: str
    wants: int
    known: frozenset[str]
    roles: frozenset[str]
    sought: ast.expr
    instead: tuple[tuple[ast.expr, str], ...]

    @classmethod
    def of(cls, row: str) -> Iterator[Pattern]:
        """A row ``kind, float or whole, with argument, as role: pattern ; ... -> alternative # in words ; ...``."""
        about, rule = row.split(": ", 1)
        sought, instead = rule.split(" -> ")
        kind, *more = about.split(", ")
        wants = next((_WANTS[word] for word in more if word in _WANTS), 3)
        known, roles = (
            frozenset(word.removeprefix(of) for word in more if word.startswith(of))
            for of in ("with ", "as ")
        )
        told = (each.partition(" # ") for each in instead.split(" ; "))
        alternatives = tuple((_parsed(new), words) for new, _, words in told)
        yield from (
            cls(kind, wants, known, roles, _parsed(each), alternatives) for each in sought.split(" ; ")
        )

    @property
    def roots(self) -> tuple[str, ...]:
        """What nodes that fit are: kinds of node, or the function of a call."""
        if isinstance(self.sought, ast.NamedExpr):
            return _root(self.sought.value), "Name"
        return (_root(self.sought),)

    def alternatives(self, site: KernelSite, words: Mapping[str, int]) -> Iterator[Alternative]:
        """What may stand for a node; ``words`` are names of other modules that the table uses."""
        held: dict[str, Any] = {}
        if self.known and not self.known <= {argument.arg for argument in site.tree.args.args}:
            return
        if self.roles and not self.roles <= {*site.roles}:
            return
        if _fits(self.sought, site.node, site, held):
            into = ast.Name(site.parent.target.id, ast.Load()) if "added" in self.roles else None
            filled = _Filled({"_": site.node, "_into": into, **held}, site, words)
            for made, said in self.instead:
                yield Alternative(filled.visit(cloned(made)), self.kind, self.wants, said)


def _root(sought: ast.expr) -> str:
    if isinstance(sought, ast.Name) and _STANDS.fullmatch(sought.id):
        return ANY
    func = ast.unparse(sought.func) if isinstance(sought, ast.Call) else "_a"
    return type(sought).__name__ if _STANDS.fullmatch(func) else func


def _parsed(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


def _fits(pattern: Any, node: Any, site: KernelSite, held: dict[str, Any]) -> bool:
    """Whether a node is of a pattern; what the names of the pattern stand for is added to those that are ``held``."""
    match pattern:
        case ast.Name(id=name) if _STANDS.fullmatch(name):
            return _holds(name, node, site, held)
        case ast.Name() | ast.Attribute():
            named = isinstance(node, ast.Name | ast.Attribute)
            return named and site.names.text(node) == ast.unparse(pattern)
        case ast.NamedExpr(target=ast.Name(id=name), value=value):
            return _holds(name, node, site, held) and _fits(value, value_of(site, node), site, held)
        case ast.Call(func=func, args=[*args, ast.Starred(value=ast.Name(id=rest))]):
            if not _calls(func, node, site, held) or len(node.args) < len(args):
                return False
            held[rest] = node.args[len(args) :]
            return _all_fit(args, node.args[: len(args)], site, held)
        case ast.Call(func=func, args=args):
            return _calls(func, node, site, held) and _all_fit(args, node.args, site, held)
    if type(pattern) is not type(node) or not isinstance(pattern, ast.AST):
        return bool(pattern == node)
    if isinstance(pattern, ast.Subscript) and isinstance(node.slice, ast.Slice | ast.Tuple):
        return False
    parts = ((part, getattr(node, field)) for field, part in ast.iter_fields(pattern))
    return all(
        (_all_fit if isinstance(part, list) else _fits)(part, other, site, held) for part, other in parts
    )


def _all_fit(patterns: list[Any], nodes: list[Any], site: KernelSite, held: dict[str, Any]) -> bool:
    return len(patterns) == len(nodes) and all(
        _fits(*pair, site, held) for pair in zip(patterns, nodes, strict=True)
    )


def _calls(func: ast.expr, node: Any, site: KernelSite, held: dict[str, Any]) -> bool:
    """Whether a node calls a function, which alternatives then call by its name here."""
    if not isinstance(node, ast.Call) or node.keywords:
        return False
    name = ast.unparse(func)
    if _STANDS.fullmatch(name):
        return _holds(name, node.func, site, held)
    held[name] = node.func
    return site.called(node) == name


def _holds(name: str, node: ast.expr, site: KernelSite, held: dict[str, Any]) -> bool:
    """Whether a name stands for a node: it stood for nothing else before."""
    if name == "_zp" and not site.names.text(node).lower().endswith(("zp", "zp]", "zero")):
        return False
    if name == "_n" and not isinstance(node, ast.Name | ast.Subscript):
        return False
    if isinstance(node, ast.Starred):
        return False
    before = held.setdefault(name, node)
    return before is node or ast.dump(before) == ast.dump(node)


class _Filled(ast.NodeTransformer):
    """An alternative with what its names stand for."""

    def __init__(self, held: Mapping[str, Any], site: KernelSite, words: Mapping[str, int]) -> None:
        self.held, self.site, self.words = held, site, words

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.words:
            return self.site.names.ref(node.id, self.words[node.id])
        found: ast.AST = self.held.get(node.id, node)
        return found

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        *args, last = node.args or [ast.Constant(None)]
        if isinstance(last, ast.Starred) and isinstance(last.value, ast.Name):
            node.args = [*(self.visit(arg) for arg in args), *self.held[last.value.id]]
            node.func = self.visit(node.func)
            return node
        return self.generic_visit(node)
