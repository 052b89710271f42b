"""Images, pools and single elements in a delegate: the shader's lines written out, against the table."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from float_orders import F32, run, values, worker

from refsim import aten
from refsim.core.layout import C, W
from refsim.core.qmath import PROFILES, fused
from refsim.core.rng import Rng

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

SIXTH = F32(0.16666667)


def gelu(x: np.float32) -> np.float32:
    cubed = F32(F32(F32(F32(0.044715) * x) * x) * x)
    inner = F32(np.sqrt(F32(2) / F32(3.141593))) * F32(x + cubed)
    return F32(F32(F32(0.5) * x) * F32(F32(1) + F32(np.tanh(np.float64(inner)))))


#: name -> its arguments after the tensor, and the shader's line for one finite element
LINES: dict[str, tuple[tuple[object, ...], Callable[[np.float32], np.float32]]] = {
    "relu": ((), lambda x: min(max(x, F32(0)), F32(np.inf))),
    "relu6": ((), lambda x: min(max(x, F32(0)), F32(6))),
    "hardtanh": ((-0.7, 1.1), lambda x: min(max(x, F32(-0.7)), F32(1.1))),
    "clamp": ((-0.7, 1.1), lambda x: min(max(x, F32(-0.7)), F32(1.1))),
    "hardswish": (
        (),
        lambda x: F32(0) if x <= -3 else x if x >= 3 else F32(F32(x * SIXTH) * F32(x + F32(3))),
    ),
    "hardsigmoid": ((), lambda x: F32(F32(x * SIXTH) + F32(0.5)) if abs(x) <= 3 else F32(x >= 0)),
    "leaky_relu": ((0.1,), lambda x: F32(x * F32(F32(x > 0) + F32(F32(0.1) * F32(x <= 0))))),
    "hardshrink": ((0.5,), lambda x: F32(x * F32(F32(x > 0.5) + F32(x < -0.5)))),
    "log10": ((), lambda x: F32(F32(np.log(np.float64(x))) * F32(0.4342944819))),
    "sigmoid": ((), lambda x: F32(F32(1) / F32(F32(1) + F32(np.exp(np.float64(-x)))))),
    "tanh": ((), lambda x: F32(np.tanh(np.float64(min(max(x, F32(-15)), F32(15)))))),
    "gelu": (("none",), gelu),
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


#: What ET-VK's lines gave on lavapipe, built with glslc -O: division by 6 would give other bits, as would one rounding
#: of hardsigmoid's product and sum.
SEEN = {
    "hardswish": {2.0029173: 1.6700717, -0.1184722: -0.05689683, 1.7983196: 1.4381521, 2.213465: 1.9233037},
    "hardsigmoid": {
        -2.8166237: 0.030562699,
        -2.4694085: 0.088431895,
        1.1657672: 0.6942946,
        -0.55018604: 0.4083023,
    },
}


@pytest.mark.parametrize("name", SEEN)
def test_what_lavapipe_gave(name: str) -> None:
    x, need = (np.array([*side], np.float32) for side in (SEEN[name].keys(), SEEN[name].values()))
    assert np.array_equal(run(f"aten.{name}.default", x, place=aten.Place()), need)
    assert not np.array_equal(run(f"aten.{name}.default", x), need)


def test_a_fused_hardsigmoid() -> None:
    x = np.float32(Rng(4).uniform(-3.0, 3.0, (300,)))
    found = run("aten.hardsigmoid.default", x, place=aten.Place(profile=PROFILES["nvidia"]))
    assert np.array_equal(found, fused(x, np.full(300, SIXTH), np.full(300, F32(0.5))))


def test_elements_that_are_no_numbers() -> None:
    """What the shaders' lines make of infinities."""
    ends = np.array([-np.inf, np.inf], np.float32)

    def of(name: str, *args: object) -> list[float]:
        return [float(v) for v in run(f"aten.{name}.default", ends, *args, place=aten.Place())]

    assert of("hardtanh", 0.0, 6.0) == [0.0, 6.0]
    assert of("hardswish") == [0.0, np.inf]
    assert of("hardsigmoid") == [0.0, 1.0]
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
