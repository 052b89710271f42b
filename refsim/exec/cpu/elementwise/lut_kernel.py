"""Bytes looked up in tables: what an operation gives for every byte, or for every pair of bytes.

Where the processor has an instruction for it 64 bytes are looked up at a time, else one, and then no pairs.
A pair has two bytes of result for each of its own bytes: a whole number, and a rank that decides about the carry of
what both lack to whole numbers. result = whole_a + whole_b + (rank_a < rank_b), saturated.
"""

from __future__ import annotations

from collections.abc import Callable

from refsim.exec.cpu.args import LoadedArgs
from refsim.exec.cpu.ir import I8, I64, Function, Value, vec

#: Bytes of a table, which has an entry for every byte (unsigned), and of a vector: what is looked up at once.
TABLE_BYTES, VECTOR_BYTES = 256, 64

LUT = "lut"
#: The same without such an instruction: one byte after the other.
GATHER = "gather"
#: Sums of two inputs: those named have whole numbers beyond a byte, the rest of which is in a table of its own.
PAIRS = {"pairs": "", "pairs_a": "a", "pairs_b": "b", "pairs_ab": "ab"}

Look = Callable[[Value], Value]


def lookup(fn: Function, a: LoadedArgs, op: str) -> Callable[..., Value]:
    """A function of one or two vectors of bytes. Tables of a pair: ranks of a and b, wholes, rests."""

    def table(number: int) -> Look:
        at = a.pointer("luts") + number * TABLE_BYTES
        part = [fn.load(at + k * VECTOR_BYTES, vec(I8, VECTOR_BYTES)) for k in range(4)]

        def look(q: Value) -> Value:
            positive, negative = (
                fn.call("llvm.x86.avx512.vpermi2var.qi.512", q.type, part[k], q, part[k + 1]) for k in (0, 2)
            )
            return (q < 0).select(negative, positive)

        return look

    letters = [*"abab", *PAIRS[op]] if op in PAIRS else ["a"]
    looks = [table(number) for number in range(len(letters))]

    def compute(*inputs: Value) -> Value:
        q = {letter: _resized(x, VECTOR_BYTES) for letter, x in zip("ab", inputs, strict=False)}
        found = [look(q[letter]) for letter, look in zip(letters, looks, strict=True)]
        if op in PAIRS:
            rank_a, rank_b, whole_a, whole_b, *rests = found
            carry = rank_a.compare("ult", rank_b).zext(I8)
            total = _sum(fn, whole_a + carry, whole_b)
            if rests:
                total = _sum(fn, total, rests[0] if len(rests) == 1 else _sum(fn, *rests))
            found = [total]
        return _resized(found[0], inputs[0].type.lanes)

    return compute


def gather(fn: Function, a: LoadedArgs) -> Callable[[Value], Value]:
    """A function of one vector of bytes."""
    table = a.pointer("luts")

    def compute(q: Value) -> Value:
        found = q
        for k in range(q.type.lanes):
            found = found.insert(fn.load(table + q.lane(k).zext(I64), I8), k)
        return found

    return compute


def _sum(fn: Function, x: Value, y: Value) -> Value:
    """Saturated to a byte."""
    return fn.call(f"llvm.sadd.sat.v{VECTOR_BYTES}i8", x.type, x, y)


def _resized(x: Value, lanes: int) -> Value:
    """The first lanes of a vector, or a longer one with anything behind it."""
    return x if x.type.lanes == lanes else x.shuffle([min(k, x.type.lanes) for k in range(lanes)])
