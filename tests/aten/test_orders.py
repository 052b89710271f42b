"""The order of additions in a delegate: each invocation of ET-VK's shaders played by hand, against the table."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from refsim import aten
from refsim.core.layout import C, H, W
from refsim.core.qmath import NVIDIA, fused
from refsim.core.rng import Rng

F32 = np.float32


def run(name: str, *args: object, place: aten.Place | None = None) -> np.ndarray:
    return aten.find(name, "node 3").run(args, "node 3", place)[0]


def values(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Of magnitudes so different that another order of additions shows."""
    rng = Rng(seed)
    return (rng.uniform(-1.0, 1.0, shape) * 2.0 ** rng.ints(0, 12, shape)).astype(np.float32)


def in_turn(parts: list[np.float32]) -> np.float32:
    total = parts[0]
    for part in parts[1:]:
        total = F32(total + part)
    return total


def tree(parts: list[np.float32]) -> np.float32:
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [F32(a + b) for a, b in zip(parts[:half], parts[half:], strict=True)]
    return parts[0]


def neighbours(parts: list[np.float32]) -> np.float32:
    while len(parts) > 1:
        parts = [F32(a + b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def worker(row: np.ndarray, first: int, step: int) -> np.float32:
    total = F32(0)
    for value in row[first::step]:
        total = F32(total + value)
    return total


def by_four(row: np.ndarray) -> np.float32:
    return in_turn([worker(row, t, 4) for t in range(4)])


def by_texels(row: np.ndarray) -> np.float32:
    """A packed dim: whole texels dealt to four workers, the rest to component x of the worker in turn."""
    full = len(row) // 4
    parts = [[worker(row[: 4 * full].reshape(-1, 4)[:, c], t, 4) for c in range(4)] for t in range(4)]
    for value in row[4 * full :]:
        parts[full % 4][0] = F32(parts[full % 4][0] + value)
    return in_turn([in_turn([parts[t][c] for t in range(4)]) for c in range(4)])


def by_lanes(row: np.ndarray) -> np.float32:
    return tree([worker(row, t, 64) for t in range(64)])


# --- sums and means --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dims", [(-1, -2), (2, 3), (3, 2), (-2, -1)])
@pytest.mark.parametrize("size", [(7, 7), (3, 3), (5, 2), (1, 9), (4, 4)])
def test_two_dims_in_four_partial_sums(dims: tuple[int, int], size: tuple[int, int]) -> None:
    """By the index mod 4 in the first dim of the list, each over all of the second."""
    x = values(1, (2, 5, *size))
    place = aten.Place(packed=C)
    found = run("aten.mean.dim", x, dims, True, None, place=place)
    for n, c in itertools.product(range(2), range(5)):
        image = x[n, c] if dims[0] % 4 == 2 else x[n, c].T
        parts = [worker(image[t::4].reshape(-1), 0, 1) for t in range(4)]
        assert found[n, c, 0, 0] == F32(in_turn(parts) / F32(size[0] * size[1]))


def test_the_two_orders_of_a_mean_differ_from_that_of_memory() -> None:
    x = values(2, (1, 64, 7, 7))
    place = aten.Place(packed=C)
    by_width, by_height = (run("aten.mean.dim", x, dims, place=place) for dims in ((-1, -2), (2, 3)))
    portable = run("aten::mean.out", x, (-1, -2), False, None)
    assert len({by_width.tobytes(), by_height.tobytes(), portable.tobytes()}) == 3


ROWS: dict[str, tuple[aten.Place, int, Callable[[np.ndarray], np.float32]]] = {
    "not packed": (aten.Place(packed=C), 3, by_four),
    "not packed, height": (aten.Place(packed=W), 2, by_four),
    "packed width": (aten.Place(packed=W), 3, by_texels),
    "packed height": (aten.Place(packed=H), 2, by_texels),
    "packed channels": (aten.Place(packed=C), 1, by_texels),
    "row of a buffer": (aten.Place(packed=W, buffer=True), 3, by_lanes),
}


@pytest.mark.parametrize("what", ROWS)
@pytest.mark.parametrize("count", [1, 3, 4, 6, 16, 19, 70, 131])
def test_one_dim(what: str, count: int) -> None:
    place, dim, total = ROWS[what]
    shape = [2, 3, 2, 3]
    shape[dim] = count
    x = values(count, tuple(shape))
    rows = np.moveaxis(x, dim, -1)
    found = run("aten.sum.dim_IntList", x, (dim,), False, None, place=place)
    mean = run("aten.mean.dim", x, (dim,), False, None, place=place)
    for at in itertools.product(*map(range, rows.shape[:-1])):
        assert found[at] == total(rows[at])
        assert mean[at] == F32(total(rows[at]) / F32(count))


def test_adaptive_pooling_is_a_mean_over_width_and_height() -> None:
    x, place = values(5, (1, 8, 7, 7)), aten.Place(packed=C)
    pooled = run("aten.adaptive_avg_pool2d.default", x, (1, 1), place=place)
    assert pooled.tobytes() == run("aten.mean.dim", x, (-1, -2), True, place=place).tobytes()


# --- products --------------------------------------------------------------------------------------------


def product_chain(pairs: list[tuple[np.float32, np.float32]], start: np.float32, fuse: bool) -> np.float32:
    total = start
    for a, b in pairs:
        total = fused(a, b, total) if fuse else F32(F32(a * b) + total)
    return total


@pytest.mark.parametrize("fuse", [False, True])
def test_linear_is_one_chain(fuse: bool) -> None:
    x, w, b = values(1, (5, 19)), values(2, (7, 19)), values(3, (7,))
    place = aten.Place(profile=NVIDIA) if fuse else aten.Place()
    found = run("aten.linear.default", x, w, b, place=place)
    for m, n in itertools.product(range(5), range(7)):
        total = product_chain(list(zip(x[m], w[n], strict=True)), F32(0), fuse)
        assert found[m, n] == F32(total + b[n])
    assert (
        run("aten.mm.default", x, w.T, place=place).tobytes()
        == run("aten.bmm.default", x[None], w.T[None], place=place).tobytes()
    )


@pytest.mark.parametrize(
    ("bits", "m", "k", "n"),
    [(8, 3, 44, 8), (8, 1, 44, 8), (8, 3, 18, 5), (8, 1, 3, 2), (4, 3, 44, 8), (4, 1, 44, 8)],
)
def test_weights_without_scales(bits: int, m: int, k: int, n: int) -> None:
    """Eight workers share a single row, texel by texel; sizes that fill no texels take another shader."""
    x, scales = values(1, (m, k)), values(2, (n,))
    whole = Rng(3).ints(-128, 127, (n, k)) if bits == 8 else Rng(3).ints(-8, 7, (n, k))
    packed = whole.astype(np.int8)
    if bits == 4:
        packed = ((whole[:, ::2] + 8) << 4 | (whole[:, 1::2] + 8)).astype(np.uint8)
    name = "aten._weight_int8pack_mm.default" if bits == 8 else "et_vk.linear_qcs4w.default"
    found = run(name, x, packed, scales, place=aten.Place(packed=W))

    def texel(row: np.ndarray, w: np.ndarray, t: int) -> np.float32:
        return in_turn(
            [F32(a * b) for a, b in zip(row[4 * t : 4 * t + 4], w[4 * t : 4 * t + 4], strict=True)]
        )

    for i, j in itertools.product(range(m), range(n)):
        row, w, texels = x[i], whole[j].astype(np.float32), range(-(-k // 4))
        if m == 1 and k % 4 == 0 and n % 4 == 0:
            parts = [worker(np.array([texel(row, w, t) for t in texels[s::8]], F32), 0, 1) for s in range(8)]
            total = worker(np.array(parts), 0, 1)
        elif k % 4:
            total = worker(np.array([texel(row, w, t) for t in texels], F32), 0, 1)
        elif bits == 8:
            total = product_chain(list(zip(row, w, strict=True)), F32(0), False)
        else:
            eights = worker(np.array([in_turn(list(row[4 * t : 4 * t + 4])) for t in texels], F32), 0, 1)
            total = product_chain(list(zip(row, w + F32(8), strict=True)), F32(0), False)
            total = F32(total + F32(eights * F32(-8)))
        assert found[i, j] == F32(total * scales[j])


#: groups, in and out channels per group, kernel, stride, dilation -> bias first, order of (channel, tap)
CONVOLUTIONS: dict[str, tuple[tuple[int, int, int, int, int, int], bool, str]] = {
    "sliding": ((1, 6, 4, 3, 1, 1), True, "four channels"),
    "grouped": ((2, 8, 4, 3, 1, 1), True, "four channels"),
    "dilated": ((1, 6, 128, 3, 1, 2), True, "four channels"),
    "im2col": ((1, 6, 128, 3, 1, 1), False, "taps"),
    "pointwise": ((1, 9, 4, 1, 1, 1), False, "channels"),
    "depthwise 3x3": ((4, 1, 1, 3, 1, 1), False, "taps"),
    "depthwise 3x3, stride 2": ((4, 1, 1, 3, 2, 1), True, "taps"),
    "depthwise 2x2": ((4, 1, 1, 2, 1, 1), True, "taps"),
}


@pytest.mark.parametrize("what", CONVOLUTIONS)
def test_convolutions(what: str) -> None:
    """The place of the bias and the order of channels and taps are those of the shader that ET-VK takes."""
    (groups, ic, oc, k, stride, dilation), first, order = CONVOLUTIONS[what]
    x, w = values(1, (1, groups * ic, 6, 5)), values(2, (groups * oc, ic, k, k))
    bias = values(3, (groups * oc,))
    pad = k // 2
    args = (x, w, bias, (stride,) * 2, (pad,) * 2, (dilation,) * 2, False, (0, 0), groups)
    found = run("aten.convolution.default", *args, place=aten.Place(packed=C))
    taps = list(itertools.product(range(k), range(k)))
    chains = {
        "channels": [(c, t) for c in range(ic) for t in taps],
        "taps": [(c, t) for t in taps for c in range(ic)],
        "four channels": [
            (c, t) for z in range(0, ic, 4) for t in taps for c in range(z, min(z + 4, ic))
        ],
    }  # fmt: skip
    for n, oh, ow in itertools.product((0, groups * oc - 1), range(found.shape[2]), range(found.shape[3])):
        pairs = []
        for c, (i, j) in chains[order]:
            y, z = oh * stride - pad + i * dilation, ow * stride - pad + j * dilation
            if 0 <= y < 6 and 0 <= z < 5:
                pairs.append((x[0, n // oc * ic + c, y, z], w[n, c, i, j]))
        total = product_chain(pairs, bias[n] if first else F32(0), False)
        assert found[0, n, oh, ow] == (total if first else F32(total + bias[n]))


def test_transposed_convolution() -> None:
    """From the bias, over the input's rows, columns and channels."""
    x, w, bias = values(1, (1, 5, 4, 3)), values(2, (5, 4, 3, 3)), values(3, (4,))
    args = (x, w, bias, (2, 2), (1, 1), (1, 1), True, (1, 0), 1)
    found = run("aten.convolution.default", *args, place=aten.Place(packed=C))
    assert found.shape == (1, 4, 8, 5)
    for n, oh, ow in itertools.product(range(4), range(8), range(5)):
        pairs = []
        for i, j in itertools.product(range(4), range(3)):
            y, z = oh + 1 - 2 * i, ow + 1 - 2 * j
            if 0 <= y < 3 and 0 <= z < 3:
                pairs += [(x[0, c, i, j], w[c, n, y, z]) for c in range(5)]
        assert found[0, n, oh, ow] == product_chain(pairs, bias[n], False)


# --- norms -----------------------------------------------------------------------------------------------


def exp(x: np.ndarray) -> np.ndarray:
    return np.exp(x.astype(np.float64)).astype(np.float32)


@pytest.mark.parametrize("what", ["not packed", "packed width", "row of a buffer"])
def test_softmax(what: str) -> None:
    """A buffer's rows are summed by four workers too."""
    place, dim, total = ROWS[what]
    total = by_four if place.buffer else total
    x = Rng(3).uniform(-4.0, 4.0, (1, 2, 3, 23)).astype(np.float32)
    found = run("aten._softmax.default", x, dim, False, place=place)
    for c, h in itertools.product(range(2), range(3)):
        powers = exp(x[0, c, h] - x[0, c, h].max())
        assert np.array_equal(found[0, c, h], powers / total(powers))


def test_softmax_of_nothing_but_infinities() -> None:
    """Repaired after a search that begins with the first element; else it begins with a finite number."""
    x = np.full((1, 4), -np.inf, np.float32)
    for place in (aten.Place(packed=C), aten.Place(packed=W), aten.Place(packed=W, buffer=True)):
        assert run("aten._softmax.default", x, 1, False, place=place).tolist() == [[0.0] * 4]
    assert np.isnan(run("aten._softmax.default", x, 1, False)).all()


@pytest.mark.parametrize(
    ("shape", "lanes"),
    [
        ((5, 40), 32),
        ((8, 40), 16),
        ((40, 16), 4),
        ((40, 8), 2),
        ((1, 40), 64),
        ((2, 3, 40), 8),
        ((6, 7, 40), 8),
        ((40, 50, 8), 2),
    ],
)
def test_layer_norm(shape: tuple[int, ...], lanes: int) -> None:
    """Lanes take texels in turn, then neighbours add up; as many lanes as the workgroup is wide."""
    n = shape[-1]
    x, w, b = values(1, shape), values(2, (n,)), values(3, (n,))

    def total(row: np.ndarray) -> np.float32:
        texels = np.concatenate([row, np.zeros(-len(row) % 4, F32)]).reshape(-1, 4)
        return in_turn([neighbours([worker(texels[:, c], t, lanes) for t in range(lanes)]) for c in range(4)])

    found = run("aten.native_layer_norm.default", x, (n,), w, b, 1e-5, place=aten.Place(packed=W))
    for row, got in zip(x.reshape(-1, n)[:3], found.reshape(-1, n), strict=False):
        middle = F32(total(row) / F32(n))
        spread = F32(total((row - middle) * (row - middle)) / F32(n))
        r = F32(np.float64(F32(spread + F32(1e-5))) ** -0.5)
        assert np.array_equal(got, (row * r + F32(-r * middle)) * w + b)


def test_layer_norm_of_a_buffer() -> None:
    x, w, b = values(1, (3, 131)), values(2, (131,)), values(3, (131,))
    place = aten.Place(packed=W, buffer=True)
    found = run("aten.native_layer_norm.default", x, (131,), w, b, 1e-5, place=place)
    for row, got in zip(x, found, strict=True):
        middle = F32(by_lanes(row) / F32(131))
        delta = row - middle
        r = F32(np.float64(F32(F32(by_lanes(delta * delta) / F32(131)) + F32(1e-5))) ** -0.5)
        assert np.array_equal(got, (delta * r) * w + b)


@pytest.mark.parametrize(("channels", "groups"), [(8, 2), (6, 2), (10, 5), (12, 1), (5, 5)])
@pytest.mark.parametrize("size", [(3, 3), (9, 7), (1, 1)])
def test_group_norm(channels: int, groups: int, size: tuple[int, int]) -> None:
    """64 lanes take runs of a group's texels, pixel by pixel; a texel may belong to two groups."""
    x, w, b = values(1, (2, channels, *size)), values(2, (channels,)), values(3, (channels,))
    inner, depth = size[0] * size[1], channels // groups
    args = (x, w, b, 2, channels, inner, groups, 1e-5)
    found = run("aten.native_group_norm.default", *args, place=aten.Place(packed=C))
    for n, g in itertools.product(range(2), range(groups)):
        first, last = g * depth, (g + 1) * depth
        texels = [
            [x[n, c, p // size[1], p % size[1]] for c in range(4 * t, 4 * t + 4) if first <= c < last]
            for p in range(inner)
            for t in range(first // 4, -(-last // 4))
        ]
        run_length = -(-len(texels) // 64)
        sums, squares = [], []
        for lane in range(64):
            one, two = F32(0), F32(0)
            for value in itertools.chain(*texels[lane * run_length : (lane + 1) * run_length]):
                one, two = F32(one + value), F32(two + F32(value * value))
            sums.append(one)
            squares.append(two)
        count = F32(depth * inner)
        middle = F32(tree(sums) / count)
        variance = F32(F32(tree(squares) / count) - F32(middle * middle))
        r = F32(F32(1) / np.sqrt(F32(variance + F32(1e-5))))
        for c in range(first, last):
            assert np.array_equal(found[n, c], ((x[n, c] - middle) * r) * w[c] + b[c], equal_nan=True)


@pytest.mark.parametrize("buffer", [False, True])
@pytest.mark.parametrize("count", [3, 64, 131, 300])
def test_rms_norm(buffer: bool, count: int) -> None:
    x, w = values(1, (2, count)), values(2, (count,))
    found = run("et_vk.rms_norm.default", x, w, 1e-6, place=aten.Place(packed=W, buffer=buffer))
    for row, got in zip(x, found, strict=True):
        squares = row * row
        if not buffer:  # a texel's four squares are added first
            texels = np.concatenate([squares, np.zeros(-count % 4, F32)]).reshape(-1, 4)
            squares = np.array([in_turn(list(texel)) for texel in texels])
        r = F32(np.float64(F32(F32(by_lanes(squares) / F32(count)) + F32(1e-6))) ** -0.5)
        assert np.array_equal(got, (row * r) * w)


def test_batch_norm() -> None:
    x = values(1, (2, 3, 4, 5))
    w, b, middle, spread = (values(seed, (3,)) for seed in (2, 3, 4, 5))
    args = (x, w, b, middle, np.abs(spread), 0.1, 1e-3)
    found = run("aten._native_batch_norm_legit_no_training.default", *args, place=aten.Place(packed=C))
    for c in range(3):
        deviation = np.sqrt(F32(np.abs(spread[c]) + F32(1e-3)))
        assert np.array_equal(found[:, c], ((x[:, c] - middle[c]) / deviation) * w[c] + b[c])


@pytest.mark.parametrize("fuse", [False, True])
def test_rotary_embeddings(fuse: bool) -> None:
    """Pairs of neighbours, and pairs half a row apart of which the last elements stay as they are."""
    q, k = values(1, (1, 3, 2, 12)), values(2, (1, 3, 1, 12))
    cos, sin = (Rng(seed).uniform(-1.0, 1.0, (5, 6)).astype(np.float32) for seed in (3, 4))
    place = aten.Place(profile=NVIDIA) if fuse else aten.Place()

    def sum_of(a: np.float32, b: np.float32, c: np.float32, d: np.float32) -> np.float32:
        return product_chain([(a, b)], F32(c * d), fuse)

    pairs = aten.find("et_vk.apply_rotary_emb.default", "").run((q, k, cos[:3], sin[:3]), "", place)
    halves = aten.find("et_vk.apply_rotary_emb_hf.default", "").run((q, k, cos, sin, 2), "", place)
    joined = np.stack([cos[:3], sin[:3]], -1)
    one = run("et_vk.apply_rotary_emb_interleaved.default", q[:, :, 0], joined, place=place)
    assert one.tobytes() == np.ascontiguousarray(pairs[0][:, :, 0]).tobytes()
    for x, near, far in zip((q, k), pairs, halves, strict=True):
        for n, p, h, i in np.ndindex(x.shape):
            if i % 2 == 0:
                a, b, c, s = x[n, p, h, i], x[n, p, h, i + 1], cos[p, i // 2], sin[p, i // 2]
                assert (near[n, p, h, i], near[n, p, h, i + 1]) == (sum_of(a, c, -b, s), sum_of(a, s, b, c))
            if i < 3:
                a, b, c, s = x[n, p, h, i], x[n, p, h, i + 3], cos[p + 2, i], sin[p + 2, i]
                assert (far[n, p, h, i], far[n, p, h, i + 3]) == (sum_of(a, c, -b, s), sum_of(b, c, a, s))
            if i >= 6:
                assert far[n, p, h, i] == x[n, p, h, i]


# --- images ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("out", [(8, 6), (7, 11), (2, 2), (4, 3)])
def test_upsample(out: tuple[int, int]) -> None:
    x, place = values(1, (1, 2, 4, 3)), aten.Place(packed=C)
    steps = [F32(n) / F32(m) for n, m in zip((4, 3), out, strict=True)]
    near = run("aten.upsample_nearest2d.vec", x, out, None, place=place)
    bilinear = run("aten.upsample_bilinear2d.vec", x, out, False, None, place=place)
    for i, j in itertools.product(*map(range, out)):
        y, z = (F32(F32(F32(o) + F32(0.5)) * s - F32(0.5)) for o, s in zip((i, j), steps, strict=True))
        row, column = (int(np.clip(np.rint(v), 0, n - 1)) for v, n in ((y, 4), (z, 3)))
        assert np.array_equal(near[0, :, i, j], x[0, :, row, column])
        (top, bottom), (left, right) = (
            [int(np.clip(f(v), 0, n - 1)) for f in (np.floor, np.ceil)] for v, n in ((y, 4), (z, 3))
        )
        fy, fx = F32(y - F32(top)), F32(z - F32(left))
        upper, lower = (x[0, :, r, left] * (F32(1) - fx) + x[0, :, r, right] * fx for r in (top, bottom))
        assert np.array_equal(bilinear[0, :, i, j], upper * (F32(1) - fy) + lower * fy)


def test_sampling_a_grid() -> None:
    """Bilinear, from the border outside, corners aligned: the one form that has a shader."""
    x, grid = values(1, (2, 3, 4, 5)), Rng(2).uniform(-1.3, 1.3, (2, 3, 2, 2)).astype(np.float32)
    found = run("aten.grid_sampler_2d.default", x, grid, 0, 1, True, place=aten.Place(packed=C))
    for n, i, j in itertools.product(range(2), range(3), range(2)):
        ends = []
        for d, size in ((1, 4), (0, 5)):
            at = F32(F32(grid[n, i, j, d] + F32(1)) * F32(0.5)) * F32(size - 1)
            at = min(max(at, F32(0)), F32(size - 1))
            low = int(np.floor(at))
            ends.append((low, min(low + 1, size - 1), F32(at - F32(low))))
        (top, bottom, fy), (left, right, fx) = ends
        upper, lower = (x[n, :, r, left] * (F32(1) - fx) + x[n, :, r, right] * fx for r in (top, bottom))
        assert np.array_equal(found[n, :, i, j], upper * (F32(1) - fy) + lower * fy)


@pytest.mark.parametrize("count_include_pad", [False, True])
def test_average_pool(count_include_pad: bool) -> None:
    """From 0, rows outside, only what lies in the image; the last window ends beyond the padding."""
    x = values(1, (1, 2, 7, 6))
    args = (x, (3, 2), (2, 2), (1, 1), True, count_include_pad, None)
    found = run("aten.avg_pool2d.default", *args, place=aten.Place(packed=C))
    assert found.shape == (1, 2, 4, 4)
    for c, i, j in itertools.product(range(2), range(4), range(4)):
        y, z = i * 2 - 1, j * 2 - 1
        taps = x[0, c, max(y, 0) : min(y + 3, 7), max(z, 0) : min(z + 2, 6)]
        rows, columns = (3 - max(y + 3 - 1 - 7, 0), 2 - max(z + 2 - 1 - 6, 0))
        count = rows * columns if count_include_pad else taps.size
        assert found[0, c, i, j] == F32(worker(taps.reshape(-1), 0, 1) / F32(count))


# --- elements --------------------------------------------------------------------------------------------

SPECIAL = np.array(
    [-np.inf, -3.5, -3, -2.9, -1e-30, -0.0, 0.0, 0.3, 2.9, 3, 3.5, 16, np.inf, np.nan], np.float32
)

#: name -> its arguments after the tensor, and the shader's line for one finite element
LINES: dict[str, tuple[tuple[object, ...], Callable[[np.float32], np.float32]]] = {
    "relu": ((), lambda x: min(max(x, F32(0)), F32(np.inf))),
    "relu6": ((), lambda x: min(max(x, F32(0)), F32(6))),
    "hardtanh": ((-0.7, 1.1), lambda x: min(max(x, F32(-0.7)), F32(1.1))),
    "clamp": ((-0.7, 1.1), lambda x: min(max(x, F32(-0.7)), F32(1.1))),
    "hardswish": ((), lambda x: F32(0) if x <= -3 else x if x >= 3 else F32(F32(x * (x + F32(3))) / F32(6))),
    "hardsigmoid": (
        (),
        lambda x: F32(x / F32(6)) + F32(0.5) if abs(x) <= 3 else F32(x >= 0),
    ),
    "leaky_relu": ((0.1,), lambda x: F32(x * F32(F32(x > 0) + F32(F32(0.1) * F32(x <= 0))))),
    "hardshrink": ((0.5,), lambda x: F32(x * F32(F32(x > 0.5) + F32(x < -0.5)))),
    "log10": ((), lambda x: F32(F32(np.log(np.float64(x))) * F32(0.4342944819))),
    "sigmoid": ((), lambda x: F32(F32(1) / F32(F32(1) + F32(np.exp(np.float64(-x)))))),
    "tanh": ((), lambda x: F32(np.tanh(np.float64(min(max(x, F32(-15)), F32(15)))))),
    "gelu": (
        ("none",),
        lambda x: F32(
            F32(F32(0.5) * x)
            * F32(
                F32(1)
                + F32(
                    np.tanh(
                        np.float64(
                            F32(np.sqrt(F32(2) / F32(3.141593)))
                            * F32(x + F32(F32(F32(F32(0.044715) * x) * x) * x))
                        )
                    )
                )
            )
        ),
    ),
    "add": ((F32(0.7), 2), lambda x: F32(x + F32(F32(2) * F32(0.7)))),
    "sub": ((F32(0.7), 2), lambda x: F32(x - F32(F32(2) * F32(0.7)))),
    "mul": ((F32(0.7),), lambda x: F32(x * F32(0.7))),
    "div": ((F32(0.7),), lambda x: F32(x / F32(0.7))),
}


@pytest.mark.parametrize("name", LINES)
def test_one_element(name: str) -> None:
    args, line = LINES[name]
    x = np.concatenate([SPECIAL[np.isfinite(SPECIAL)], values(3, (300,))])
    x = np.abs(x[x != 0]) if name.startswith("log") else x
    given = (np.array(a, np.float32) if isinstance(a, np.float32) else a for a in args)
    with np.errstate(all="ignore"):
        need = np.array([line(v) for v in x], np.float32)
    found = run(f"aten.{name}.default", x, *given, place=aten.Place())
    assert np.array_equal(found, need)


def test_elements_that_are_no_numbers() -> None:
    """What the shaders' lines make of infinities: a product with 0 is NaN."""
    ends = np.array([-np.inf, np.inf], np.float32)

    def of(name: str, *args: object) -> list[float]:
        return [float(v) for v in run(f"aten.{name}.default", ends, *args, place=aten.Place())]

    assert of("hardtanh", 0.0, 6.0) == [0.0, 6.0]
    assert of("hardswish") == [0.0, np.inf]
    assert np.isnan(of("hardsigmoid")).all()
    assert of("leaky_relu", 0.5) == [-np.inf, np.inf]
    assert of("sigmoid") == [0.0, 1.0]
    assert of("tanh") == [-1.0, 1.0]


@pytest.mark.parametrize("place", [aten.Place(packed=C), aten.Place(packed=W, buffer=True)])
def test_moves_are_the_same_everywhere(place: aten.Place) -> None:
    x, y = values(1, (1, 8, 4, 6)), values(2, (1, 8, 4, 6))
    moves: dict[str, tuple[object, ...]] = {
        "cat.default": ((x, y), 1),
        "permute_copy.default": (x, (0, 2, 3, 1)),
        "where.self": (x > 0, x, y),
        "pixel_shuffle.default": (x, 2),
        "amax.default": (x, (1,), True),
        "amin.default": (x, (3,), False),
        "max_pool2d.default": (x, (2, 2)),
    }
    for name, args in moves.items():
        inside, outside = run(f"aten.{name}", *args, place=place), run(f"aten.{name}", *args)
        assert inside.tobytes() == outside.tobytes(), name
    assert run("aten.cat.default", *moves["cat.default"])[0, 8:].tobytes() == y.tobytes()


def test_a_pool_of_infinities_gives_the_least_number() -> None:
    x = np.full((1, 4, 2, 2), -np.inf, np.float32)
    found = run("aten.max_pool2d.default", x, (2, 2), place=aten.Place(packed=C))
    assert (found == F32(-3.402823466e38)).all()
    assert (run("aten.max_pool2d.default", x, (2, 2)) == -np.inf).all()


def test_zeros_of_a_row_keep_their_sign_where_every_lane_has_one() -> None:
    """A lane of a buffer's row starts from an element, one without elements from 0."""
    place = aten.Place(packed=W, buffer=True)
    for count, sign in ((63, False), (64, True), (70, True), (128, True)):
        total = run("aten.sum.dim_IntList", np.full((1, count), -0.0, np.float32), (1,), place=place)
        assert bool(np.signbit(total[0])) is sign
