"""What a kernel reads is told by its outputs: right kernels read what they should, and wrong ones say what else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refsim.core.buffer import PackedBuffer
from refsim.core.errors import UnsupportedError
from refsim.exec import reads
from refsim.exec.executor import Definition, Executor
from refsim.exec.factory import executor_named
from refsim.exec.reads import NAME, NONE, SEVERAL, misread, misread_cause, probe
from refsim.golden.check import run
from refsim.golden.telling import ordered
from refsim.ops.base import conv_cases
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call

Arrays = dict[str, np.ndarray]


class Wrong(Definition):
    """Defines calls with other inputs and constants than it is given: ``change`` makes them."""

    def __init__(self, change: Callable[[Call, Arrays], Arrays]) -> None:
        super().__init__()
        self.change = change

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        call = prepared.call
        given = {name: one.unpack() for name, one in inputs.items()}
        given |= {name: one for name, one in call.consts.items() if one is not None}
        arrays = self.change(call, given)
        call = replace(call, consts={name: arrays.get(name) for name in call.consts})
        return call.stored(call.define({name: arrays[name] for name in inputs}), inputs)


def rolled(tensor: str, by: int, axis: int) -> Executor:
    """Reads a tensor so many elements away."""
    return Wrong(lambda call, arrays: {**arrays, tensor: np.roll(arrays[tensor], -by, axis)})


def convolution(**window: object) -> BoundCase:
    return bind(conv_cases.example("q8ta_conv2d_general", "4W4C", kernel_size=(3, 3), **window))


@pytest.mark.parametrize("name", OPS)
def test_right_kernels_read_what_they_should(name: str) -> None:
    executor = executor_named("cpu:emulated")
    cases = [one.bound for one in islice(ordered(name, 20), 2)]
    assert cases
    for bound in cases:
        assert all(one.need.shape == bound.call.out.shape for one in probe(executor, bound))
        assert misread(executor, bound) == []


@given(data=st.data())
def test_each_place_that_is_read_is_told(data: st.DataObject) -> None:
    """A clone that reads any element for any other: the answer is that choice."""
    bound = bind(Case("q8ta_clone", {}, {"x": ((1, 3, 4, 5), "4W4C")}, "4C"))
    places = np.array(data.draw(st.lists(st.integers(0, 59), min_size=60, max_size=60)))
    wrong = Wrong(lambda call, given: {"x": given["x"].ravel()[places].reshape(1, 3, 4, 5)})
    found = misread(wrong, bound)
    if (places == np.arange(60)).all():
        assert not found
    else:
        (one,) = found
        assert (one.reads.got.ravel() == places).all() and (one.reads.need.ravel() == np.arange(60)).all()
        assert (one.wrong == (one.reads.got != one.reads.need)).all()


@pytest.mark.parametrize(
    ("tensor", "axis", "told"),
    [
        (
            "x",
            3,
            "in products with weight[:, 0, 0, 0], output [0, 0, 0, 0] changes with x[0, 0, 0, 1], need x[0, 0, 0, 0]",
        ),
        (
            "weight",
            0,
            "in products with weight[:, 0, 0, 0], output [0, 0, 0, 0] changes with weight[1, 0, 0, 0], need weight[0,",
        ),
        ("bias", 0, "output [0, 0, 0, 0] changes with bias[1], need bias[0]"),
        ("weight_scales", 0, "output [0, 0, 0, 0] changes with weight_scales[1], need weight_scales[0]"),
    ],
)
def test_elements_next_to_the_right_ones(tensor: str, axis: int, told: str) -> None:
    found = misread(rolled(tensor, 1, axis), convolution())
    assert [one.reads.tensor for one in found] == [tensor]
    assert str(found[0]).startswith(told)
    assert not found[0].right


def test_products_that_are_left_out() -> None:
    """A weight that is never multiplied: its input is not read, and with all others outputs are right."""

    def left_out(call: Call, given: Arrays) -> Arrays:
        weight = given["weight"].copy()
        weight[:, 2] = 0
        return {**given, "weight": weight}

    one, *_ = misread(Wrong(left_out), convolution())
    assert (one.reads.tensor, one.reads.tap) == ("x", "weight[:, 0, 0, 2]")
    assert (one.reads.got[one.wrong] == NONE).all()
    assert len(one.right) == one.taps - 1


def test_elements_that_padding_must_hide() -> None:
    """The border of the image in place of the padding: some outputs read an element, and need none."""

    class Edge(Definition):
        def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
            call = prepared.call
            x = np.pad(inputs["x"].unpack(), ((0, 0), (0, 0), (1, 1), (1, 1)), "edge")
            wide = replace(call, params=replace(call.params, padding=(0, 0)))
            return call.stored(wide.define({"x": x}), inputs)

    one, *_ = misread(Edge(), convolution(padding=(1, 1)))
    assert one.reads.tensor == "x"
    assert ((one.reads.need == NONE) & (one.reads.got >= 0) & one.wrong).any()


def test_a_cause_says_what_is_read_and_a_kernel_that_refuses_says_nothing() -> None:
    bound = convolution()
    everywhere = np.ones(bound.call.out.shape, bool)
    found = misread_cause(rolled("x", 1, 2), bound, everywhere)
    assert found is not None and found[0] == NAME and "need x[0, 0, 0, 0]" in found[1]

    def refused(call: Call, given: Arrays) -> Arrays:
        raise UnsupportedError("kernel", "refuses other inputs")

    assert misread_cause(Wrong(refused), bound, everywhere) is None
    assert misread_cause(rolled("x", 1, 2), bound, ~everywhere) is None


def test_a_large_call_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = convolution()
    monkeypatch.setattr(reads, "MOST_WORK", 50 * bound.call.out.numel * 72)
    few = [one.taps for one in misread(rolled("x", 1, 3), bound)]
    assert 1 <= few[0] < reads.FIRST_TAPS
    monkeypatch.setattr(reads, "MOST_WORK", 0)
    assert misread(rolled("x", 1, 3), bound) == []


def test_floats_that_are_no_numbers_are_values_like_others() -> None:
    """An input with NaN is asked all the same; an output that is NaN changes with nothing."""
    bound = bind(Case("q8ta_quantize", {"scale": 0.1, "zp": 3}, {"x": ((1, 4, 5, 6), "W")}, "4W4C"))
    bound.inputs["x"].raw.view(np.float32)[0] = np.nan
    (one,) = misread(rolled("x", 1, 3), bound)
    assert one.wrong.all() and str(one).startswith("output [0, 0, 0, 0] changes with x[0, 0, 0, 1]")
    dequantize = bind(Case("q8ta_dequantize", {"scale": 0.1, "zp": 3}, {"x": ((1, 4, 5, 6), "4W4C")}, "W"))

    class Nan(Definition):
        def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
            call = prepared.call
            return call.stored(np.full(call.out.shape, np.nan, np.float32), inputs)

    assert misread(Nan(), dequantize) == []


def test_a_majority_of_elements_is_no_element() -> None:
    """An output that changes only if most of several elements do reads several, not the one that the bits spell."""
    bound = bind(Case("q8ta_clone", {}, {"x": ((1, 4, 4, 4), "4C")}, "4C"))

    def most(call: Call, given: Arrays) -> Arrays:
        high = given["x"][..., :3].sum(-1, dtype=np.int64, keepdims=True) > 0
        return {"x": np.where(high, 100, -100).astype(np.int8) + np.zeros_like(given["x"])}

    (one,) = misread(Wrong(most), bound)
    assert (one.reads.got == SEVERAL).mean() > 0.6  # the others pass the checks by chance


@pytest.mark.parametrize("factor", [1.5, 1e-6])
def test_values_alone_that_are_wrong_are_no_misread(factor: float) -> None:
    """A sum that is scaled otherwise reads what it should, even if that no longer shows."""
    wrong = Wrong(lambda call, given: {**given, "weight_scales": given["weight_scales"] * np.float32(factor)})
    assert misread(wrong, convolution()) == []


def test_the_report_of_a_wrong_case_says_what_its_kernel_reads() -> None:
    """Unless an edit of the kernel, alone, gives all of its bytes."""
    bound = convolution()
    right = bound.call.expected(bound.inputs)

    def drifts(call: Call, given: Arrays) -> Arrays:
        """From the fifth channel on, rows are read one further, and columns two."""
        x = given["x"].copy()
        x[:, 4:] = np.roll(x[:, 4:], (-1, -2), (2, 3))
        return {**given, "x": x}

    first = run("drifts", "wrong", Wrong(drifts), bound, right).causes[0]
    assert (first.name, first.asked, first.weak) == (NAME, True, False)
    taken = Wrong(lambda call, given: {**given, "bias": None})
    assert not any(cause.asked for cause in run("no bias", "wrong", taken, bound, right).causes)
