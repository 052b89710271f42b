"""The native kernels for weights of 4 bits in groups and for ranges of rows: the bits of the emulated kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from examples import at_the_least_range, zeros_of_both_signs
from wide import check, wide

from refsim.core.buffer import PackedBuffer
from refsim.core.qmath import LAVAPIPE
from refsim.exec.cpu import EmulatedExecutor, NativeExecutor
from refsim.exec.cpu.routes import RULES as RULES_OF_ROUTES
from refsim.golden.rules import RULES
from refsim.golden.rules import case as corpus_case
from refsim.ops.base.binding import bind
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family

ROUTES = {
    op.name: route
    for family, route in ((Family.GROUP_LINEAR, "groups"), (Family.ROW_RANGE, "row_range"))
    for op in OPS.of_family(family)
}
EACH = pytest.mark.parametrize("name", ROUTES)


@EACH
@pytest.mark.parametrize("threads", [1, 3])
def test_the_same_bits(name: str, threads: int) -> None:
    executor = NativeExecutor(threads)
    count = RULES[name].count
    for case in (
        OPS[name].cases.example,
        *(wide(name, seed) for seed in range(12)),
        *(corpus_case(name, number) for number in range(threads, count, count // 40)),
    ):
        assert check(case, executor) == ROUTES[name]


@EACH
def test_other_profiles_are_emulated(name: str) -> None:
    prepared = Prepared(bind(wide(name, 1), Target(LAVAPIPE)).call)
    assert NativeExecutor().choose(prepared).route == "emulated"


@pytest.mark.parametrize("op", OPS.of_family(Family.GROUP_LINEAR), ids=lambda op: op.name)
def test_weight_sums_of_other_weights_are_emulated(op) -> None:
    """The definition takes the sums that a file has, right or wrong; the kernel does not read them."""
    bound = bind(op.cases.example)
    sums = bound.call.consts["weight_sums"].copy()
    sums[0, 3] += 1
    call = replace(bound.call, consts={**bound.call.consts, "weight_sums": sums})
    executor = NativeExecutor()
    choice = executor.choose(Prepared(call))
    assert choice.route == "emulated"
    assert dict(choice.rejected) == {"groups": "weight sums that are not those of the weights"}
    assert executor.run_call(call, bound.inputs) == call.expected(bound.inputs)
    assert call.expected(bound.inputs) != bound.call.expected(bound.inputs)


@EACH
def test_odd_floats(name: str) -> None:
    """NaN, infinities, denormals and zeros of both signs, in ranges and in rows that are quantized."""
    odd = np.array([np.nan, np.inf, -np.inf, 1e-40, -1e-40, -0.0, 0.0, 3e38, 6.1e-5, 1e-36], np.float32)
    case = OPS[name].cases.example
    for seed in range(20):
        rng = np.random.default_rng(seed)
        bound = bind(case)
        x = bound.inputs["x"].unpack()
        spare = rng.random(x.shape) < rng.choice([0.02, 0.3, 1.0])
        x = np.where(spare, rng.choice(odd, x.shape), x).astype(np.float32)
        inputs = {**bound.inputs, "x": PackedBuffer.pack(x, "W")}
        prepared = Prepared(bound.call)
        assert NativeExecutor().run_prepared(prepared, inputs) == EmulatedExecutor().run_prepared(
            prepared, inputs
        )
        assert EmulatedExecutor().run_prepared(prepared, inputs) == bound.call.expected(inputs)


@pytest.mark.parametrize(
    "op", [*OPS.of_family(Family.WEIGHT_ONLY), *OPS.of_family(Family.LOOKUP)], ids=lambda op: op.name
)
def test_kernels_for_nibbles_are_for_operators_that_have_some(op) -> None:
    """An operator of the same family with other weights must not get them: they read what it lacks."""
    assert any(rule.takes(op) for rule in RULES_OF_ROUTES)
    assert not any(rule.takes(replace(op, int4=None)) for rule in RULES_OF_ROUTES)


@pytest.mark.parametrize("op", OPS.of_family(Family.ROW_RANGE), ids=lambda op: op.name)
def test_scales_about_the_greatest_whose_inverse_is_infinite(op) -> None:
    call, inputs = at_the_least_range(op)
    expected = call.expected(inputs)
    assert len(set(expected.unpack().reshape(-1).tolist())) > 1
    assert NativeExecutor().run_call(call, inputs) == expected
    assert EmulatedExecutor().run_call(call, inputs) == expected


@pytest.mark.parametrize("rows", [1, 6])
def test_a_sum_of_negative_zeros_is_a_positive_one(rows: int) -> None:
    call, inputs = zeros_of_both_signs(rows)
    assert inputs["x"].raw.view(np.uint32).any()  # some of them are negative
    expected = call.expected(inputs)
    assert not expected.raw.any()
    for threads in (1, 3):
        assert NativeExecutor(threads).run_call(call, inputs) == expected
    assert EmulatedExecutor().run_call(call, inputs) == expected
