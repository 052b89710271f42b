"""Edits of places: other coordinates the fastest, planes and rows in one, another tensor's words, the nearest edge."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

from refsim.bytediff.search.site import Alternative, KernelSite, times, value_of
from refsim.core import layout


def joined(site: KernelSite) -> Iterator[Alternative]:
    """``((n * C + c) * H + h) * W + w`` with another coordinate than w as the fastest."""
    *found, (slowest, _) = _summed(site.node)
    images = _images(site, found[-1][1]) if found else None
    moved = [*found, (slowest, images)] if images is not None else found
    if len(moved) < 2:
        return
    for order in permutations(moved):
        if order[0] is not found[0]:
            above = () if moved is not found else (slowest,)
            made = _joined([*order, (slowest if moved is found else ast.Constant(0), None)])
            right, wrong = ([site.names.text(digit) for digit, _ in row] for row in (moved, order))
            said = ", ".join((*map(site.names.text, above), *reversed(wrong)))
            yield Alternative(made, _kind(right, wrong), 2, f"the order {said}")


def split(site: KernelSite) -> Iterator[Alternative]:
    """``w, rest = rest % W, rest // W`` and so on, of a place that counts in another order."""
    links = _chain(site.tree, site.node)
    for digit, rest, said in _together(site, links[0]) if links else ():
        values = [digit if isinstance(value.op, ast.Mod) else rest for value in site.node.elts]
        yield Alternative(ast.Tuple(values, ast.Load()), "digits", 3, said)
    if not links:
        return
    whole, sizes, named = links[0].whole, [link.size for link in links], [link.digit for link in links]
    if (images := _images(site, sizes[-1])) is not None:
        sizes.append(images)
        named.append(links[-1].rest)
    for order in permutations(range(len(sizes))):
        if order[0] == 0:
            continue
        rest, digits = whole, dict[int, ast.expr]()
        for k in order:
            digits[k] = ast.BinOp(rest, ast.Mod(), sizes[k])
            rest = ast.BinOp(rest, ast.FloorDiv(), sizes[k])
        place = _joined([*((digits[k], sizes[k]) for k in range(len(sizes))), (rest, None)])
        values = [ast.BinOp(place, value.op, value.right) for value in site.node.elts]
        wrong = [named[k] for k in order]
        said = f"the order {', '.join(reversed(wrong))}"
        yield Alternative(ast.Tuple(values, ast.Load()), _kind(named, wrong), 3, said)


def hoisted(site: KernelSite) -> Iterator[Alternative]:
    """An address taken before a part of a coordinate is added, which then counts words."""
    if site.called(site.node) not in ("buf_idx", "word_idx"):
        return
    for at, place in enumerate(site.node.args[3:], 3):
        place, four = value_of(site, place), None
        if isinstance(place, ast.BinOp) and isinstance(place.op, ast.Mult):
            four, place = place.left, value_of(site, place.right)
        if isinstance(place, ast.BinOp) and isinstance(place.op, ast.Add):
            for first, added in ((place.left, place.right), (place.right, place.left)):
                given = list(site.node.args)
                given[at] = first if four is None else times(four, first)
                made = ast.BinOp(ast.Call(site.node.func, given, []), ast.Add(), added)
                said = f"{site.names.text(added)} added to the address, not to the coordinate"
                yield Alternative(made, "arguments exchanged", 2, said)


def behind(site: KernelSite) -> Iterator[Alternative]:
    """The place of a lane in a product, as that of the word's first lane with the lane's number added behind."""
    factors, node = list[ast.expr](), site.node
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        factors.append(node.right)
        node = node.left
    if factors and (base := _first_lanes(site.tree).get(ast.unparse(node))) is not None:
        first: ast.expr = base
        for factor in reversed(factors):
            first = times(first, factor)
        made = ast.BinOp(first, ast.Add(), ast.BinOp(node, ast.Sub(), base))
        said = f"a lane's number added behind {site.names.text(first)}"
        yield Alternative(made, "operand", 2, said)


@lru_cache(64)
def _first_lanes(tree: ast.FunctionDef) -> dict[str, ast.expr]:
    """What a lane's coordinates are called -> those of the first lane of its word."""
    found = dict[str, ast.expr]()
    for node in ast.walk(tree):
        made = node.value if isinstance(node, ast.Assign) else None
        if isinstance(made, ast.Call) and "lane_coord" in ast.unparse(made.func):
            (lanes,) = node.targets  # type: ignore[attr-defined]
            found |= dict(zip(map(ast.unparse, lanes.elts), made.args[2:], strict=False))
    return found


def other_tensor(site: KernelSite) -> Iterator[Alternative]:
    """The index of a tensor, with the words and the layout of another one."""
    if site.called(site.node) not in ("buf_idx", "word_idx"):
        return
    meta, _, hashed, *places = site.node.args
    names = {node.id for node in ast.walk(site.tree) if isinstance(node, ast.Name)}
    for other in sorted(name for name in names if name.endswith("_hash") and name != ast.unparse(hashed)):
        word = other.removesuffix("_hash").upper()
        if word in site.function.__globals__:
            at = site.names.ref(word, site.function.__globals__[word])
            given = [meta, at, ast.Name(other, ast.Load()), *places]
            yield Alternative(ast.Call(site.node.func, given, []), "arguments exchanged", 2)


def _kind(right: Sequence[str], wrong: Sequence[str]) -> str:
    """Row and column exchanged alone are as anywhere else."""
    moved = [a for a, b in zip(right, wrong, strict=True) if a != b]
    return "values exchanged" if len(moved) == 2 and {name[-1] for name in moved} == set("hw") else "digits"


def _images(site: KernelSite, channels: ast.expr | None) -> ast.expr | None:
    """How many images a tensor has, where it is known how many channels."""
    if not isinstance(channels, ast.Subscript):
        return None
    node = channels.slice
    if not (isinstance(node, ast.BinOp) and site.names.text(node.right).rpartition(".")[2] == "C"):
        return None
    at = ast.BinOp(node.left, node.op, site.names.ref("N", layout.N))
    return ast.Subscript(channels.value, at, ast.Load())


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
