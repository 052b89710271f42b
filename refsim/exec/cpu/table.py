"""Bytes looked up in a table of 256, 64 at a time: for processors with an instruction for it (AVX512-VBMI)."""

from __future__ import annotations

from collections.abc import Callable

from refsim.exec.cpu.ir import I8, Function, Value, vec

#: Bytes of a table, which has an entry for every byte (unsigned), and of a vector: what is looked up at once.
TABLE_BYTES, VECTOR_BYTES = 256, 64

Look = Callable[[Value], Value]


def look_up(fn: Function, at: Value) -> Look:
    """What gives the entries of the table at that place for a vector of at most 64 bytes."""
    part = [fn.load(at + k * VECTOR_BYTES, vec(I8, VECTOR_BYTES)) for k in range(4)]

    def look(x: Value) -> Value:
        q = resized(x, VECTOR_BYTES)
        positive, negative = (
            fn.call("llvm.x86.avx512.vpermi2var.qi.512", q.type, part[k], q, part[k + 1]) for k in (0, 2)
        )
        return resized((q < 0).select(negative, positive), x.type.lanes)

    return look


def resized(x: Value, lanes: int) -> Value:
    """The first lanes of a vector, or a longer one with anything behind it."""
    return x if x.type.lanes == lanes else x.shuffle([min(k, x.type.lanes) for k in range(lanes)])
