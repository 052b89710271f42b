"""A function's tree rewritten: its edits selected by a number, its places told, or one edit made for good."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from types import CodeType
from typing import Any, Protocol

from refsim.bytediff.search.site import Alternative

#: A compiled copy gives up after so many steps of one loop.
MOST_STEPS = 1 << 22


class Numbered(Protocol):
    """An edit as far as other modules know it: its number, the node, and what stands for it."""

    @property
    def number(self) -> int: ...

    @property
    def old(self) -> ast.AST: ...

    @property
    def made(self) -> Alternative: ...


def compiled(tree: ast.AST, name: str) -> CodeType:
    module = ast.fix_missing_locations(ast.Module([tree], []))  # type: ignore[list-item]
    made: dict[str, Any] = {}
    exec(compile(module, f"<edited {name}>", "exec"), made)
    code: CodeType = made[name].__code__
    return code


class Rewrite(ast.NodeTransformer):
    """A copy of a tree: ``switch`` asks for the number at each place, ``watch`` tells of each, ``plain`` does neither.

    ``compiled`` asks for none. The edits ``made`` are there for good. ``like_compiled``: it gives what compiled code
    gives where plain Python has another number or an error.
    """

    def __init__(
        self,
        at: Mapping[ast.AST, Sequence[Numbered]],
        way: str,
        made: Collection[int] = (),
        like_compiled: bool = False,
    ) -> None:
        self.at, self.way, self.made, self.like_compiled, self.names = at, way, made, like_compiled, 0

    def visit(self, node: ast.AST) -> Any:
        new = self.rebuilt(node)
        edits = self.at.get(node)
        if isinstance(node, ast.For | ast.While):
            new = self.counted(new)
        if self.like_compiled and isinstance(node, ast.BinOp):
            new = self.as_compiled(new)
        if edits:
            new = self.selected(new, edits) if isinstance(node, ast.expr) else self.left_out(new, edits)
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

    def selected(self, new: ast.expr, edits: Sequence[Numbered]) -> ast.expr:
        if self.way == "watch":
            return ast.Call(ast.Name("_watch", ast.Load()), [ast.Constant(edits[0].number), new], [])
        for edit in edits if self.made else ():
            if edit.number in self.made:
                return edit.made.new  # type: ignore[return-value]
        if self.way != "switch":
            return new
        ends = [at for at, (a, b) in enumerate(pairwise(edits), 1) if b.number != a.number + 1]
        found: ast.expr = new
        for begin, end in pairwise((0, *ends, len(edits))):  # neighbouring numbers are asked for at once
            chain: Any = edits[end - 1].made.new
            for edit in reversed(edits[begin : end - 1]):
                chain = ast.IfExp(_number(ast.Eq(), edit.number), edit.made.new, chain)  # type: ignore[arg-type]
            last = [ast.Name("_edit", ast.Load()), ast.Constant(edits[end - 1].number)]
            within = ast.Compare(ast.Constant(edits[begin].number), [ast.LtE(), ast.LtE()], last)
            found = ast.IfExp(within, chain, found)
        return ast.copy_location(found, new)

    def left_out(self, new: Any, edits: Sequence[Numbered]) -> Any:
        """A statement, unless its edit is selected."""
        body = new if isinstance(new, list) else [new]
        if any(one.number in self.made for one in edits):
            return ast.Pass()
        if self.way == "watch":
            call = ast.Call(
                ast.Name("_watch", ast.Load()), [ast.Constant(edits[0].number), ast.Constant(0)], []
            )
            return [ast.Expr(call), *body]
        if self.way != "switch":
            return new
        for one in edits:
            body = [ast.If(_number(ast.NotEq(), one.number), body, [])]
        return body[0]

    def counted(self, loop: Any) -> Any:
        """A loop that counts its steps."""
        if self.way != "compiled":
            loop.body = [*_COUNT, *loop.body]
            return loop
        if "ndindex" in ast.unparse(loop.iter if isinstance(loop, ast.For) else loop.test):
            return loop
        self.names += 1
        name = f"_steps{self.names}"
        source = f"{name} += 1\nif {name} > {MOST_STEPS}:\n    raise RuntimeError"
        loop.body = [*ast.parse(source).body, *loop.body]
        return [*ast.parse(f"{name} = 0").body, loop]

    def as_compiled(self, node: ast.BinOp) -> ast.expr:
        """Shifted by 64 bits less where that is possible; divided by 0, a whole number is 0."""
        if isinstance(node.op, ast.LShift | ast.RShift):
            return ast.BinOp(node.left, node.op, ast.BinOp(node.right, ast.BitAnd(), ast.Constant(63)))
        if self.way != "switch" or not isinstance(node.op, ast.FloorDiv | ast.Mod):
            return node  # a launch with a stride of 0 is worth no trial
        if isinstance(node.right, ast.Constant):
            return node
        self.names += 1
        name = f"_by{self.names}"
        by = ast.NamedExpr(ast.Name(name, ast.Store()), node.right)
        return ast.IfExp(by, ast.BinOp(node.left, node.op, ast.Name(name, ast.Load())), ast.Constant(0))


_COUNT = ast.parse("_left[0] -= 1\nif _left[0] < 0:\n    raise _Endless").body


def _number(how: ast.cmpop, number: int) -> ast.Compare:
    return ast.Compare(ast.Name("_edit", ast.Load()), [how], [ast.Constant(number)])
