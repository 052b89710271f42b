"""Edits of calls: another function, other arguments, another order of the same products, other ends of a loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import combinations, permutations

from refsim.bytediff.search.expressions import loops
from refsim.bytediff.search.site import Alternative, KernelSite, Renamed, call, cloned, similar, times
from refsim.bytediff.search.sums import products, relu_first, scaled_first
from refsim.core import lanes

#: Function -> what might be called instead of it with the same arguments; "" is its first argument alone.
_CALLED: dict[str, tuple[str, ...]] = {
    "np.maximum": ("", "np.minimum"), "np.minimum": ("", "np.maximum"), "np.rint": (
        "np.trunc", "np.floor", "edit_half_up", "edit_half_away", "edit_half_cast", "np.ceil", ""
    ),
    "np.floor": ("np.rint", "np.trunc"), "np.trunc": ("np.rint", "np.floor"), "np.abs": ("",),
    "round_half": (
        "np.trunc", "np.floor", "edit_half_up", "edit_half_away", "edit_half_cast", "np.ceil", "np.rint", ""
    ),
    "wrap32": ("", "edit_wrapped16", "edit_saturated16"), "flush": ("",), "bounded": ("",),
    "min": ("max",), "max": ("min",), "clamp": ("",),
}  # fmt: skip
#: Of calls to these, arguments that no name tells to be of one kind are exchanged as well.
_EXCHANGED = {
    "mul_add": ((1, 2), (0, 2)), "requant": ((0, 1), (1, 2)), "requant_added": ((0, 1), (1, 2)), "lane": ((0, 1),),
    "insert": ((0, 1),),
    **dict.fromkeys(("buf_idx", "word_idx"), tuple(combinations(range(3, 7), 2))),
}  # fmt: skip

#: The usual slope of a relu that leaks.
LEAK = 0.01
#: What a wrong kernel clamps to: unsigned bytes, or as many on both sides of 0.
_BOUNDS = ((0, 255), (-127, 127))
#: How a signed byte becomes an unsigned one: as it is read, or by what is added and not taken away again.
_TO_UNSIGNED = ((ast.BitAnd(), 255), (ast.Add(), 128))


def called(site: KernelSite) -> Iterator[Alternative]:
    node: ast.Call = site.node
    name = site.called(node)
    for other in _CALLED.get(name, ()):
        if not other:
            yield from (
                Alternative(value, "call") for value in node.args[: 2 if name.startswith("np.m") else 1]
            )
            continue
        count = 1 if name == "round_half" else len(node.args)
        func: ast.expr = ast.parse(other, mode="eval").body
        yield Alternative(ast.Call(func, node.args[:count], []), "call")
    if name in ("np.maximum", "np.minimum") and len(node.args) == 2:
        bounds = [call("np.float32", ast.Constant(0.0)), *_real_zero(site)]
        yield from (Alternative(ast.Call(node.func, [node.args[0], b], []), "bound", 1) for b in bounds)
        if name == "np.maximum" and ast.unparse(node.args[1]).endswith("(0.0)"):
            highest = call("np.float32", ast.Constant(6.0))
            yield Alternative(call("np.minimum", node, highest), "bound", 1)
            leaking = times(node.args[0], call("np.float32", ast.Constant(LEAK)))
            yield Alternative(ast.Call(node.func, [node.args[0], leaking], []), "bound", 1)
    if name in ("lane", "insert"):
        word, lane, *rest = node.args
        turned = (ast.BinOp(ast.Constant(3), ast.Sub(), lane), *(_other_lane(lane, by) for by in (1, 2)))
        yield from (Alternative(ast.Call(node.func, [word, other, *rest], []), "lanes") for other in turned)
    if name == "lane":
        repeated = (
            _repeated(lane, at, op)
            for at, op in ((3, ast.Sub()), (0, ast.Add()), (1, ast.Sub()), (2, ast.Add()))
        )
        yield from (Alternative(ast.Call(node.func, [word, other], []), "repeated", 2) for other in repeated)
        yield from (Alternative(ast.BinOp(node, op, ast.Constant(by)), "unsigned") for op, by in _TO_UNSIGNED)
        for other in loops(site.tree, node):
            own = ast.Call(node.func, [node.args[0], ast.Name(other, ast.Load())], [])
            yield Alternative(own, "lanes")
    if name in ("requant", "requant_added", "to_int8", "to_int8_added", "bounded"):
        yield Alternative(call("max", node, ast.Constant(0)), "relu")
        if name == "requant_added":  # what is not positive is not written
            positive = ast.Compare(node.args[0], [ast.Gt()], [ast.Constant(0)])
            yield Alternative(ast.IfExp(positive, node, ast.Constant(0)), "relu")
        zp = next(
            (arg for arg in node.args if site.names.text(arg).lower().endswith(("zp", "zp]", "zero"))), None
        )
        if zp is not None:
            yield Alternative(call("max", node, zp), "relu")
            yield Alternative(call("max", node, ast.BinOp(zp, ast.Add(), zp)), "relu")
    whole = node.args[0] if name == "f32" else None
    inner = whole.args[0] if isinstance(whole, ast.Call) and site.called(whole) == "wrap32" else None
    if isinstance(inner, ast.BinOp) and isinstance(inner.right, ast.BinOp):
        parts = [
            ast.Call(node.func, [part], []) for part in (inner.left, inner.right.left, inner.right.right)
        ]
        taken = ast.BinOp(parts[0], inner.op, ast.BinOp(parts[1], inner.right.op, parts[2]))
        yield Alternative(taken, "folded", 1)
    if name in ("f32", "requant", "mul_add", "np.float32", "as_f32"):
        yield Alternative(call("edit_half", node), "type", 1)
    if name == "clamp":
        yield from _clamped(site)
    if name == "mul_add":
        yield from products(site)
    if name == "_scaled":
        yield from scaled_first(site)
    if name == "_finish":
        yield from relu_first(site)
    if name == "range":
        yield from _ranges(node)


def _clamped(site: KernelSite) -> Iterator[Alternative]:
    """Other bounds; or the number and its zero point clamped apart, twice, or not at all."""
    node: ast.Call = site.node
    for bounds in _BOUNDS:
        yield Alternative(ast.Call(node.func, [node.args[0], *map(ast.Constant, bounds)], []), "constant")
    added = node.args[0].args[0] if site.called(node.args[0]) == "wrap32" else node.args[0]  # type: ignore[attr-defined]
    if not (isinstance(added, ast.BinOp) and isinstance(added.op, ast.Add)):
        return
    zp = added.right
    yield Alternative(ast.BinOp(node, ast.Sub(), zp), "subtracted")
    if any(argument.arg == "y" for argument in site.tree.args.args):
        total = ast.BinOp(ast.Name("y", ast.Load()), ast.Add(), call("np.float32", zp))
        rounded = call("np.int32", call("np.rint", total))
        yield Alternative(ast.Call(node.func, [rounded, *node.args[1:]], []), "tie")
    first = ast.Call(node.func, [added.left, *node.args[1:]], [])
    both = ast.Call(node.func, [ast.BinOp(first, ast.Add(), zp), *node.args[1:]], [])
    yield Alternative(both, "clamped twice")
    for at in (1, 2):  # one bound is that of the number without the zero point
        moved = list(node.args)
        moved[at] = ast.BinOp(moved[at], ast.Add(), zp)
        yield Alternative(ast.Call(node.func, moved, []), "constant")


def lanes_alike(site: KernelSite) -> Iterator[Alternative]:
    """What a function returns, with all lanes of one word as unsigned bytes; or a byte without its sign."""
    inner = site.node.left if isinstance(site.node, ast.BinOp) and isinstance(site.node.op, ast.Sub) else None
    if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.BitXor):  # (byte ^ 128) - 128
        yield Alternative(inner.left, "unsigned")
    if not any(isinstance(node, ast.Return) and node.value is site.node for node in ast.walk(site.tree)):
        return
    called = (node for node in ast.walk(site.node) if isinstance(node, ast.Call))
    words = [site.names.text(node.args[0]) for node in called if site.called(node) == "lane"]
    for word in dict.fromkeys(words):
        if words.count(word) > 1:
            for op, by in _TO_UNSIGNED:
                yield Alternative(_Unsigned(site, word, op, by).visit(cloned(site.node)), "unsigned")

    for a, b in permutations(dict.fromkeys(words), 2):
        yield Alternative(Renamed({a: b}).visit(cloned(site.node)), "squared")


def carried(site: KernelSite) -> Iterator[Alternative]:
    """Bytes put together as digits. That gives a right kernel the same word, but what is no int8 carries over."""
    if site.function is lanes.insert and isinstance(site.node.op, ast.BitOr):
        given = [ast.Name(argument.arg, ast.Load()) for argument in site.tree.args.args]
        yield Alternative(call("edit_carried", *given), "carry", 2, "bytes that carry over")


class _Unsigned(ast.NodeTransformer):
    def __init__(self, site: KernelSite, word: str, op: ast.operator, by: int) -> None:
        self.site, self.word, self.op, self.by = site, word, op, by

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if self.site.called(node) != "lane" or self.site.names.text(node.args[0]) != self.word:
            return self.generic_visit(node)
        return ast.BinOp(node, self.op, ast.Constant(self.by))


def _real_zero(site: KernelSite) -> Iterator[ast.expr]:
    """What the byte 0, or twice the zero point, stands for, where a function knows this with a scale or its inverse."""
    names = [argument.arg for argument in site.tree.args.args]
    for zero in [name for name in names if name.endswith("zp")][:1]:
        zp = ast.Name(zero, ast.Load())
        for bound in (call("np.float32", ast.UnaryOp(ast.USub(), zp)), call("np.float32", zp)):
            for name in names:
                if name == "inv":
                    yield ast.BinOp(bound, ast.Div(), ast.Name(name, ast.Load()))
                elif name.endswith("scale"):
                    yield times(bound, ast.Name(name, ast.Load()))


def _other_lane(lane: ast.expr, by: int) -> ast.expr:
    return ast.BinOp(lane, ast.BitXor(), ast.Constant(by))


def _repeated(lane: ast.expr, at: int, op: ast.operator) -> ast.expr:
    """The lane beside it in the place of one lane."""
    return ast.BinOp(lane, op, ast.Compare(lane, [ast.Eq()], [ast.Constant(at)]))


def _ranges(node: ast.Call) -> Iterator[Alternative]:
    """A loop a step short or long, begun a step late, of its last step alone, or without what fills no vector."""
    *first, last = node.args[:2]
    begin: ast.expr = first[0] if first else ast.Constant(0)
    one = ast.Constant(1)
    ends = [ast.BinOp(last, ast.Sub(), one), ast.BinOp(last, ast.Add(), one)]
    if len(node.args) == 3:
        step = node.args[2]
        whole = ast.BinOp(last, ast.Sub(), ast.BinOp(last, ast.Mod(), step))
        for start, end in ((step, last), (begin, whole), (begin, ast.BinOp(last, ast.Sub(), step))):
            yield Alternative(ast.Call(node.func, [start, end, step], []), "loop")
    if len(node.args) <= 2:
        yield from (Alternative(ast.Call(node.func, [*first, end], []), "loop") for end in ends)
        yield Alternative(ast.Call(node.func, [ast.BinOp(begin, ast.Add(), one), last], []), "loop")
        length = ast.BinOp(last, ast.Sub(), begin) if first else last
        for size in (2, 4, 8, 16):
            whole = ast.BinOp(
                ast.BinOp(length, ast.FloorDiv(), ast.Constant(size)), ast.Mult(), ast.Constant(size)
            )
            end = ast.BinOp(begin, ast.Add(), whole) if first else whole
            yield Alternative(ast.Call(node.func, [*first, end], []), "loop")
        turn = ast.Call(node.func, [ast.BinOp(last, ast.Sub(), one), last], [])
        yield Alternative(turn, "last turn")
        backwards = ast.Call(
            node.func, [ast.BinOp(last, ast.Sub(), one), ast.BinOp(begin, ast.Sub(), one)], []
        )
        backwards.args.append(ast.Constant(-1))
        yield Alternative(backwards, "loop")


def arguments(site: KernelSite) -> Iterator[Alternative]:
    """Two arguments of one kind exchanged."""
    node: ast.Call = site.node
    texts = [site.names.text(arg) for arg in node.args]
    pairs = [
        (i, j) for i in range(len(texts)) for j in range(i + 1, len(texts))
        if similar(_core(texts[i]), _core(texts[j]))
    ]  # fmt: skip
    for i, j in (*pairs, *_EXCHANGED.get(site.called(node), ())):
        args = list(node.args)
        args[i], args[j] = args[j], args[i]
        yield Alternative(ast.Call(node.func, args, []), "arguments exchanged")


def _core(text: str) -> str:
    """The name in an argument: ``push[A_ZP]`` is A_ZP, ``4 * c4`` is c."""
    name = text.removeprefix("push[").rstrip("]").rpartition(" ")[2]
    return name.rstrip("0123456789") or name
