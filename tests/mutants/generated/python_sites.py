"""Changes of Python sources: emulated kernels, emitters of native kernels, launches, plans."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from mutants.generated.change import Change
from mutants.generated.words import COMMUTE, NOTHING, exchanged, other_numbers

_OPERATORS: dict[type[ast.operator], tuple[str, tuple[str, ...]]] = {
    ast.Add: ("+", ("-",)),
    ast.Sub: ("-", ("+",)),
    ast.Mult: ("*", ("+",)),
    ast.FloorDiv: ("//", ("*", "%")),
    ast.Div: ("/", ("*",)),
    ast.Mod: ("%", ("//",)),
    ast.LShift: ("<<", (">>",)),
    ast.RShift: (">>", ("<<",)),
    ast.BitAnd: ("&", ("|",)),
    ast.BitOr: ("|", ("&",)),  # parts that are put together share no bit, and ^ would do as well
    ast.BitXor: ("^", ("|",)),
}
_COMPARISONS: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">")),
    ast.LtE: ("<=", ("<",)),
    ast.Gt: (">", (">=", "<")),
    ast.GtE: (">=", (">",)),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
}
#: Methods and names of types that stand for another signedness, width or rounding.
_TYPES = {
    "sext": ("zext",), "zext": ("sext",), "shr": ("__rshift__",), "min": ("max",), "max": ("min",),
    "I8": ("I16",), "I16": ("I32",), "int8": ("uint8",), "uint8": ("int8",), "int32": ("uint32",),
    "uint32": ("int32",), "float32": ("float64",), "float64": ("float32",), "rint": ("floor", "trunc"),
    "floor": ("ceil",), "lt": ("le",), "minimum": ("maximum",), "maximum": ("minimum",),
}  # fmt: skip

#: Files that add and multiply whole numbers alone, in any order with the same result.
_WHOLE_NUMBERS = ("prepack.py", "plan.py", "schedule.py", "lifetimes.py", "memory.py")

_ERROR = re.compile(r"Error$|^refuse")
#: What asks for memory before it is used: whatever it asks for, the bytes are the same.
_AHEAD = re.compile(r"^ahead$|\.prefetch$")
#: Functions within functions that only say how long something takes, or what to fetch.
_ESTIMATE = re.compile(r"(cost|cycles|ahead)$")
#: Arithmetic that no device has: only those who look for causes ask for it (`refsim.core.qmath`).
_ONLY_SIMULATED = frozenset(("TRUNCATE", "TIE_UP", "CLAMP_FIRST"))
_SIMPLE = (ast.Assign, ast.AugAssign, ast.Expr)
_Found = tuple[ast.AST | tuple[int, int], str, str]


class _Source:
    """A source with its tree: where nodes lie, and which simple statement stands behind which."""

    def __init__(self, text: str, has_floats: bool) -> None:
        self.text, self.has_floats = text, has_floats
        self.has_nans = has_floats and re.search(r"(?i)nan", text) is not None
        self.tree = ast.parse(text)
        self._lines = [0]
        for line in text.split("\n"):
            self._lines.append(self._lines[-1] + len(line) + 1)
        self.words = frozenset(re.findall(r"\w+", text))
        self._names: dict[str, set[str]] = {"": set()}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef):
                known = self._names.setdefault(node.name, set())
                known |= _names(node) | {arg.arg for arg in _arguments(node)}
        for statement in self.tree.body:
            for target in getattr(statement, "targets", ()):
                self._names[""] |= _names(target)
        #: The 1 of lengths that are left open: any negative number says that.
        self.open = {
            id(length.operand)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "reshape"
            for length in node.args
            if isinstance(length, ast.UnaryOp) and isinstance(length.op, ast.USub)
        }
        #: Divisors of which only counts whether nothing is left: the sign makes no difference.
        self.whole = {
            id(node.left.right)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Compare) and _leaves_nothing(node) and isinstance(node.left, ast.BinOp)
        }
        self.following: dict[int, ast.stmt] = {}
        for node in ast.walk(self.tree):
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, [])
                for first, second in pairwise(block) if isinstance(block, list) else ():
                    if isinstance(first, _SIMPLE) and isinstance(second, _SIMPLE):
                        self.following[id(first)] = second

    def span(self, node: ast.AST) -> tuple[int, int]:
        begin = self._lines[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        return begin, self._lines[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def known(self, scope: str) -> set[str]:
        """Names that mean something within a function: its own, and those of the module."""
        return self._names.get(scope, set()) | self._names[""]

    def of(self, node: ast.AST) -> str:
        return self.text[slice(*self.span(node))]


def changes(file: str, source: str, wanted: Callable[[str], bool]) -> Iterator[Change]:
    """Every change of the functions, and the tables at module level, whose name is ``wanted``.

    Some may not compile, or change nothing: see `is_another`.
    """
    if not source.isascii():
        return  # columns are counted in bytes
    s = _Source(source, has_floats=not file.endswith(_WHOLE_NUMBERS))
    seen: set[tuple[int, int, str]] = set()
    for scope, statement in _statements(s.tree, wanted):
        for where, replacement, kind in _of_statement(statement, s):
            known = replacement in s.known(scope) or replacement in ("min", "max")
            if isinstance(where, ast.Name) and kind in ("index", "type") and not known:
                continue
            begin, end = where if isinstance(where, tuple) else s.span(where)
            if (begin, end, replacement) not in seen and source[begin:end] != replacement:
                seen.add((begin, end, replacement))
                yield Change(file, source, begin, end, replacement, kind, scope, s.of(statement))


def is_another(change: Change) -> bool:
    """Whether what is changed can be read and is another program."""
    try:
        return ast.dump(ast.parse(change.changed)) != ast.dump(ast.parse(change.source))
    except (SyntaxError, ValueError):
        return False


# --- statements ------------------------------------------------------------------------------------------


def _statements(tree: ast.Module, wanted: Callable[[str], bool]) -> Iterator[tuple[str, ast.stmt]]:
    """(function around it, statement) of everything that may be changed, the innermost statements."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and wanted(target.id):
                yield target.id, node
        yield from _within(node, "", wanted)


def _within(node: ast.AST, scope: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, ast.stmt]]:
    if isinstance(node, ast.FunctionDef):
        if not scope and not wanted(node.name):
            return
        for statement in node.body:
            yield from _inner(statement, scope or node.name, wanted)
    elif isinstance(node, ast.ClassDef):
        for member in node.body:
            yield from _within(member, scope, wanted)


def _inner(node: ast.stmt, scope: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, ast.stmt]]:
    if isinstance(node, ast.FunctionDef):
        if not _ESTIMATE.match(node.name):
            yield from _within(node, scope, wanted)
        return
    if _only_refuses(node) or _is_text(node) or _only_prefetches(node):
        return
    yield scope, node
    for name in ("body", "orelse", "handlers", "finalbody"):
        if name == "body" and isinstance(node, ast.If) and _names(node.test) & _ONLY_SIMULATED:
            continue
        for child in getattr(node, name, []):
            if isinstance(child, ast.stmt):
                yield from _inner(child, scope, wanted)


def _only_refuses(node: ast.stmt) -> bool:
    """Checks of arguments, whose errors are tested elsewhere."""
    if isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom):
        return True
    return isinstance(node, ast.If) and all(isinstance(child, ast.Raise) for child in node.body)


def _only_prefetches(node: ast.stmt) -> bool:
    """A loop that asks for memory ahead of its use: whatever it asks for, the bytes are the same."""
    return isinstance(node, ast.For) and all(
        _is_prefetch(child) or _only_prefetches(child) for child in node.body
    )


def _is_prefetch(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr == "prefetch"
    )


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _of_statement(node: ast.stmt, s: _Source) -> Iterator[_Found]:
    """The changes of a statement itself; those inside it have their own turn."""
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield node, "pass", "removed"
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        yield node, "pass", "removed"
    if isinstance(node, ast.AugAssign) and type(node.op) in _OPERATORS:
        sign, others = _OPERATORS[type(node.op)]
        between = (s.span(node.target)[1], s.span(node.value)[0])
        for other in others:
            yield between, s.text[slice(*between)].replace(f"{sign}=", f"{other}="), "operator"
    yield from _exchanged_with_next(node, s)
    for part in _expressions(node):
        yield from _of_expression(part, s)


def _expressions(node: ast.stmt) -> Iterator[ast.expr]:
    """The expressions of a statement that are code, without those of statements inside it."""
    skipped = ("body", "orelse", "handlers", "finalbody", "annotation", "decorator_list", "returns", "args")
    for name, value in ast.iter_fields(node):
        if name in skipped:
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.expr):
                yield from _walk(each)
            elif isinstance(each, ast.withitem):
                yield from _walk(each.context_expr)


def _walk(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Call) and _ERROR.search(ast.unparse(node.func))
    ):
        return  # texts for people
    if isinstance(node, ast.Call) and _AHEAD.search(ast.unparse(node.func)):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield from _walk(child)
        elif isinstance(child, ast.keyword) and child.arg == "strict":
            continue  # of zip: it only checks
        elif isinstance(child, ast.keyword | ast.comprehension):
            for inner in ast.iter_child_nodes(child):
                if isinstance(inner, ast.expr):
                    yield from _walk(inner)


def _exchanged_with_next(node: ast.stmt, s: _Source) -> Iterator[_Found]:
    """This statement and the one below it, if one of them uses what the other sets."""
    following = s.following.get(id(node))
    if following is None:
        return
    first, second = s.span(node), s.span(following)
    if _sets(node) & _uses(following) or _sets(following) & _uses(node):
        between = s.text[first[1] : second[0]]
        both = (first[0], second[1])
        yield both, s.text[slice(*second)] + between + s.text[slice(*first)], "order"


def _names(node: ast.AST) -> set[str]:
    return {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}


def _arguments(node: ast.AST) -> list[ast.arg]:
    return [child for child in ast.walk(node) if isinstance(child, ast.arg)]


def _uses(node: ast.AST) -> set[str]:
    """Names and attributes that a statement mentions: `self` and `self.rows` of `self.rows`."""
    return {ast.unparse(child) for child in ast.walk(node) if isinstance(child, ast.Name | ast.Attribute)}


def _sets(node: ast.stmt) -> set[str]:
    """What a statement sets: a name, an attribute, or what something is an element of."""
    if isinstance(node, ast.Expr):
        return set()
    waiting = list(node.targets) if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
    found: set[str] = set()
    while waiting:
        target = waiting.pop()
        if isinstance(target, ast.Tuple | ast.List):
            waiting += target.elts
        elif isinstance(target, ast.Subscript):
            waiting.append(target.value)
        elif isinstance(target, ast.Attribute):
            found.add(ast.unparse(target))
        else:
            found |= _names(target)
    return found


# --- expressions -----------------------------------------------------------------------------------------


def _of_expression(node: ast.expr, s: _Source) -> Iterator[_Found]:
    if isinstance(node, ast.BinOp):
        yield from _binary(node, s)
    elif isinstance(node, ast.Compare):
        yield from _compared(node, s)
    elif isinstance(node, ast.Constant):
        yield from _constant(node, s)
    elif isinstance(node, ast.BoolOp):
        yield from _dropped(node, node.values, s)
    elif isinstance(node, ast.IfExp):
        yield node.test, f"(not ({s.of(node.test)}))", "condition"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        yield node, f"({s.of(node.operand)})", "operator"
    elif isinstance(node, ast.Call):
        yield from _called(node, s)
    elif isinstance(node, ast.Name):
        for other in (*exchanged(node.id), *_TYPES.get(node.id, ())):
            if other in s.words or other in ("min", "max"):
                yield node, other, "type" if node.id in _TYPES else "index"
    elif isinstance(node, ast.Attribute):
        yield from _attribute(node, s)


def _binary(node: ast.BinOp, s: _Source) -> Iterator[_Found]:
    if type(node.op) not in _OPERATORS:
        return
    sign, others = _OPERATORS[type(node.op)]
    between = (s.span(node.left)[1], s.span(node.right)[0])
    text = s.text[slice(*between)]
    if not (sign == "+" and isinstance(node.right, ast.Name) and node.right.id == NOTHING):
        for other in others:
            yield between, text.replace(sign, other), "operator"
    if isinstance(node.op, ast.BitAnd) and isinstance(node.left, ast.Compare | ast.BinOp):
        yield from _dropped(node, [node.left, node.right], s)
    if isinstance(node.op, ast.Add | ast.Mult) and isinstance(node.left, ast.BinOp) and s.has_floats:
        inner = node.left
        parts = (inner.left, inner.right, node.right)
        whole = any(isinstance(part, ast.Constant) and isinstance(part.value, int) for part in parts)
        if type(inner.op) is type(node.op) and not whole:  # whole numbers come to the same in any order
            a, b, c = map(s.of, parts)
            yield node, f"({a}) {sign} (({b}) {sign} ({c}))", "order"


def _dropped(node: ast.expr, parts: list[ast.expr], s: _Source) -> Iterator[_Found]:
    """One part of a conjunction or disjunction alone, the others dropped in turn."""
    if len(parts) == 2:
        for part in parts:
            yield node, f"({s.of(part)})", "condition"
        return
    word = " and " if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And) else " or "
    for out in parts:
        kept = (f"({s.of(part)})" for part in parts if part is not out)
        yield node, f"({word.join(kept)})", "condition"


def _compared(node: ast.Compare, s: _Source) -> Iterator[_Found]:
    sides = [node.left, *node.comparators]
    for operator, left, right in zip(node.ops, sides, sides[1:], strict=False):
        if type(operator) not in _COMPARISONS:
            continue
        sign, others = _COMPARISONS[type(operator)]
        between = (s.span(left)[1], s.span(right)[0])
        for other in others:
            yield between, s.text[slice(*between)].replace(sign, other, 1), "compare"


def _leaves_nothing(node: ast.Compare) -> bool:
    """Whether it asks if something is a multiple: ``x % n == 0`` or ``!=``."""
    left, (operator, *more), right = node.left, node.ops, node.comparators[0]
    divides = isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod)
    none = isinstance(right, ast.Constant) and right.value == 0
    return divides and none and not more and isinstance(operator, ast.Eq | ast.NotEq)


def _constant(node: ast.Constant, s: _Source) -> Iterator[_Found]:
    value = node.value
    if isinstance(value, bool):
        yield node, str(not value), "constant"
    elif isinstance(value, int):
        for other in other_numbers(value):
            if (other == -value and id(node) in s.whole) or (other > 0 and id(node) in s.open):
                continue
            yield node, f"({other})" if other < 0 else str(other), "constant"
    elif isinstance(value, float):
        for real in {0.0, -value, 2 * value, value + 1} - {value}:
            yield node, f"({real!r})", "constant"
    elif isinstance(value, str) and re.fullmatch(r"[a-z_0-9]+", value):
        for name in exchanged(value):
            if name in s.words:
                yield node, f'"{name}"', "index"


def _called(node: ast.Call, s: _Source) -> Iterator[_Found]:
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    # the least of a number and of NaN is either of them in Python
    commutes = name in COMMUTE and not (name in ("min", "max") and s.has_nans)
    for first, second in pairwise(node.args):
        if commutes and first is node.args[0]:
            continue
        odd = (ast.Starred, ast.Lambda, ast.JoinedStr)
        if isinstance(first, odd) or isinstance(second, odd) or _is_string(first) != _is_string(second):
            continue
        a, b = s.span(first), s.span(second)
        yield (a[0], b[1]), s.text[slice(*b)] + s.text[a[1] : b[0]] + s.text[slice(*a)], "arguments"
    if isinstance(node.func, ast.Attribute) and node.func.attr == "select" and len(node.args) == 2:
        no = s.of(node.args[1])
        yield node.args[0], no, "condition"


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _attribute(node: ast.Attribute, s: _Source) -> Iterator[_Found]:
    end = s.span(node)[1]
    place = (end - len(node.attr), end)
    for other in (*exchanged(node.attr), *_TYPES.get(node.attr, ())):
        if other in s.words or node.attr in _TYPES:
            yield place, other, "type" if node.attr in _TYPES else "index"
