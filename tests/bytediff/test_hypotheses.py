"""Every hypothesis recognizes its bug in bytes that it did not make, and names it among the first three."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from wrong_bytes import ADD, BOUND, GEMV, IM2COL, ROWS, Wrong
from wrong_kernels import CONV

from refsim.bytediff import diff, rerun
from refsim.bytediff.evidence import Evidence
from refsim.bytediff.hypotheses import ALL, groups
from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.core.layout import layout
from refsim.core.rng import Rng
from refsim.core.tensor import TensorDesc
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case
from refsim.ops.base.conv import accumulate, nchw4
from refsim.ops.base.registry import OPS
from refsim.ops.base.traits import WINDOWED, Affine


def check(name: str, detail: str, bound: BoundCase, wrong: Any, **more: Any) -> None:
    expected = bound.call.expected(bound.inputs)
    if isinstance(wrong, np.ndarray) and wrong.ndim == 4:
        values, wrong = wrong, PackedBuffer(expected.desc)
        wrong.raw[:] = expected.raw
        elements = expected.kinds() == ByteKind.VALUE
        wrong.raw[elements] = PackedBuffer.pack(values, expected.desc.layout).raw[elements]
    report = diff(expected, wrong, call=bound, search=0, **more)
    assert not report.same
    found = [cause for cause in report.causes[:3] if cause.name == name]
    assert found, f"{name} is not among:\n{report}"
    assert detail in found[0].detail and found[0].exact, f"{detail} is not in:\n{report}"


@pytest.mark.few(63)
@pytest.mark.parametrize(("name", "detail", "wrong"), ROWS, ids=[f"{n}: {d}" for n, d, _ in ROWS])
def test_bug_is_named(name: str, detail: str, wrong: Wrong) -> None:
    check(name, detail, *wrong())


def test_constant_of_the_call_before() -> None:
    before = bind(replace(CONV, params={**CONV.params, "in_zp": -40, "out_scale": 2.0}, seed=8))
    stale = replace(BOUND.call, params=replace(BOUND.call.params, out_scale=2.0))
    check(
        "stale constant",
        "out_scale of the call before",
        BOUND,
        stale.expected(BOUND.inputs).unpack(),
        previous=before,
    )


def test_constants_of_another_operator() -> None:
    """In a recorded sequence the call before need not be of the same operator."""
    before = bind(replace(IM2COL.case, seed=31))
    names = ("weight_sums", "weight_scales", "bias")
    stale = replace(BOUND.call, consts={**BOUND.call.consts, **{n: before.call.consts[n] for n in names}})
    wrong = stale.expected(BOUND.inputs).unpack()
    check("stale constant", ", ".join(names), BOUND, wrong, previous=before)


def test_quantization_of_the_producer() -> None:
    """A chained linear that takes the scale and zero point of its producer's input."""
    params = {**GEMV.case.params, "in_scale": 0.3, "in_zp": -11}
    producer = bind(replace(GEMV.case, params=params, seed=2))
    stale = replace(GEMV.call, params=replace(GEMV.call.params, in_scale=0.3, in_zp=-11))
    wrong = stale.expected(GEMV.inputs).unpack()
    detail = "in_scale and in_zp taken from in of the call before"
    check("another tensor's quantization", detail, GEMV, wrong.reshape(1, 1, 1, -1), previous=producer)


@pytest.mark.parametrize(
    ("held", "detail"),
    [("zeros", "a read before it was written"), ("other", "a held scratch when it was read")],
)
def test_an_input_that_was_not_there_yet_or_not_any_more(held: str, detail: str) -> None:
    other = np.random.default_rng(3).integers(0, 256, ADD.inputs["a"].desc.nbytes, np.uint8)
    a = PackedBuffer(ADD.inputs["a"].desc)
    a.raw[:] = 0 if held == "zeros" else other
    wrong = ADD.call.expected({**ADD.inputs, "a": a}).unpack()
    check("stale or foreign buffer", detail, ADD, wrong, others={"scratch": other})


def test_padding_alone_is_no_matter_of_addresses() -> None:
    """Zeros where the zero point belongs are what any wrong address would leave, were an element out of place."""
    expected = BOUND.call.expected(BOUND.inputs)
    wrong = PackedBuffer.from_raw(expected.raw.tobytes(), expected.desc.shape, expected.desc.layout)
    wrong.raw[wrong.kinds() != ByteKind.VALUE] = 0
    assert diff(expected, wrong, call=BOUND).causes[0].name == "padding leaked"


def test_every_hypothesis_is_tested_and_described() -> None:
    tested = {name for name, _, _ in ROWS} | {"stale constant"}
    # those of groups are in test_groups.py
    assert {h.name for h in ALL if h.find.__module__ != groups.__name__} == tested
    assert all(h.doc.endswith(".") for h in ALL)
    assert len({h.name for h in ALL}) == len(ALL)


@pytest.mark.parametrize("op", list(OPS))
def test_predictions_are_whole_buffers(op: str) -> None:
    """A prediction has the buffer's size and type for every operator, and never changes the evidence."""
    ev = _undisturbed(bind(OPS[op].sample(Rng(12))))
    before = ev.expected.raw.copy()
    for h in ALL:
        for prediction in h.find(ev):
            assert prediction.cells.dtype == ev.want.dtype, (h.name, prediction.detail)
            assert prediction.cells.shape == ev.want.shape, (h.name, prediction.detail)
    assert np.array_equal(ev.expected.raw, before)


@pytest.mark.few(6)
@pytest.mark.parametrize("op", list(OPS))
def test_another_operator_with_the_same_traits_has_the_same_causes(
    op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No hypothesis knows an operator by its name: an operator made up here gets each prediction."""
    made_up = replace(OPS[op], name="made_up", serialized="")
    monkeypatch.setitem(OPS._loaded, made_up.name, made_up)
    for seed in range(3):
        case = OPS[op].sample(Rng(40 + seed))
        known, other = (
            [
                (h.name, p.detail, p.cells.tobytes(), p.fitted)
                for h in ALL
                for p in h.find(_undisturbed(bind(replace(case, op=name))))
            ]
            for name in (op, made_up.name)
        )
        assert known == other
        words = any(row.packed_int8 for rows in OPS[op].layouts for row in rows)
        need = {"another layout's strides"} | ({"lanes rotated"} if words else set())
        assert {name for name, *_ in known} >= need


def test_an_operator_that_there_is_not_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """An addition that ends in a relu, known by its arithmetic alone, has the causes of a relu and of an addition."""
    add = OPS["q8ta_add"]

    def define(params: Any, target: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.maximum(add.define(params, target, a, b), np.int8(params.out_zp))

    def arithmetic(params: Any) -> Affine:
        assert add.affine is not None
        found = add.affine(params)
        assert found is not None
        return replace(found, relu=True)

    made_up = replace(add, name="add_relu", serialized="", define=define, affine=arithmetic)
    monkeypatch.setitem(OPS._loaded, made_up.name, made_up)
    bound = bind(replace(ADD.case, op=made_up.name))
    check("relu dropped or added", "relu left out", bound, ADD.call.expected(ADD.inputs).unpack())
    a, b = (bound.inputs[name].unpack() for name in "ab")
    exchanged = define(bound.call.params, bound.call.target, b, a)
    check("operands exchanged", "a and b exchanged", bound, exchanged)


def test_an_upscale_is_no_scale() -> None:
    """A shuffle by 1 has a parameter that ends in "scale" and whose inverse is legal."""
    params = dict(in_scale=0.03, in_zp=-3, out_inv_scale=20.0, out_zp=7, upscale=1)
    bound = bind(Case("q8ta_pixel_shuffle", params, {"x": ((1, 4, 3, 7), "4W4C")}, "4C1W"))
    expected = bound.call.expected(bound.inputs)
    diff(expected, np.zeros_like(expected.raw), call=bound)


def _undisturbed(bound: BoundCase) -> Evidence:
    """A call whose buffer is as it should be, run after itself."""
    expected = bound.call.expected(bound.inputs)
    compared = np.ones(expected.desc.buffer_numel, bool)
    return Evidence(expected, expected, compared, bound, bound, {"x": expected.raw})


@pytest.mark.parametrize("op", [name for name in OPS if OPS[name].family in WINDOWED])
@pytest.mark.parametrize("most", [128, 1 << 20])
@pytest.mark.parametrize("kept", [0, 1 << 24])
def test_sums_of_other_weights_are_those_of_a_convolution(
    op: str, most: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From windows that are kept for all weights, or gathered anew where they are too many to be kept."""
    monkeypatch.setattr(rerun, "MOST_WINDOWS", kept)
    rng, tried = np.random.default_rng(1), 0
    for seed in range(6):
        ev = _undisturbed(bind(OPS[op].sample(Rng(70 + seed))))
        if not rerun.is_convolution(ev):
            continue
        x, size = nchw4(ev.arrays["x"]), ev.call.out.shape[-2:]
        weight = rng.integers(-most, most, rerun.logical_weight(ev).shape)
        right = accumulate(ev.call.params, x, weight, size)
        assert np.array_equal(rerun.window_sums(ev, weight), right)
        if ev.call.params.groups == 1 or rerun.is_depthwise(ev):
            few = np.arange(0, len(weight), 3)
            assert np.array_equal(rerun.window_sums(ev, weight[few], few), right[:, few])
        tried += 1
    assert tried or OPS[op].epilogue is None


def test_without_a_call_the_geometry_is_still_tested() -> None:
    desc = TensorDesc((1, 8, 3, 5), layout("4W4C"))
    values = np.arange(120).reshape(1, 8, 3, 5).astype(np.int8)
    good = PackedBuffer.pack(values, desc.layout).raw
    swapped = np.ascontiguousarray(good.reshape(-1, 4)[:, ::-1]).reshape(-1)
    assert diff(good, swapped, "4W4C", desc.shape).causes[0].name == "byte order"
