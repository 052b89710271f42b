"""Edits of places that count several coordinates at once: the same coordinates with another one as the fastest."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

from refsim.bytediff.search.expressions import value_of
from refsim.bytediff.search.site import Alternative, KernelSite, times


def joined(site: KernelSite) -> Iterator[Alternative]:
    """``((n * C + c) * H + h) * W + w`` with another coordinate than w as the fastest."""
    found = list(_summed(site.node))
    for order in permutations(found[:-1]) if len(found) > 2 else ():
        if order[0] is not found[0]:
            made = _joined([*order, found[-1]])
            said = ", ".join(site.names.text(digit) for digit, _ in (found[-1], *reversed(order)))
            yield Alternative(made, "digits", 2, f"the order {said}")


def split(site: KernelSite) -> Iterator[Alternative]:
    """``w, rest = rest % W, rest // W`` and so on, of a place that counts in another order."""
    links = _chain(site.tree, site.node)
    for digit, rest, said in _together(site, links[0]) if links else ():
        values = [digit if isinstance(value.op, ast.Mod) else rest for value in site.node.elts]
        yield Alternative(ast.Tuple(values, ast.Load()), "digits", 3, said)
    if len(links) < 2:
        return
    whole, sizes = links[0].whole, [link.size for link in links]
    for order in permutations(range(len(links))):
        if order[0] == 0:
            continue
        rest, digits = whole, dict[int, ast.expr]()
        for k in order:
            digits[k] = ast.BinOp(rest, ast.Mod(), sizes[k])
            rest = ast.BinOp(rest, ast.FloorDiv(), sizes[k])
        place = _joined([*((digits[k], sizes[k]) for k in range(len(links))), (rest, None)])
        values = [ast.BinOp(place, value.op, value.right) for value in site.node.elts]
        said = f"the order {', '.join(links[k].digit for k in reversed(order))}"
        yield Alternative(ast.Tuple(values, ast.Load()), "digits", 3, said)


def _together(site: KernelSite, link: _Split) -> Iterator[tuple[ast.expr, ast.expr, str]]:
    """(digit, rest, in words) of a place that is not split, or of one that is split before something is added."""
    yield link.whole, ast.Constant(0), f"no {link.rest}"
    whole = value_of(site, link.whole)
    if isinstance(whole, ast.BinOp) and isinstance(whole.op, ast.Add):
        first, added = whole.left, whole.right
        digit = ast.BinOp(ast.BinOp(first, ast.Mod(), link.size), ast.Add(), added)
        rest = ast.BinOp(first, ast.FloorDiv(), link.size)
        yield digit, rest, f"{site.names.text(added)} added to {link.digit} alone"


def _summed(node: ast.expr) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """The digits of a place, the fastest first."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        above, digit = node.left, node.right
        if isinstance(above, ast.BinOp) and isinstance(above.op, ast.Mult):
            yield digit, above.right
            yield from _summed(above.left)
            return
    yield node, None


def _joined(digits: Sequence[tuple[ast.expr, ast.expr | None]]) -> ast.expr:
    """The place that digits are of, the fastest first."""
    (digit, size), *slower = digits
    return digit if size is None else ast.BinOp(times(_joined(slower), size), ast.Add(), digit)


@dataclass(frozen=True)
class _Split:
    """``digit, rest = whole % size, whole // size``, in either order."""

    values: ast.Tuple
    whole: ast.expr
    size: ast.expr
    digit: str
    rest: str


@lru_cache(256)
def _splits(tree: ast.FunctionDef) -> tuple[_Split, ...]:
    """The statements of a function that split a place, in order."""
    found = list[_Split]()
    for node in ast.walk(tree):
        values, names = (node.value, node.targets[0]) if isinstance(node, ast.Assign) else (None, None)
        if not (isinstance(values, ast.Tuple) and isinstance(names, ast.Tuple)):
            continue
        parts = [value for value in values.elts if isinstance(value, ast.BinOp)]
        named = {type(part.op): ast.unparse(name) for part, name in zip(parts, names.elts, strict=False)}
        same = {(ast.unparse(part.left), ast.unparse(part.right)) for part in parts}
        if len(values.elts) == 2 and {*named} == {ast.Mod, ast.FloorDiv} and len(same) == 1:
            found.append(_Split(values, parts[0].left, parts[0].right, named[ast.Mod], named[ast.FloorDiv]))
    return tuple(sorted(found, key=lambda row: row.values.lineno))


def _chain(tree: ast.FunctionDef, first: ast.Tuple) -> list[_Split]:
    """The splits from a statement on, each of what the one before left."""
    found = list[_Split]()
    for row in _splits(tree):
        if row.values is first or (found and ast.unparse(row.whole) == found[-1].rest):
            found.append(row)
    return found
