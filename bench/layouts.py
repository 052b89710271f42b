"""Repacks of every int8 layout, native and of the API, against np.copyto of as many bytes.

``native``: the kernels of the CPU executor, between plain NCHW bytes and a layout and between two layouts, which is
what whole graphs run. ``pack`` and ``unpack`` are `PackedBuffer`'s, in NumPy, with their allocations.

python -m bench.layouts
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from math import prod

import numpy as np

from bench.harness import Bench, main
from refsim.core.buffer import PackedBuffer
from refsim.core.layout import INT8_LAYOUTS, Layout
from refsim.core.layout import layout as layout_named
from refsim.core.rng import Rng
from refsim.core.tensor import TensorDesc
from refsim.exec.cpu.routes import choose
from refsim.exec.cpu.thread_pool import JobList
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import OpSpec
from refsim.ops.base.traits import Family

#: Sizes as in the middle of a network; and the same with nothing a multiple of 4.
SHAPES = {"1x64x112x112": (1, 64, 112, 112), "1x67x111x113": (1, 67, 111, 113)}


@dataclass(frozen=True)
class Data:
    """An array, its packed form, and two plain buffers of as many bytes."""

    layout: Layout
    array: np.ndarray
    buffer: PackedBuffer
    source: np.ndarray
    target: np.ndarray


def setup(layout: Layout, shape: tuple[int, ...]) -> Data:
    array = Rng(0).int8(shape)
    buffer = PackedBuffer.pack(array, layout)
    return Data(layout, array, buffer, buffer.raw.copy(), np.zeros_like(buffer.raw))


def pack(data: Data) -> PackedBuffer:
    return PackedBuffer.pack(data.array, data.layout)


def unpack(data: Data) -> np.ndarray:
    return data.buffer.unpack()


def copy(data: Data | Native) -> None:
    np.copyto(data.target, data.source)


@dataclass(frozen=True)
class Native:
    """A repack ready to run, and two plain buffers of as many bytes."""

    jobs: JobList
    buffers: dict[str, np.ndarray]
    source: np.ndarray
    target: np.ndarray


def native(op: OpSpec, x: TensorDesc, out_layout: str, params: dict[str, object]) -> Native:
    call = op.bind(op.make_params(params), {"x": x}, {}, out_layout)
    made = choose(call).jobs()
    assert made, f"{call} has no native kernel"
    buffers = {"x": PackedBuffer(x).words, "out": PackedBuffer(call.out).words}
    jobs = JobList(made, 1, {name: words.ctypes.data for name, words in buffers.items()})
    larger = max(x, call.out, key=lambda desc: desc.nbytes)
    source, target = PackedBuffer(larger).raw, PackedBuffer(larger).raw
    for read in (buffers["x"], source):
        read[:] = 1  # pages that nobody has written are all the same page of zeros
    return Native(jobs, buffers, source, target)


def repack(data: Native) -> None:
    data.jobs.run()


def _native(name: str, op: OpSpec, given: tuple[int, ...], layout: str, out: str, **params: object) -> Bench:
    return Bench(
        name,
        setup=lambda: native(op, TensorDesc(given, layout_named(layout)), out, params),
        run=repack,
        peers={"np.copyto": copy},
        work=lambda data: {"bytes": data.source.nbytes},
    )


def _natives() -> Iterator[Bench]:
    name, shape = next(iter(SHAPES.items()))
    ((stage_in,), (stage_out,), (relayout,)) = map(
        OPS.of_family, (Family.STAGE_IN, Family.STAGE_OUT, Family.RELAYOUT)
    )
    plain = (prod(shape),)
    for layout in map(str, INT8_LAYOUTS):
        yield _native(f"native NCHW -> {layout} {name}", stage_in, plain, "4W", layout, shape=shape)
        yield _native(f"native {layout} -> NCHW {name}", stage_out, shape, layout, "4W")
    for a, b in permutations(map(str, INT8_LAYOUTS), 2):
        yield _native(f"native {a} -> {b} {name}", relayout, shape, a, b)


BENCHES = [
    *_natives(),
    *(
        Bench(
            f"{verb.__name__} {layout} {name}",
            setup=lambda layout=layout, shape=shape: setup(layout, shape),
            run=verb,
            peers={"np.copyto": copy},
            work=lambda data: {"bytes": data.buffer.desc.nbytes},
        )
        for name, shape in SHAPES.items()
        for layout in INT8_LAYOUTS
        for verb in (pack, unpack)
    ),
]

if __name__ == "__main__":
    sys.exit(main("layouts", BENCHES))
