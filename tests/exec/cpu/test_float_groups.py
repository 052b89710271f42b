"""The native kernels for rows of floats with 4-bit weights, and for rows of a table: the definition's bits.

Their sums have an order, and a profile may fuse each product with its sum, so they are compared under every profile.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from wide import check, on_processor, wide

from refsim.core.buffer import PackedBuffer
from refsim.core.qmath import PROFILES, Profile
from refsim.exec.cpu import NativeExecutor, compiled
from refsim.exec.cpu.isa import cpu
from refsim.golden.rules import RULES
from refsim.golden.rules import case as corpus_case
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family

ROUTES = {
    op.name: route
    for family, route in ((Family.WEIGHT_ONLY, "float_groups"), (Family.LOOKUP, "lookup"))
    for op in OPS.of_family(family)
    if op.int4 is not None
}
LINEAR = next(name for name, route in ROUTES.items() if route == "float_groups")
#: What a device may do here, beside the named profiles: each of the two choices alone.
EVERY = [*PROFILES.values(), Profile("fused", contract=True), Profile("flushed", flush_denormals=True)]
EACH = pytest.mark.parametrize("name", ROUTES)
PROFILE = pytest.mark.parametrize("profile", EVERY, ids=lambda profile: profile.name)


def taken(name: str, profile: Profile) -> str:
    """The route of this processor: without fused operations a profile that has them is emulated."""
    return (
        "emulated"
        if ROUTES[name] == "float_groups" and profile.contract and not cpu().isa.fma
        else ROUTES[name]
    )


def linear(rows: int, k: int, out: int, group: int, bias: bool = True, seed: int = 0) -> Case:
    features = {"out_channels": out, "bias": bias}
    return Case(LINEAR, {"group_size": group}, {"x": ((rows, k), "W")}, "W", seed, features)


@PROFILE
@EACH
def test_the_same_bits(name: str, profile: Profile) -> None:
    executor, target = NativeExecutor(2), Target(profile)
    count = RULES[name].count
    for case in (
        OPS[name].cases.example,
        *(wide(name, seed) for seed in range(10)),
        *(corpus_case(name, number) for number in range(1, count, count // 30)),
    ):
        assert check(case, executor, target) == taken(name, profile)
        bound = bind(case, target)
        assert executor.run_call(bound.call, bound.inputs) == bound.call.expected(bound.inputs)


@PROFILE
@pytest.mark.parametrize("lanes", [64, 16, 8])
def test_trees_of_one_row(lanes: int, profile: Profile) -> None:
    """Blocks of four fill every lane several times, or leave some lanes without any."""
    out = {64: 1024, 16: 1028, 8: 4100}[lanes]
    for k in (4, 4 * lanes - 4, 4 * lanes + 4, 12 * lanes + 8):
        if k * out < 400_000:
            case = linear(1, k, out, 4 if k % 3 else k, bias=k % 8 == 0)
            check(
                replace(case, features={**case.features, "style": "saturation"}),
                NativeExecutor(),
                Target(profile),
            )


@pytest.mark.parametrize("rows", [2, 3, 4, 5, 8, 9, 17])
def test_every_number_of_rows(rows: int) -> None:
    for out in (4, 20, 36):
        for group in (4, 24, 72):
            assert (
                check(linear(rows, 72, out, group, bias=rows % 2 == 0), NativeExecutor(3)) == "float_groups"
            )


def test_routes_may_be_forced() -> None:
    taken = Counter()
    for name, route in ROUTES.items():
        for forced in (route, "emulated"):
            taken[check(wide(name, 3), NativeExecutor(1, {name: forced}))] += 1
    assert taken == {**dict.fromkeys(ROUTES.values(), 1), "emulated": len(ROUTES)}


def test_without_fused_operations_a_fusing_profile_is_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "refsim.exec.cpu.routes.cpu", lambda: replace(cpu(), isa=replace(cpu().isa, fma=False))
    )
    prepared = Prepared(bind(linear(3, 16, 8, 8), Target(PROFILES["nvidia"])).call)
    choice = NativeExecutor().choose(prepared)
    assert choice.route == "emulated"
    assert dict(choice.rejected)["float_groups"] == f"{cpu().isa.name} fuses nothing"


@PROFILE
@pytest.mark.parametrize("rows", [1, 4])
def test_odd_floats(rows: int, profile: Profile) -> None:
    """Infinities, NaN, denormals and zeros of both signs. Which NaN comes out is the device's choice."""
    odd = np.array([np.nan, np.inf, -np.inf, 1e-40, -1e-40, -0.0, 0.0, 3e38, -3e38, 1e-36], np.float32)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        bound = bind(linear(rows, 40, 20, 8, bias=seed % 2 == 0, seed=seed), Target(profile))
        x = bound.inputs["x"].unpack()
        spare = rng.random(x.shape) < rng.choice([0.02, 0.3, 1.0])
        x = np.where(spare, rng.choice(odd[2 * (seed % 3 == 0) :], x.shape), x).astype(np.float32)
        inputs = {"x": PackedBuffer.pack(x, "W")}
        with np.errstate(all="ignore"):
            expected = bound.call.expected(inputs).unpack()
        actual = NativeExecutor().run_call(bound.call, inputs).unpack()
        assert np.array_equal(np.isnan(actual), np.isnan(expected))
        known = ~np.isnan(expected)
        assert np.array_equal(actual[known].view(np.int32), expected[known].view(np.int32))


def test_zeros_keep_their_sign() -> None:
    """A negative scale makes -0 of the weight 0."""
    for name in ROUTES:
        bound = bind(OPS[name].cases.example)
        scales = -bound.call.consts["scales"]
        call = replace(bound.call, consts={**bound.call.consts, "scales": scales})
        expected = call.expected(bound.inputs)
        assert NativeExecutor().run_call(call, bound.inputs) == expected
        if ROUTES[name] == "lookup":
            assert (expected.words == np.int32(-(2**31))).any()


@pytest.mark.parametrize("group", [1, 2, 3, 6, 8, 24, 32, 96])
def test_groups_of_a_table(group: int) -> None:
    """Groups of an odd number of elements begin inside a byte; others are shorter than a vector, or no multiple."""
    name = next(name for name, route in ROUTES.items() if route == "lookup")
    for linear_weight in (True, False):
        params = {"group_size": group, "is_linear_weight": linear_weight}
        case = Case(name, params, {"indices": ((2, 9), "W")}, "W", group, {"table": (7, 96), "outside": True})
        assert check(case, NativeExecutor(2)) == "lookup"


@pytest.mark.long
@pytest.mark.parametrize("name", ["generic", "haswell"])
def test_other_processors(name: str) -> None:
    """Code for a lesser processor than the host's, under every profile, in a process of its own."""
    code = (
        "from test_float_groups import *\n"
        "for profile in EVERY:\n"
        "  for name in ROUTES:\n"
        "    for seed in range(4):\n"
        "      assert check(wide(name, seed), NativeExecutor(2), Target(profile)) == taken(name, profile)\n"
        "  check(linear(1, 300, 28, 12), NativeExecutor(), Target(profile))\n"
        "print(cpu().isa.name)\n"
    )
    assert on_processor(name, code) == {"generic": "portable\n", "haswell": "avx2\n"}[name]


@pytest.mark.skipif(not cpu().isa.fma, reason=f"{cpu().isa.name} fuses nothing")
def test_products_are_fused_only_where_the_profile_says() -> None:
    from refsim.exec.cpu.groups.kernel import float_rows

    variant = {"lanes": cpu().isa.lanes, "rows": 2, "bias": True, "flush": False}
    assert "fma" in compiled.assembly(float_rows, fused=True, **variant)
    assert "fma" not in compiled.assembly(float_rows, fused=False, **variant)
