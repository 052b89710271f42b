"""include/index.glsl against refsim/core/index.py: every layout, every shape up to 5 x 5 x 5 x 2, every coordinate."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from refsim.core import index
from refsim.core.buffer import GUARD_WORDS
from refsim.core.jit import emulated_kernel
from refsim.core.launch import PLANE_ROW, Launch, plane_global_size
from refsim.core.layout import FLOAT_LAYOUTS, INT8_LAYOUTS, Layout
from refsim.core.push import MAX_PUSH_WORDS
from refsim.core.tensor import TensorDesc
from refsim_gpu import spirv
from refsim_gpu.build_push import PROBES
from refsim_gpu.executor import KomputeExecutor
from refsim_gpu.kompute import Device
from refsim_gpu.pipelines import guarded_words

LAYOUTS = (*FLOAT_LAYOUTS, *INT8_LAYOUTS)
SHAPES = tuple((n, c, h, w) for n, c, h, w in product((1, 2), *[range(1, 6)] * 3))
#: Beyond the largest padded size along w, h and c, and beyond n.
BOX = (9, 9, 9, 3)
COORDS = np.array(list(np.ndindex(BOX)), np.int32)
#: What is walked over: one element, blocks that are cut off, and several workgroups along each dim of a plane.
WALKED = (
    (1, 1, 1, 1), (2, 5, 3, 7), (2, 3, 5, 2), (1, 1, 1, 2000), (1, 1, 2000, 1), (1, 2000, 1, 1), (2, 37, 29, 41),
    (7, 1, 3, 5, 2, 3),
)  # fmt: skip
ROW, LOCAL = 16, 64


@emulated_kernel
def rows(meta, hashed, coords, out):  # type: ignore[no-untyped-def]
    """What index.py gives for each coordinate, in the order of probe/index.comp."""
    for i in range(len(coords)):
        w, h, c, n = coords[i, 0], coords[i, 1], coords[i, 2], coords[i, 3]
        out[i, 0] = index.block_idx(meta, 0, hashed, w, h, c, n)
        out[i, 1] = index.intra_block_idx(hashed, w, h, c, n)
        out[i, 2] = index.buf_idx(meta, 0, hashed, w, h, c, n)
        out[i, 3] = index.word_idx(meta, 0, hashed, w, h, c, n)
        out[i, 4] = index.inside(meta, 0, w, h, c, n)
        out[i, 5] = index.lanes_inside(meta, 0, hashed, w, h, c, n)
        out[i, 6], out[i, 7], out[i, 8] = index.lane_coord(hashed, i & 3, w, h, c)
        out[i, 9] = n
        for dim in range(4):
            out[i, 10 + dim] = index.block_extent(hashed, dim)
        out[i, 14] = max(index.words_per_block(hashed), 1)
        out[i, 15] = min(index.block_numel(hashed), 4)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_formulas(device: Device, layout: Layout) -> None:
    kp = device.kp
    count = len(COORDS)
    tensors = [device.tensor(guarded_words(COORDS.reshape(-1)))]
    tensors.append(device.tensor(guarded_words(np.zeros(count * ROW, np.int32))))
    spec = (LOCAL, 1, 1, 1, 1, 1, layout.hashed)
    grid = (-(-count // LOCAL), 1, 1)
    algorithm = device.algorithm(
        spirv.load("probe/index"), tensors, grid, spec, [0] * MAX_PUSH_WORDS, local=(LOCAL, 1, 1)
    )
    device.run(device.recorded(kp.OpTensorSyncDevice(tensors)))
    want = np.zeros((count, ROW), np.int32)
    for shape in SHAPES:
        desc = TensorDesc(shape, layout)
        push = np.zeros(MAX_PUSH_WORDS, np.uint32)
        words = PROBES["probe/index"][0].pack({"meta": desc}, COUNT=count)
        push[: len(words)] = words
        sequence = device.recorded(device.dispatch(algorithm, push), kp.OpTensorSyncLocal([tensors[1]]))
        device.run(sequence)
        got = tensors[1].data()[GUARD_WORDS:][: count * ROW].view(np.int32).reshape(count, ROW)
        rows(np.array(desc.meta, np.int64), layout.hashed, COORDS, want)
        np.testing.assert_array_equal(got, want, err_msg=str(desc))


def walk(desc: TensorDesc) -> tuple[Launch, np.ndarray]:
    """The launch of probe/walk.comp, and the words that it should write."""
    per_word = 4 if desc.is_int8 else 1
    firsts = np.arange(desc.words) * per_word
    coords = np.array(index.coord(desc.meta, 0, desc.hashed, firsts))
    radix = np.cumprod([1, *(coords.max(axis=1) + 1)])
    assert radix[-1] * 4 < 2**31
    inside = index.inside(desc.meta, 0, *coords)
    inner = desc.layout.inner
    left = desc.sizes_whcn[inner] - coords[inner]
    lanes = np.where(inside, np.minimum(4, left), 0)
    names = ("RADIX_W", "RADIX_H", "RADIX_C", "RADIX_N", "RADIX_LANES")
    multipliers = dict(zip(names, radix, strict=True))
    launch = Launch(
        shader="probe/walk",
        out=desc,
        spec=(desc.hashed,),
        push=PROBES["probe/walk"][0].pack({"out": desc}, **multipliers),
        global_size=plane_global_size(desc),
        local=(256, 1, 1),
        tile=(4, 1, 1),
    )
    return launch, (radix[:4] @ coords + radix[4] * lanes).astype(np.int32)


def check(executor: KomputeExecutor, desc: TensorDesc) -> None:
    launch, want = walk(desc)
    np.testing.assert_array_equal(executor.run(launch, []).words, want, err_msg=str(desc))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_walk(executor: KomputeExecutor, layout: Layout) -> None:
    """Several workgroups along a plane, and outer dims that fold into n."""
    for shape in WALKED:
        check(executor, TensorDesc(shape, layout))


@pytest.mark.parametrize("layout", (INT8_LAYOUTS[0], FLOAT_LAYOUTS[0]), ids=str)
def test_walk_over_more_planes_than_a_row_holds(executor: KomputeExecutor, layout: Layout) -> None:
    check(executor, TensorDesc((2 * PLANE_ROW, 1, 1, 1), layout))


def test_wrong_strides_would_be_seen(executor: KomputeExecutor) -> None:
    launch, want = walk(TensorDesc((1, 8, 4, 8), INT8_LAYOUTS[0]))
    other, _ = walk(TensorDesc((1, 4, 8, 8), INT8_LAYOUTS[0]))
    assert launch.out.words == other.out.words
    wrong = replace(launch, push=other.push[:8] + launch.push[8:])
    assert (executor.run(wrong, []).words != want).any()
