"""The mean of a plain kernel, between delegates: over the last dims of a float32 tensor, in the order of memory.

A sum is one addition after another, so that vectors do not help; several rows are added up at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from refsim.exec.cpu import compiled
from refsim.exec.cpu.args import ArgLayout
from refsim.exec.cpu.ir import F32, ModuleText, Value
from refsim.exec.cpu.job import Arguments
from refsim.exec.cpu.thread_pool import JobList

#: Tasks: groups of rows; the last may overlap the one before. `count` of a row's elements, as binary32.
ARGS = ArgLayout("x", "out", "rows", "elements", "count")
#: Rows that are added up at the same time: enough that no addition waits for another.
ROWS = 16


def plain_mean(module: ModuleText, name: str, *, size: int) -> None:
    """Write the kernel for `size` rows at once."""
    with ARGS.kernel(module, name) as (fn, a, _, tasks):

        def task(t: Value) -> None:
            first = (t * size).min(a.rows - size)
            source = a.pointer("x") + first * a.elements * 4

            def add(i: Value, *sums: Value) -> tuple[Value, ...]:
                places = (source + (a.elements * row + i) * 4 for row in range(size))
                return tuple(total + fn.load(at, F32) for total, at in zip(sums, places, strict=True))

            totals = fn.loop(a.elements, add, [fn.const(0.0, F32)] * size)
            for row, total in enumerate(totals):
                fn.store(total / a.f32("count"), a.pointer("out") + (first + row) * 4)

        tasks.each(task)


class PlainMean:
    """``aten::mean.out`` as `refsim.aten.reduce.mean` computes it; None for arguments that it does not take."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[int, int], JobList] = {}
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> np.ndarray | None:
        if not 0 < len(args) <= 4:
            return None
        given: list[Any] = [*args, *(None, False, None)[len(args) - 1 :]]
        x, dim, keepdim, dtype = given
        if not isinstance(x, np.ndarray) or x.dtype != np.float32 or dtype is not None or not x.size:
            return None
        if not isinstance(dim, tuple | list | None) or not all(type(d) is int for d in dim or ()):
            return None
        kept = x.ndim - len(dim or range(x.ndim))
        if not x.flags.c_contiguous or not x.ndim or _places(dim, x.ndim) != list(range(kept, x.ndim)):
            return None
        ends = (1,) * (x.ndim - kept) if keepdim else ()
        out = np.empty(x.shape[:kept] + ends, np.float32)
        elements = prod(x.shape[kept:])
        with self._lock:
            jobs = self._jobs.get((out.size, elements)) or self._prepared(out.size, elements)
            jobs.bind({"x": x.ctypes.data, "out": out.ctypes.data})
            jobs.run()
        return out

    def _prepared(self, rows: int, elements: int) -> JobList:
        size = min(ROWS, 1 << (rows.bit_length() - 1))
        args = Arguments()
        block = args.block(
            ARGS, {"x": "x", "out": "out"}, rows=rows, elements=elements, count=np.float32(elements)
        )
        kernel = compiled.address(plain_mean, size=size)
        jobs = JobList([args.job("mean", kernel, block, -(-rows // size))])
        self._jobs[rows, elements] = jobs
        return jobs


def _places(dim: Sequence[int] | None, rank: int) -> list[int]:
    """Dims in order, counted from the front where there are such; none means all."""
    return sorted(d + rank if d < 0 else d for d in dim or range(rank))
