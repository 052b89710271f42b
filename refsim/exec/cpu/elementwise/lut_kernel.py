"""Bytes looked up in tables: what an operation gives for every byte, or for every pair of bytes.

Where the processor has an instruction for it 64 bytes are looked up at a time, else one, and then no pairs.
A pair has two bytes of result for each of its own bytes: a whole number, and a rank that decides about the carry of
what both lack to whole numbers. result = whole_a + whole_b + (rank_a < rank_b), saturated.
"""

from __future__ import annotations

from collections.abc import Callable

from refsim.exec.cpu.args import LoadedArgs
from refsim.exec.cpu.ir import I8, I64, Function, Value
from refsim.exec.cpu.table import TABLE_BYTES, VECTOR_BYTES, look_up, resized

LUT = "lut"
#: The same without such an instruction: one byte after the other.
GATHER = "gather"
#: Sums of two inputs: those named have whole numbers beyond a byte, the rest of which is in a table of its own.
PAIRS = {"pairs": "", "pairs_a": "a", "pairs_b": "b", "pairs_ab": "ab"}
#: The same sums, which are looked up in one more table.
THEN = {op: f"{op}_then" for op in PAIRS}
OF_PAIRS = {**{op: op for op in PAIRS}, **{then: op for op, then in THEN.items()}}


def lookup(fn: Function, a: LoadedArgs, op: str) -> Callable[..., Value]:
    """A function of one or two vectors of bytes. Tables of a pair: ranks of a and b, wholes, rests; one for the sum."""
    pairs = OF_PAIRS.get(op)
    letters = ["a"] if pairs is None else [*"abab", *PAIRS[pairs]]
    count = len(letters) + (op != pairs and pairs is not None)
    looks = [look_up(fn, a.pointer("luts") + number * TABLE_BYTES) for number in range(count)]

    def compute(*inputs: Value) -> Value:
        q = {letter: resized(x, VECTOR_BYTES) for letter, x in zip("ab", inputs, strict=False)}
        found = [look(q[letter]) for letter, look in zip(letters, looks, strict=False)]
        if pairs is not None:
            rank_a, rank_b, whole_a, whole_b, *rests = found
            carry = rank_a.compare("ult", rank_b).zext(I8)
            total = _sum(fn, whole_a + carry, whole_b)
            if rests:
                total = _sum(fn, total, rests[0] if len(rests) == 1 else _sum(fn, *rests))
            found = [total if op == pairs else looks[-1](total)]
        return resized(found[0], inputs[0].type.lanes)

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
