"""The order of additions in a delegate: each invocation of ET-VK's shaders played by hand, against the table."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from float_orders import (
    F32,
    ROWS,
    by_four,
    by_lanes,
    in_turn,
    neighbours,
    product_chain,
    run,
    tree,
    values,
    worker,
)

from refsim import aten
from refsim.core.layout import C, W
from refsim.core.qmath import NVIDIA
from refsim.core.rng import Rng

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
