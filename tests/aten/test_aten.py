"""Float operators: the NumPy table by hand, against torch where it is installed, and the bridge's refusals."""

from __future__ import annotations

import tracemalloc
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from refsim import aten
from refsim.aten import bridge
from refsim.aten.pool import max_pool2d_with_indices
from refsim.aten.table import TABLE
from refsim.core.errors import GraphError, LimitError, UnknownOperatorError
from refsim.core.rng import Rng

needs_torch = pytest.mark.skipif(
    find_spec("torch") is None, reason="torch is not installed (pip install 'refsim[torch]')"
)
NAN, INF = np.nan, np.inf


def f32(*values: object) -> np.ndarray:
    return np.array(values, np.float32)


def run(name: str, *args: object) -> tuple[np.ndarray, ...]:
    operator = aten.find(name, "node 3")
    assert operator.source == "float"
    return operator.run(args, "node 3")


# --- by hand ---------------------------------------------------------------------------------------------

IMAGE = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4)

#: What torch does not say: other names, defaults, dtypes, and the order of a sum. `AGAINST_TORCH` has the rest.
BY_HAND = {
    "mean out": ("aten::mean.out", (IMAGE, (2, 3), False, None), f32([5.5]).reshape(1, 1)),
    # 2**24 + 1 is no binary32 number: one addition after another loses every 1
    "mean in order": ("aten.mean.dim", (f32(2.0**24, 1, 1, 1), (0,)), np.float32(2.0**22)),
    "hardtanh default": ("aten.hardtanh.default", (f32(-7, 0.5, 9),), f32(-1, 0.5, 1)),
    "add scalar": ("aten.add.Tensor", (f32(1, 2), 3, 2), f32(7, 8)),
    "add int to float": ("aten.add.Tensor", (np.arange(2), f32(1, 2)), f32(1, 3)),
    "clone": ("aten.clone.default", (f32(1, 2), None), f32(1, 2)),
    "avg_pool2d": ("aten.avg_pool2d.default", (IMAGE, (2, 2)), f32([2.5, 4.5]).reshape(1, 1, 1, 2)),
}


@pytest.mark.parametrize("what", BY_HAND)
def test_by_hand(what: str) -> None:
    name, args, expected = BY_HAND[what]
    (result,) = run(name, *args)
    assert result.dtype == np.float32
    assert result.shape == expected.shape
    assert np.array_equal(result, expected, equal_nan=True)


def test_max_pool_by_hand() -> None:
    x = f32([1, 5, 2], [7, 7, 0], [3, NAN, 4]).reshape(1, 1, 3, 3)
    values, places = run("aten.max_pool2d_with_indices.default", x, (2, 2), (1, 1))
    assert np.array_equal(values.reshape(2, 2), f32([7, 7], [NAN, NAN]), equal_nan=True)
    assert places.reshape(2, 2).tolist() == [[3, 4], [7, 7]]  # the first of equal values
    values, places = run("aten.max_pool2d_with_indices.default", -x, 2, 2, 1)
    assert values.reshape(2, 2)[0].tolist() == [-1, -2]  # the border never wins
    assert places.dtype == np.int64


def test_results_never_share_memory_with_arguments() -> None:
    x = f32(1, 2)
    for name, args in (
        ("aten.view_copy.default", ((2, 1),)), ("aten.clone.default", ()), ("aten.cat.default", None)
    ):  # fmt: skip
        (result,) = run(name, (x,), 0) if args is None else run(name, x, *args)
        assert not np.shares_memory(result, x), name


# --- against torch ---------------------------------------------------------------------------------------

#: sums of these are exact, so that the order of additions, which torch chooses freely, does not matter
EXACT = (Rng(5).ints(-64, 64, (2, 3, 7, 6)) / 8).astype(np.float32)
SPECIAL = EXACT.copy()
SPECIAL[0, 0, :2] = NAN
SPECIAL[0, 1, 0, :3] = (INF, -INF, -0.0)

AGAINST_TORCH = [
    ("aten.view_copy.default", (SPECIAL, (6, -1))),
    ("aten.permute_copy.default", (SPECIAL, (0, 2, 3, 1))),
    ("aten.permute_copy.default", (SPECIAL, (-1, 0, 1, 2))),
    *(("aten.mean.dim", (EXACT[..., :4, :4], dims, keep)) for dims in ((2, 3), (-1,), (1,)) for keep in (True, False)
      if dims != (1,)),
    ("aten.mean.dim", (EXACT[:, :2], (1,), True)),
    ("aten.hardtanh.default", (SPECIAL, 0.0, 6.0)),
    ("aten.relu.default", (SPECIAL,)),
    ("aten.add.Tensor", (SPECIAL, EXACT)),
    ("aten.add.Tensor", (EXACT, EXACT[:, :, :1], 0.5)),
    ("aten.mul.Tensor", (SPECIAL, EXACT[:1])),
    ("aten.mul.Tensor", (EXACT, 0.3)),
    ("aten.cat.default", ((SPECIAL, EXACT), -2)),
    ("aten.clone.default", (SPECIAL,)),
]  # fmt: skip
INTS = Rng(6).ints(-9, 9, (3, 4, 5))
VOLUME = (Rng(7).ints(-64, 64, (1, 2, 5, 6, 4)) / 8).astype(np.float32)
PLACES = Rng(8).ints(0, 2, (2, 3, 4, 5))
DEEP = EXACT[:2, :2, :3, :4].reshape(3, 2, 2, 2, 2)
SHALLOW = EXACT[:, :2, :4, :4].reshape(2, 4, 2, 2, 2)
#: rows that no kernel of ExecuTorch's stands for, and those that its wheel computes by another library
AGAINST_TORCH += [
    ("aten.convolution.default", (VOLUME, DEEP, None, (1, 2, 1), (1, 0, 1), (1, 1, 2), False, (0, 0, 0), 1)),
    (
        "aten.convolution.default",
        (EXACT[:, :, 0], EXACT[0, :, :2, :3], None, (2,), (1,), (1,), True, (1,), 1),
    ),
    (
        "aten.convolution.default",
        (VOLUME, SHALLOW, None, (2, 1, 1), (0, 1, 0), (1, 1, 1), True, (1, 0, 0), 1),
    ),
    ("aten.avg_pool3d.default", (VOLUME, (2, 2, 2), (2, 1, 2), (1, 0, 0))),
    ("aten.avg_pool3d.default", (VOLUME, (2, 2, 2), (2, 2, 2), (1, 1, 0), True, True, 16)),
    ("aten.max_pool3d_with_indices.default", (VOLUME, (2, 3, 2), (2, 1, 2), (1, 1, 0))),
    ("aten.adaptive_max_pool2d.default", (EXACT, (3, 4))),
    ("aten.adaptive_max_pool2d.default", (EXACT, (1, 1))),
    ("aten.adaptive_max_pool3d.default", (VOLUME, (2, 3, 3))),
    ("aten.sort.default", (SPECIAL[:, :, 2:], 1)),
    ("aten.sort.stable", (EXACT, True, 2, True)),
    ("aten.argsort.stable", (EXACT, True, -1, False)),
    ("aten.topk.default", (np.unique(EXACT)[None, ::-1].copy(), 4, 1)),
    ("aten.topk.default", (np.unique(EXACT)[None], 3, -1, False)),
    ("aten.cumprod.default", (EXACT[..., :3].clip(-2, 2), 3)),
    ("aten.cumsum.default", (INTS, 1)),
    ("aten.prod.default", (INTS[0, 0],)),
    ("aten.prod.dim_int", (INTS, 1, True)),
    ("aten.var_mean.correction", (EXACT[..., :4], (3,), 0, True)),
    ("aten.scatter_reduce.two", (EXACT, 1, PLACES, EXACT[:, :, :4, :5], "amax")),
    ("aten.scatter_reduce.two", (EXACT, 1, PLACES, EXACT[:, :, :4, :5], "sum")),
    ("aten.scatter_add.default", (EXACT, 2, PLACES, EXACT)),
    ("aten.gather.default", (EXACT, 1, PLACES)),
    ("aten.masked_select.default", (EXACT, EXACT[:, :1] > 0)),
    ("aten.masked_scatter.default", (EXACT, EXACT[:, :1] > 0, EXACT[::-1].copy())),
    ("aten.nonzero.default", (INTS > 3,)),
    ("aten.repeat_interleave.Tensor", (np.array([2, 0, 3, 1]),)),
    ("aten.index.Tensor", (EXACT, (None, np.array([[0, 2], [1, 1]]), None, np.array([[3, 0], [1, 5]])))),
    ("aten.index.Tensor", (EXACT, (None, np.array([2, 0]), np.array([6, 1]), None))),
    ("aten.index_put.default", (EXACT, (None, np.array([1, 1])), EXACT[:, :1], True)),
    ("aten.as_strided.default", (EXACT, (2, 5), (3, 4), 7)),
    ("aten.diagonal.default", (EXACT, -1, 2, 3)),
    ("aten.narrow_copy.default", (EXACT, 2, -3, 2)),
    ("aten.unfold.default", (EXACT, 2, 3, 2)),
    ("aten.pixel_unshuffle.default", (EXACT[:, :, :6], 2)),
    ("aten.glu.default", (np.zeros((2, 4), np.float32), 1)),
    ("aten.hardshrink.default", (SPECIAL, 0.5)),
    ("aten.hardsigmoid.default", (SPECIAL,)),
    ("aten.leaky_relu.default", (SPECIAL, 0.25)),
    ("aten.prelu.default", (EXACT, f32(0.5, -0.25, 2))),
    ("aten.round.decimals", (EXACT, 1)),
    ("aten.floor_divide.default", (EXACT, f32(0.375))),
    ("aten.div.Tensor_mode", (INTS, INTS + 20, "trunc")),
    ("aten.div.Tensor_mode", (EXACT, f32(-0.375), "floor")),
    ("aten.remainder.Scalar", (EXACT, -0.75)),
    ("aten.fmod.Scalar", (EXACT, 0.75)),
    ("aten.bitwise_left_shift.Tensor_Scalar", (INTS.clip(0), 2)),
    ("aten.__rshift__.Scalar", (INTS, 1)),
    ("aten.bitwise_xor.Tensor", (INTS, INTS[::-1].copy())),
    ("aten._cdist_forward.default", (EXACT[:, 0], EXACT[:, 1], 1.0, None)),
    ("aten._cdist_forward.default", (EXACT[:, 0], EXACT[:, 1], float("inf"), None)),
    ("aten._pdist_forward.default", (EXACT[0, 0], 1.0)),
    ("aten.amax.default", (SPECIAL, (0, 2), True)),
    ("aten.argmax.default", (INTS, 1, True)),
    ("aten.max.dim", (EXACT, 3, False)),
    ("aten.any.dims", (INTS > 8, (0, 2))),
    ("aten.all.dim", (INTS > -9, 1, True)),
    ("aten.tril.default", (EXACT, 1)),
    ("aten.roll.default", (EXACT, (2, -1), (2, 3))),
    ("aten.constant_pad_nd.default", (EXACT, (1, -2, 0, 3), 0.5)),
    ("aten.reflection_pad1d.default", (EXACT[0], (2, 3))),
    ("aten.replication_pad3d.default", (VOLUME, (1, 2, 0, 1, 2, 0))),
    ("aten.embedding.default", (EXACT[0, 0], np.array([[3, 0], [6, 6]]))),
    ("aten.slice_scatter.default", (EXACT, EXACT[:, :, ::3].copy(), 2, 0, 7, 3)),
    ("aten.arange.start_step", (3, -4, -2)),
    ("aten.full.default", ((2, 3), 1.5)),
    ("aten.where.self", (EXACT > 0, EXACT, EXACT[:1])),
    ("aten.where.ScalarOther", (EXACT > 0, EXACT, -1.0)),
    ("aten.linalg_vector_norm.default", (EXACT, float("inf"), (1, 2))),
    ("aten.linalg_vector_norm.default", (EXACT[..., :4], 1, (3,), True)),
]
#: computed in binary64 and rounded once: what torch gives for binary64, rounded
FUNCTIONS = [
    "exp", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos",
    "atan", "asinh", "acosh", "atanh", "erf", "logit", "sqrt",
]  # fmt: skip
POOLS = [
    (k, s, p, d, ceil)
    for k in ((2, 3), (3, 3), (1, 4))
    for s in ((), (1, 2), (2, 2), (3, 1))
    for p in ((0, 0), (k[0] // 2, k[1] // 2))
    for d in ((1, 1), (2, 1))
    for ceil in (False, True)
    if d[0] * (k[0] - 1) < 7
]


def against_torch(name: str, args: tuple) -> None:
    ours = run(name, *args)
    theirs = bridge._from_torch(name, "test")(*args)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape, name
        assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), (name, args[1:])


@needs_torch
@pytest.mark.parametrize(("name", "args"), AGAINST_TORCH, ids=lambda a: a if isinstance(a, str) else "")
def test_against_torch(name: str, args: tuple) -> None:
    against_torch(name, args)


@needs_torch
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_against_torch_in_binary64(name: str) -> None:
    x = Rng(9).uniform(-4.0, 4.0, (4000,)).astype(np.float32)
    x = np.abs(x) + 1 if name == "acosh" else x / 5 if name in ("asin", "acos", "atanh") else x
    x = np.abs(x) / (5 if name == "logit" else 1) if name.startswith(("log", "sqrt")) else x
    (ours,) = run(f"aten.{name}.default", x)
    (theirs,) = bridge._from_torch(f"aten.{name}.default", "test")(x.astype(np.float64))
    if name == "logit":  # a quotient in binary32, then a logarithm
        theirs = np.log((x / (np.float32(1) - x)).astype(np.float64))
    assert np.array_equal(ours, theirs.astype(np.float32))


@needs_torch
def test_pools_against_torch() -> None:
    for kernel, stride, padding, dilation, ceil in POOLS:
        for image in (EXACT, SPECIAL):
            against_torch(
                "aten.max_pool2d_with_indices.default", (image, kernel, stride, padding, dilation, ceil)
            )
        if dilation == (1, 1) and np.prod(kernel) in (4, 8):
            for include in (True, False):
                against_torch("aten.avg_pool2d.default", (EXACT, kernel, stride, padding, ceil, include))
    for include in (True, False):
        for args in ((2, 2, 1), (4, 2, 2), ((2, 4), (1, 3), (1, 0))):
            against_torch("aten.avg_pool2d.default", (EXACT, *args, False, include))
            if include:
                against_torch("aten.avg_pool2d.default", (EXACT, *args, True, include, 16))


@needs_torch
@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("aten.sub.Tensor", (f32(5, 6), f32(1, 2), 2), f32(3, 2)),  # alpha is a keyword in torch
        ("aten::sub.out", (f32(5, 6), f32(1, 2), 2), f32(3, 2)),
        (
            "aten._to_copy.default",
            (f32(1, 2), 3, None, None),
            np.array([1, 2], np.int32),
        ),  # dtype by its code
        ("aten.sum.dim_IntList", (f32([1, 2], [3, 4]), (0,), False, None), f32(4, 6)),
        ("aten::sum.IntList_out", (f32([1, 2], [3, 4]), (0,), False, None), f32(4, 6)),
        ("aten.split_copy.Tensor", (f32(1, 2), 1, 0), f32(1)),
    ],
)
def test_the_bridge_follows_the_schema(name: str, args: tuple, expected: np.ndarray) -> None:
    result = bridge.Operator(name, None).run(args, "node 3")[0]  # the table has most of these too
    assert result.dtype == expected.dtype
    assert np.array_equal(result, expected)


@needs_torch
def test_the_bridge_runs_what_the_table_lacks() -> None:
    operator = aten.find("aten.erfc.default", "node 3")
    assert operator.source == "torch"
    (result,) = operator.run([f32(0, INF)], "node 3")
    assert result.tolist() == [1.0, 0.0]
    with pytest.raises(UnknownOperatorError, match=r"node 3.*aten\.no_such_thing"):
        aten.find("aten.no_such_thing.default", "node 3").run([], "node 3")
    with pytest.raises(UnknownOperatorError, match=r"node 3.*overload.*no_such_form"):
        aten.find("aten.erfc.no_such_form", "node 3").run([], "node 3")
    for wrong in (["text"], [], [f32(1), 2, 3]):
        with pytest.raises(GraphError, match=r"node 3: torch refuses"):
            operator.run(wrong, "node 3")


WHOLE = {
    "unsqueeze": ("aten.unsqueeze_copy.default", (IMAGE, 1.0), (1, 1, 1, 3, 4)),
    "slice": ("aten.slice_copy.Tensor", (IMAGE, 3.0, 1.0, 3.0, 1.0), (1, 1, 3, 2)),
    "select": ("aten.select_copy.int", (IMAGE, 3.0, 2.0), (1, 1, 3)),
    "softmax": ("aten._softmax.default", (IMAGE, -1.0, False), (1, 1, 3, 4)),
    "cat": ("aten.cat.default", ((IMAGE, IMAGE), 2.0), (1, 1, 6, 4)),
    "split": ("aten.split_copy.Tensor", (IMAGE, 2.0, 3.0), (1, 1, 3, 2)),
    "topk": ("aten.topk.default", (IMAGE, 2.0, -1.0), (1, 1, 3, 2)),
    "shuffle": ("aten.pixel_unshuffle.default", (IMAGE[:, :, :2], 2.0), (1, 4, 1, 2)),
}


@pytest.mark.parametrize("what", WHOLE)
def test_whole_numbers_may_come_as_floats(what: str) -> None:
    """ExecuTorch's serializer stores 1 and 1.0 as one value: a dim may be 1.0 where a scale of 1.0 came first."""
    name, args, shape = WHOLE[what]
    assert run(name, *args)[0].shape == shape
    with pytest.raises(GraphError, match="node 3: refsim refuses the arguments"):
        run(name, args[0], *(0.5 for _ in args[1:]))


# --- refusals --------------------------------------------------------------------------------------------


def test_without_torch_an_unknown_operator_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "find_spec", lambda name: None)
    with pytest.raises(
        UnknownOperatorError, match=r"model\.pte: node 3: .*aten\.erfc\.default.*refsim\[torch\]"
    ):
        aten.find("aten.erfc.default", "model.pte: node 3")


@pytest.mark.parametrize("name", ["", "a", "aten.", "aten.add.Tensor.more", "aten add", "."])
def test_no_operator_name(name: str) -> None:
    with pytest.raises(UnknownOperatorError, match="node 3"):
        aten.find(name, "node 3")


REFUSED = {
    "wrong size": ("aten.view_copy.default", (IMAGE, (5, 5))),
    "no such dim": ("aten.mean.dim", (IMAGE, (4,))),
    "mean of ints": ("aten.mean.dim", (np.arange(4), (0,))),
    "not a tensor": ("aten.relu.default", (None,)),
    "too many arguments": ("aten.relu.default", (IMAGE, 1, 2)),
    "stride 0": ("aten.max_pool2d_with_indices.default", (IMAGE, 2, 0)),
    "kernel 0": ("aten.avg_pool2d.default", (IMAGE, 0, 1)),
    "kernel too large": ("aten.avg_pool2d.default", (IMAGE, 5, 1)),
    "padding over half": ("aten.avg_pool2d.default", (IMAGE, 2, 1, 2)),
    "shapes": ("aten.add.Tensor", (f32(1, 2), f32(1, 2, 3))),
    "mean of no such dtype": ("aten.sum.dim_IntList", (IMAGE, (1,), False, 99)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_arguments(what: str) -> None:
    name, args = REFUSED[what]
    with pytest.raises(GraphError, match="node 3: refsim refuses the arguments"):
        run(name, *args)


def test_an_absurd_window_costs_no_more_than_the_image() -> None:
    (result,) = run("aten.avg_pool2d.default", IMAGE, 1 << 20, 1, 1 << 19)
    assert result.shape == (1, 1, 4, 5)
    assert result[0, 0, 1, 1] == IMAGE.sum() / np.float32(2.0**40)
    values, _ = run("aten.max_pool2d_with_indices.default", IMAGE, 1 << 40, 1, 1 << 39)
    assert (values == IMAGE.max()).sum() > 0


def test_every_name_of_the_table_is_found() -> None:
    for base in TABLE:
        names = (base,) if "." in base else (base, f"{base}.default", f"{base}.out")
        for name in (f"{space}{form}" for form in names for space in ("aten.", "aten::")):
            assert aten.find(name, "").row is TABLE[base]
    assert TABLE["max_pool2d_with_indices"].portable is max_pool2d_with_indices


# --- sizes ---


X = np.ones((1, 1, 4, 4), np.float32)
W = np.ones((1, 1, 1, 1), np.float32)
BIG = 1 << 20


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("aten::full.out", ((BIG, BIG), 1.0)),
        ("aten::arange.out", (1 << 40,)),
        ("aten::arange.start_out", (0, 1.0, 1e-12)),
        ("aten::expand_copy.out", (X[..., :1], (1, 1, 4, 1 << 40))),
        ("aten::repeat.out", (X, (1, 1, BIG, BIG))),
        ("aten::constant_pad_nd.out", (X, (BIG, BIG, BIG, BIG), 0.0)),
        ("aten::upsample_nearest2d.out", (X, (BIG, BIG))),
        ("aten::upsample_bilinear2d.out", (X, (BIG, BIG), False)),
        ("aten::convolution.out", (X, W, None, (1, 1), (BIG, BIG), (1, 1), False, (0, 0), 1)),
        ("aten::convolution.out", (X, W, None, (BIG, BIG), (0, 0), (1, 1), True, (0, 0), 1)),
        ("aten::repeat_interleave.Tensor_out", (np.array([1 << 40]),)),
    ],
)
def test_results(name: str, args: tuple[Any, ...]) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(LimitError, match="its result"):
            aten.find(name, "x").run(args, "x")
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()
