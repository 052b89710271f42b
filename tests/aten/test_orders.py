"""The order of additions in a delegate: each invocation of ET-VK's shaders played by hand, against the table."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from float_orders import F32, ROWS, in_turn, product_chain, run, values, worker

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
