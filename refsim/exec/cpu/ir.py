"""A small notation for LLVM IR: values with operators, loops with carried values, vectors.

Native kernels are written with it. It emits text for LLVM 15 and later (opaque pointers), which takes an eighth of the
time that llvmlite.ir would (docs/performance.md). All arithmetic is what LLVM does without any fast-math flag: IEEE,
never contracted; integers wrap. No memory access assumes any alignment.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass(frozen=True)
class Type:
    """A scalar (``lanes`` 0) or a vector. ``bits`` is of one element."""

    name: str
    bits: int
    lanes: int = 0

    def __str__(self) -> str:
        return f"<{self.lanes} x {self.name}>" if self.lanes else self.name

    @property
    def is_float(self) -> bool:
        return self.name == "float"

    @property
    def nbytes(self) -> int:
        return self.bits // 8 * max(1, self.lanes)


I1, I8, I16, I32, I64 = (Type(f"i{bits}", bits) for bits in (1, 8, 16, 32, 64))
F32 = Type("float", 32)
PTR = Type("ptr", 64)
VOID = Type("void", 0)


def vec(element: Type, lanes: int) -> Type:
    """A vector type."""
    return Type(element.name, element.bits, lanes)


class Value:
    """An SSA value. Operators emit instructions; Python numbers become constants of the other side's type.

    A pointer plus an integer is that many bytes further. Comparisons of integers are signed; `//` and `%` are
    for non-negative integers.
    """

    __slots__ = ("fn", "text", "type")

    def __init__(self, fn: Function, kind: Type, text: str) -> None:
        self.fn = fn
        self.type = kind
        self.text = text

    def __str__(self) -> str:
        """Type and name, as an operand."""
        return f"{self.type} {self.text}"

    def same(self, other: Value | float) -> Value:
        """The other value, or a constant of this one's type."""
        return other if isinstance(other, Value) else self.fn.const(other, self.type)

    def _binary(self, integer: str, real: str | None, other: Value | float) -> Value:
        name = real if self.type.is_float else integer
        assert name is not None
        return self.fn.emit(self.type, f"{name} {self}, {self.same(other).text}")

    def __add__(self, other: Value | float) -> Value:
        if self.type == PTR:
            if isinstance(other, int) and other == 0:
                return self
            step = other if isinstance(other, Value) else self.fn.i64(int(other))
            return self.fn.emit(PTR, f"getelementptr i8, {self}, {step}")
        return self._binary("add", "fadd", other)

    def __radd__(self, other: float) -> Value:
        return self + other

    def __sub__(self, other: Value | float) -> Value:
        return self._binary("sub", "fsub", other)

    def __mul__(self, other: Value | float) -> Value:
        return self._binary("mul", "fmul", other)

    def __rmul__(self, other: float) -> Value:
        return self * other

    def __floordiv__(self, other: Value | int) -> Value:
        return self._binary("udiv", None, other)

    def __mod__(self, other: Value | int) -> Value:
        return self._binary("urem", None, other)

    def __truediv__(self, other: Value | float) -> Value:
        return self.fn.emit(self.type, f"fdiv {self}, {self.same(other).text}")

    def __and__(self, other: Value | int) -> Value:
        return self._binary("and", None, other)

    def __or__(self, other: Value | int) -> Value:
        return self._binary("or", None, other)

    def __xor__(self, other: Value | int) -> Value:
        return self._binary("xor", None, other)

    def __lshift__(self, other: Value | int) -> Value:
        return self._binary("shl", None, other)

    def __rshift__(self, other: Value | int) -> Value:
        """Arithmetic: the sign comes in from the left."""
        return self._binary("ashr", None, other)

    def shr(self, other: Value | int) -> Value:
        """Logical: zeros come in from the left."""
        return self._binary("lshr", None, other)

    def compare(self, how: str, other: Value | float) -> Value:
        """LLVM's condition by name: slt, ult, eq, olt, ..."""
        kind = Type("i1", 1, self.type.lanes)
        op = "fcmp" if self.type.is_float else "icmp"
        return self.fn.emit(kind, f"{op} {how} {self}, {self.same(other).text}")

    def __lt__(self, other: Value | float) -> Value:
        return self.compare("olt" if self.type.is_float else "slt", other)

    def __le__(self, other: Value | float) -> Value:
        return self.compare("ole" if self.type.is_float else "sle", other)

    def __gt__(self, other: Value | float) -> Value:
        return self.compare("ogt" if self.type.is_float else "sgt", other)

    def __ge__(self, other: Value | float) -> Value:
        return self.compare("oge" if self.type.is_float else "sge", other)

    def eq(self, other: Value | float) -> Value:
        return self.compare("oeq" if self.type.is_float else "eq", other)

    def select(self, yes: Value | float, no: Value | float) -> Value:
        """`yes` where this condition holds, else `no`; one of them may be a number."""
        if not isinstance(yes, Value):
            assert isinstance(no, Value)
            yes = no.same(yes)
        return self.fn.emit(yes.type, f"select {self}, {yes}, {yes.same(no)}")

    def min(self, other: Value | float) -> Value:
        """The smaller; of floats, the second if one is NaN."""
        return (self < other).select(self, other)

    def max(self, other: Value | float) -> Value:
        """The larger; of floats, the second if one is NaN."""
        return (self > other).select(self, other)

    def _convert(self, how: str, element: Type) -> Value:
        kind = vec(element, self.type.lanes)
        return self.fn.emit(kind, f"{how} {self} to {kind}")

    def sext(self, element: Type) -> Value:
        return self._convert("sext", element)

    def zext(self, element: Type) -> Value:
        return self._convert("zext", element)

    def trunc(self, element: Type) -> Value:
        return self._convert("trunc", element)

    def to_f32(self) -> Value:
        """A signed integer as binary32, rounded to nearest even."""
        return self._convert("sitofp", F32)

    def bits(self, kind: Type) -> Value:
        """The same bits as another type."""
        return self if self.type == kind else self.fn.emit(kind, f"bitcast {self} to {kind}")

    def splat(self, lanes: int) -> Value:
        """A scalar in every lane."""
        kind = vec(self.type, lanes)
        one = self.fn.emit(kind, f"insertelement {kind} poison, {self}, i32 0")
        return self.fn.emit(kind, f"shufflevector {one}, {kind} poison, <{lanes} x i32> zeroinitializer")

    def lane(self, index: int) -> Value:
        return self.fn.emit(Type(self.type.name, self.type.bits), f"extractelement {self}, i32 {index}")

    def insert(self, value: Value, index: int) -> Value:
        """This vector with one lane replaced."""
        return self.fn.emit(self.type, f"insertelement {self}, {value}, i32 {index}")

    def shuffle(self, mask: Sequence[int], other: Value | None = None) -> Value:
        """Lanes of this vector, and of another behind it, in the order of `mask`."""
        kind = vec(self.type, len(mask))
        second = str(other) if other is not None else f"{self.type} poison"
        order = ", ".join(f"i32 {m}" for m in mask)
        return self.fn.emit(kind, f"shufflevector {self}, {second}, <{len(mask)} x i32> <{order}>")

    def concat(self, other: Value) -> Value:
        """This vector's lanes, then the other's."""
        return self.shuffle(range(2 * self.type.lanes), other)


#: What stands between an instruction and who wrote it, in a module with remarks; how many writers, the innermost first.
REMARK, MOST_WRITERS = "  ; written by ", 4
#: Functions that write whatever they are given.
_SCRIBES = ("line", "emit", "_writers", "_binary", "_convert", "_arguments", "call")


def _writers() -> str:
    """The innermost functions that write a kernel at this moment, each with its file."""
    found: list[str] = []
    frame: FrameType | None = sys._getframe()
    while frame is not None and len(found) < MOST_WRITERS:
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if module == f"{__package__}.compiled":
            break
        if (
            module.startswith(__package__)
            and name[0] != "<"
            and not (module == __name__ and name in _SCRIBES)
        ):
            found.append(f"{module.replace('.', '/')}.py: {name}")
        frame = frame.f_back
    return ", called by ".join(dict.fromkeys(found))


class ModuleText:
    """The text of one module: its functions, and declarations of what they call.

    With ``remarks`` each instruction is followed by the functions that wrote it.
    """

    def __init__(self, remarks: bool = False) -> None:
        self.remarks = remarks
        self.parts: list[str] = []
        self.declared: dict[str, str] = {}
        self.next_name = 0

    @contextmanager
    def function(self, name: str, params: Sequence[Type]) -> Iterator[Function]:
        """Write a function that gives nothing; it returns where the block ends."""
        fn = Function(self)
        fn.params = [Value(fn, kind, f"%p{i}") for i, kind in enumerate(params)]
        yield fn
        fn.line("ret void")
        header = f"define void @{name}({', '.join(map(str, fn.params))}) {{\nentry:\n"
        self.parts.append(header + "\n".join(fn.lines) + "\n}\n")

    def __str__(self) -> str:
        return "\n".join([*self.declared.values(), *self.parts])


class Function:
    """One function under construction; see `Value` for what is written inside."""

    def __init__(self, module: ModuleText) -> None:
        self.module = module
        self.lines: list[str] = []
        self.params: list[Value] = []
        self.block = "entry"

    def name(self) -> str:
        self.module.next_name += 1
        return str(self.module.next_name)

    def line(self, text: str) -> None:
        self.lines.append("  " + text + (REMARK + _writers() if self.module.remarks else ""))

    def label(self, block: str) -> None:
        """Begin a block."""
        self.lines.append(f"{block}:")
        self.block = block

    def emit(self, kind: Type, text: str) -> Value:
        """One instruction that gives a value."""
        name = f"%v{self.name()}"
        self.line(f"{name} = {text}")
        return Value(self, kind, name)

    def const(self, value: float, kind: Type) -> Value:
        """A constant; in every lane of a vector type."""
        if kind.is_float:
            # LLVM writes binary32 as the binary64 of the same value, in hexadecimal
            single = struct.unpack("f", struct.pack("f", value))[0]
            text = f"0x{struct.unpack('Q', struct.pack('d', single))[0]:016X}"
        else:
            text = str(_wrapped(int(value), kind.bits))
        if kind.lanes:
            text = "<" + ", ".join([f"{kind.name} {text}"] * kind.lanes) + ">"
        return Value(self, kind, text)

    def i64(self, value: int) -> Value:
        return self.const(value, I64)

    def vector(self, values: Sequence[int], element: Type) -> Value:
        """A constant vector of integers."""
        return Value(
            self, vec(element, len(values)), "<" + ", ".join(f"{element.name} {v}" for v in values) + ">"
        )

    def load(self, pointer: Value, kind: Type) -> Value:
        return self.emit(kind, f"load {kind}, {pointer}, align 1")

    def store(self, value: Value, pointer: Value) -> None:
        self.line(f"store {value}, {pointer}, align 1")

    def prefetch(self, pointer: Value, level: int, write: bool = False) -> None:
        """Ask for the line of memory that a byte lies in, into that cache; any address may be asked for."""
        self.call(
            "llvm.prefetch.p0", VOID, pointer, *(self.const(k, I32) for k in (int(write), 4 - level, 1))
        )

    def pointer(self, address: Value) -> Value:
        """An address held in an i64."""
        return self.emit(PTR, f"inttoptr {address} to ptr")

    def loop(
        self,
        count: Value | int,
        body: Callable[..., Any],
        carry: Sequence[Value] = (),
        *,
        start: Value | int = 0,
        step: Value | int = 1,
    ) -> tuple[Value, ...]:
        """``for i in range(start, count, step): carry = body(i, *carry)``; gives the last carry.

        With nothing to do the carry comes back as it went in.
        """
        first, stop, stride = (v if isinstance(v, Value) else self.i64(v) for v in (start, count, step))
        number = self.name()
        before, head, inside, done = self.block, f"head{number}", f"body{number}", f"done{number}"
        self.line(f"br label %{head}")
        self.label(head)
        at = len(self.lines)
        index = Value(self, I64, f"%i{number}")
        held = [Value(self, value.type, f"%c{number}.{k}") for k, value in enumerate(carry)]
        self.line(f"%t{number} = icmp slt {index}, {stop.text}")
        self.line(f"br i1 %t{number}, label %{inside}, label %{done}")
        self.label(inside)
        result = body(index, *held)
        result = () if result is None else result if isinstance(result, tuple | list) else (result,)
        following = index + stride
        latch = self.block
        self.line(f"br label %{head}")
        phis = [
            f"  {phi.text} = phi {phi.type} [ {begin.text}, %{before} ], [ {end.text}, %{latch} ]"
            for phi, begin, end in zip([index, *held], [first, *carry], [following, *result], strict=True)
        ]
        self.lines[at:at] = phis
        self.label(done)
        return tuple(held)

    def loop_vectors(
        self, last: Value, lanes: int, move: Callable[[Value, int], None], start: Value | int = 0
    ) -> None:
        """``move(i, how many)`` for i from start to last: in vectors of ``lanes``, then of 4, then one by one."""
        done = start if isinstance(start, Value) else self.i64(start)
        for width in sorted({lanes, min(4, lanes), 1}, reverse=True):
            whole = last - (last - done) % width if width > 1 else last
            self.loop(whole, lambda i, width=width: move(i, width), start=done, step=width)
            done = whole

    def when(
        self, condition: Value, then: Callable[[], Any], otherwise: Callable[[], Any] | None = None
    ) -> None:
        """Run one of two pieces; neither gives a value."""
        number = self.name()
        yes, no, done = f"then{number}", f"else{number}", f"endif{number}"
        self.line(f"br {condition}, label %{yes}, label %{no if otherwise else done}")
        for block, piece in ((yes, then), (no, otherwise)):
            if piece is not None:
                self.label(block)
                piece()
                self.line(f"br label %{done}")
        self.label(done)

    def repeat(self, body: Callable[[], Value]) -> None:
        """Run a piece as long as the condition that it gives holds."""
        number = self.name()
        again, done = f"again{number}", f"done{number}"
        self.line(f"br label %{again}")
        self.label(again)
        self.line(f"br {body()}, label %{again}, label %{done}")
        self.label(done)

    def is_null(self, pointer: Value) -> Value:
        return self.emit(I1, f"icmp eq {pointer}, null")

    def _arguments(self, args: Sequence[Value]) -> str:
        return ", ".join(map(str, args))

    def call(self, name: str, result: Type, *args: Value) -> Value:
        """Call an intrinsic or an external function by name."""
        kinds = ", ".join(str(a.type) for a in args)
        self.module.declared[name] = f"declare {result} @{name}({kinds})"
        text = f"call {result} @{name}({self._arguments(args)})"
        if result == VOID:
            self.line(text)
            return Value(self, VOID, "")
        return self.emit(result, text)

    def call_pointer(self, target: Value, *args: Value) -> None:
        """Call a function that gives nothing, through a pointer."""
        self.line(f"call void {target.text}({self._arguments(args)})")


def _wrapped(value: int, bits: int) -> int:
    """An integer as the two's complement of that width."""
    if bits == 1:
        return value & 1
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half
