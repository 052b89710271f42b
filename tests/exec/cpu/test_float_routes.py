"""The native kernels for rows of floats, for rows of a table and for ranges of rows: the definition's bits.

Their sums have an order, and a profile may fuse each product with its sum, so they are compared under every profile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from examples import at_the_least_range, zeros_of_both_signs
from wide import EMULATED, check, wide

from refsim.core.buffer import PackedBuffer
from refsim.core.layout import WIDTH_PACKED
from refsim.core.qmath import CANONICAL, PROFILES, Profile
from refsim.core.tensor import TensorDesc
from refsim.exec.cpu import NativeExecutor, compiled
from refsim.exec.cpu.groups.kernel import float_rows
from refsim.exec.cpu.isa import cpu
from refsim.exec.cpu.routes import RULES as RULES_OF_ROUTES
from refsim.golden.rules import RULES
from refsim.golden.rules import case as corpus_case
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import OpSpec
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family

#: Operators that are native under every profile, and those that are under one; and their routes.
FREE = {
    op.name: route
    for route, family in (("float_groups", Family.WEIGHT_ONLY), ("lookup", Family.LOOKUP))
    for op in OPS.of_family(family)
    if op.int4 is not None
}
CANONICAL_ONLY = {
    op.name: route
    for route, family in (("groups", Family.GROUP_LINEAR), ("row_range", Family.ROW_RANGE))
    for op in OPS.of_family(family)
}
LINEAR, TABLE = (
    next(name for name, row in FREE.items() if row == each) for each in ("float_groups", "lookup")
)
#: What a device may do here, beside the named profiles: each of the two choices alone.
EVERY = [*PROFILES.values(), Profile("fused", contract=True), Profile("flushed", flush_denormals=True)]
PROFILE = pytest.mark.parametrize("profile", EVERY, ids=lambda profile: profile.name)
ODD = np.array([np.nan, np.inf, -np.inf, 1e-40, -1e-40, -0.0, 0.0, 3e38, -3e38, 6.1e-5, 1e-36], np.float32)


def taken(name: str, profile: Profile) -> str:
    """The route of this processor: without fused operations a profile that has them is emulated."""
    if name in CANONICAL_ONLY:
        return CANONICAL_ONLY[name] if profile is CANONICAL else "emulated"
    lacks = FREE[name] == "float_groups" and profile.contract and not cpu().isa.fma
    return "emulated" if lacks else FREE[name]


def linear(rows: int, k: int, out: int, group: int, bias: bool = True, seed: int = 0, **more: str) -> Case:
    features = {"out_channels": out, "bias": bias, **more}
    return Case(LINEAR, {"group_size": group}, {"x": ((rows, k), "W")}, "W", seed, features)


@PROFILE
@pytest.mark.parametrize("name", [*FREE, *CANONICAL_ONLY])
def test_the_same_bits(name: str, profile: Profile) -> None:
    route, count = taken(name, profile), RULES[name].count
    drawn = [wide(name, seed) for seed in range(12)]
    drawn += [corpus_case(name, number) for number in range(1, count, count // 40)]
    for number, case in enumerate(drawn[:1] if name in CANONICAL_ONLY and route == "emulated" else drawn):
        executor = NativeExecutor(1 + number % 3)
        assert check(case, executor, Target(profile)) == route
        bound = bind(case, Target(profile))
        assert executor.run_call(bound.call, bound.inputs) == bound.call.expected(bound.inputs)


@PROFILE
@pytest.mark.parametrize(("lanes", "out"), [(64, 1024), (16, 1028), (8, 4100)])
def test_trees_of_one_row(lanes: int, out: int, profile: Profile) -> None:
    """Blocks of four fill every lane several times, or leave some lanes without any."""
    for k in (4, 4 * lanes - 4, 4 * lanes + 4, 12 * lanes + 8):
        if k * out < 400_000:
            case = linear(1, k, out, 4 if k % 3 else k, k % 8 == 0, style="saturation")
            check(case, NativeExecutor(), Target(profile))


def _sizes() -> Iterator[tuple[str, list[Case]]]:
    for rows in (2, 3, 4, 5, 8, 9, 17):
        sizes = [(out, group) for out in (4, 20, 36) for group in (4, 24, 72)]
        yield f"{rows} rows", [linear(rows, 72, out, group, rows % 2 == 0) for out, group in sizes]
    # groups of an odd number of elements begin inside a byte; others are shorter than a vector, or no multiple
    indices, features = {"indices": ((2, 9), "W")}, {"table": (7, 96), "outside": True}
    for group in (1, 2, 3, 6, 8, 24, 32, 96):
        each = ({"group_size": group, "is_linear_weight": is_linear} for is_linear in (True, False))
        yield f"groups of {group}", [Case(TABLE, row, indices, "W", group, features) for row in each]


SIZES = dict(_sizes())


@pytest.mark.parametrize("cases", SIZES.values(), ids=SIZES)
def test_every_size(cases: list[Case]) -> None:
    for case in cases:
        assert check(case, NativeExecutor(3)) == FREE[case.op]


@pytest.mark.parametrize(
    ("case", "profile"),
    [(OPS[name].cases.example, CANONICAL) for name in CANONICAL_ONLY]
    + [(linear(rows, 40, 20, 8, rows == 1), profile) for rows in (1, 4) for profile in EVERY],
    ids=lambda value: getattr(value, "name", None) or value.op,
)
def test_odd_floats(case: Case, profile: Profile) -> None:
    """NaN, infinities, denormals and zeros of both signs. Which NaN comes out of a sum is the device's choice."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        bound = bind(replace(case, seed=seed), Target(profile))
        x = bound.inputs["x"].unpack()
        spare = rng.random(x.shape) < rng.choice([0.02, 0.3, 1.0])
        x = np.where(spare, rng.choice(ODD[2 * (seed % 3 == 0) :], x.shape), x).astype(np.float32)
        inputs = {**bound.inputs, "x": PackedBuffer.pack(x, "W")}
        with np.errstate(all="ignore"):
            expected = bound.call.expected(inputs)
        found = NativeExecutor().run_call(bound.call, inputs)
        if case.op in CANONICAL_ONLY:
            assert found == EMULATED.run_call(bound.call, inputs) == expected
            continue
        a, b = found.unpack(), expected.unpack()
        assert np.array_equal(np.isnan(a), nans := np.isnan(b))
        assert np.array_equal(a[~nans].view(np.int32), b[~nans].view(np.int32))


@pytest.mark.parametrize("layout", ["4C", "4W4C", "4C1W", "4W"])
@pytest.mark.parametrize("zp", [-128, -127, 0, 5, 127])
@pytest.mark.parametrize("scale", [1.0, 0.02, 2.0**60, 2.0**-60])
def test_odd_floats_are_quantized_as_defined(scale: float, zp: int, layout: str) -> None:
    """Also those that are too large for an integer, and ties."""
    ties = np.array([0.5, -0.5, 1.5, 2.5, 127.5, -128.5, 1e9, -1e9, 2.2e9, -2.2e9, 8388608.5], np.float32)
    shape, odd = (
        (1, 7, 3, 37),
        np.concatenate([ODD, ties]),
    )  # pixels and channels that fill no vector and no word
    with np.errstate(over="ignore"):
        x = np.resize(np.concatenate([odd, odd * np.float32(scale)]), shape).astype(np.float32)
    op, f32 = OPS["q8ta_quantize"], np.dtype(np.float32)
    given = {"x": TensorDesc(shape, WIDTH_PACKED, f32)}
    prepared = Prepared(op.bind(op.make_params({"scale": scale, "zp": zp}), given, {}, layout))
    inputs = {"x": PackedBuffer.pack(x, WIDTH_PACKED, dtype=f32)}
    executor = NativeExecutor()
    assert executor.choose(prepared).route != "emulated"
    made = executor.run_prepared(prepared, inputs)
    assert made.raw.tobytes() == EMULATED.run_prepared(prepared, inputs).raw.tobytes()
    assert np.array_equal(made.unpack(), op.define(prepared.call.params, prepared.call.target, x))


# --- what is left to the emulated kernels ----------------------------------------------------------------


def test_without_fused_operations_a_fusing_profile_is_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    without = replace(cpu(), isa=replace(cpu().isa, fma=False))
    monkeypatch.setattr("refsim.exec.cpu.routes.cpu", lambda: without)
    prepared = Prepared(bind(linear(3, 16, 8, 8), Target(PROFILES["nvidia"])).call)
    choice = NativeExecutor().choose(prepared)
    assert choice.route == "emulated"
    assert dict(choice.rejected)["float_groups"] == f"{cpu().isa.name} fuses nothing"


@pytest.mark.parametrize("op", OPS.of_family(Family.GROUP_LINEAR), ids=lambda op: op.name)
def test_weight_sums_of_other_weights_are_emulated(op: OpSpec) -> None:
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


@pytest.mark.parametrize("name", FREE)
def test_kernels_for_nibbles_are_for_operators_that_have_some(name: str) -> None:
    """An operator of the same family with other weights must not get them: they read what it lacks."""
    assert any(rule.takes(OPS[name]) for rule in RULES_OF_ROUTES)
    assert not any(rule.takes(replace(OPS[name], int4=None)) for rule in RULES_OF_ROUTES)


# --- signs and bounds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FREE)
def test_zeros_keep_their_sign(name: str) -> None:
    """A negative scale makes -0 of the weight 0."""
    bound = bind(OPS[name].cases.example)
    call = replace(bound.call, consts={**bound.call.consts, "scales": -bound.call.consts["scales"]})
    expected = call.expected(bound.inputs)
    assert NativeExecutor().run_call(call, bound.inputs) == expected
    assert FREE[name] != "lookup" or (expected.words == np.int32(-(2**31))).any()


@pytest.mark.parametrize("op", OPS.of_family(Family.ROW_RANGE), ids=lambda op: op.name)
def test_scales_about_the_greatest_whose_inverse_is_infinite(op: OpSpec) -> None:
    call, inputs = at_the_least_range(op)
    expected = call.expected(inputs)
    assert len(set(expected.unpack().reshape(-1).tolist())) > 1
    assert NativeExecutor().run_call(call, inputs) == EMULATED.run_call(call, inputs) == expected


@pytest.mark.parametrize("rows", [1, 6])
def test_a_sum_of_negative_zeros_is_a_positive_one(rows: int) -> None:
    call, inputs = zeros_of_both_signs(rows)
    assert inputs["x"].raw.view(np.uint32).any()  # some of them are negative
    expected = call.expected(inputs)
    assert not expected.raw.any()
    for executor in (NativeExecutor(1), NativeExecutor(3), EMULATED):
        assert executor.run_call(call, inputs) == expected


@pytest.mark.skipif(not cpu().isa.fma, reason=f"{cpu().isa.name} fuses nothing")
def test_products_are_fused_only_where_the_profile_says() -> None:
    variant = {"lanes": cpu().isa.lanes, "rows": 2, "bias": True, "flush": False}
    assert "fma" in compiled.assembly(float_rows, fused=True, **variant)
    assert "fma" not in compiled.assembly(float_rows, fused=False, **variant)
