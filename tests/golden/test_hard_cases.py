"""The hard cases of the corpus reach what random mutants had passed through: every route, wide sums, stale values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from refsim.exec.cpu import isa, routes
from refsim.exec.cpu.conv_problem import conv_problem
from refsim.exec.factory import executor_named
from refsim.golden import rules
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.traits import INTEGER_SUMS, Family

CONVOLUTIONS = [name for name, op in OPS.items() if op.family is Family.CONVOLUTION]
SUMS = [name for name, op in OPS.items() if op.family in INTEGER_SUMS]


def hard(op: str, kind: str) -> list[Case]:
    rule = rules.RULES[op]
    numbers = range(rule.spread, rule.count)
    return [rules.case(op, n) for n in numbers if rule.hard_of(n)[0].kind == kind]  # type: ignore[index]


@pytest.mark.parametrize("op", list(OPS))
def test_hard_cases_stand_behind_the_spread_ones(op: str) -> None:
    rule = rules.RULES[op]
    assert rule.hard_of(rule.spread - 1) is None and rule.hard_of(rule.count) is None
    kinds = [rule.hard_of(n)[0] for n in range(rule.spread, rule.count)]  # type: ignore[index]
    assert all(kinds.count(kind) == kind.count for kind in rule.hard)


@pytest.mark.parametrize("op", SUMS)
def test_sums_grow_beyond_24_bits_and_cancel(op: str) -> None:
    grown = visible = 0
    for case in hard(op, "cancelling sums"):
        bound = bind(case)
        sums = np.abs(bound.call.consts["weight_sums"].astype(np.int64))  # type: ignore[union-attr]
        grown += int((126 * sums).max()) > 1 << 24
        out = bound.call.expected(bound.inputs).unpack()
        visible += bool((np.abs(out) < 127).mean() > 0.1) if out.dtype == np.int8 else bool(np.ptp(out) > 0)
    assert visible >= 4
    assert grown >= 4 or OPS[op].family is Family.DEPTHWISE  # no window is that large


@pytest.mark.parametrize("op", SUMS)
def test_some_biases_are_very_large(op: str) -> None:
    most = 0.0
    for case in hard(op, "cancelling sums"):
        bias = bind(case).call.consts["bias"]
        step = case.params.get("out_scale", case.params["in_scale"])
        most = max(most, 0.0 if bias is None else float(np.abs(bias).max()) / step)
    assert most > (10_000 if OPS[op].family is Family.DEPTHWISE else 200_000)


@pytest.mark.parametrize("op", SUMS)
def test_far_biases_take_away_sixteen_million_steps(op: str) -> None:
    """And something is left: elements that do not saturate, of more than one value."""
    for case in hard(op, "far biases"):
        bound = bind(case)
        channels = bound.call.out.shape[OPS[op].channel_dim]
        bias = bound.call.consts["bias"][:channels].astype(np.float64)  # type: ignore[index]
        steps = np.abs(bias) / case.params.get("out_scale", case.params["in_scale"])
        assert (np.abs(steps / 2**24 - 1) < 0.04).all()
        out = bound.call.expected(bound.inputs).unpack()
        if out.dtype == np.int8:
            assert len(np.unique(out[np.abs(out.astype(int)) < 127])) >= 4, case


def taken(op: str, kind: str) -> Iterator[tuple[str, bool]]:
    """(route, whether it takes the zero point out in binary32) of the cases of a kind."""
    for case in hard(op, kind):
        call = bind(case).call
        choice = routes.choose(call)
        conv = conv_problem(choice.context.call)
        # where a processor has products of bytes in 16 bits, those are the same kernel
        yield choice.route.replace("gemm8", "gemm"), conv.float_zp and not conv.zp_is_exact


@pytest.mark.parametrize("name", ["avx512vnni", "avx2"])
def test_ordinary_windows_reach_every_route_with_either_zero_point(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = next(row for row in isa.ISAS if row.name == name)
    monkeypatch.setattr(routes, "cpu", lambda: isa.Cpu("", "", row))
    kinds = ("many channels", "cancelling sums")
    found = {each for op in CONVOLUTIONS for kind in kinds for each in taken(op, kind)}
    windowed = {("winograd4", False), ("winograd4", True), ("winograd2", False), ("winograd2", True)}
    assert windowed | {("gemm", False), ("gemm", True)} <= found


def twins(op: str) -> list[list[BoundCase]]:
    bound = [bind(case) for case in hard(op, "twins")]
    return [bound[at : at + 4] for at in range(0, len(bound), 4)]


@pytest.mark.parametrize("op", [name for name in OPS if hard(name, "twins")])
def test_twins_differ_in_one_thing_each(op: str) -> None:
    for first, *others in twins(op):
        for other in others:
            assert other.call.descs == first.call.descs and other.call.out == first.call.out
            same = (other.case.params, other.case.features) == (first.case.params, first.case.features)
            assert not same or not (first.call.consts and other is others[-1])
    assert any(
        not np.array_equal(first.call.expected(first.inputs).raw, other.call.expected(other.inputs).raw)
        for first, *others in twins(op)
        for other in others
    )


@pytest.mark.parametrize("op", [name for name in OPS if hard(name, "twins")])
def test_one_executor_keeps_nothing_of_a_twin(op: str) -> None:
    for name in ("cpu", "cpu:emulated"):
        executor = executor_named(name)
        for group in twins(op):
            for bound in (*group, *reversed(group)):
                got = executor.run_call(bound.call, bound.inputs)
                assert np.array_equal(got.raw, bound.call.expected(bound.inputs).raw), (name, str(bound.case))


LINEAR = [name for name, op in OPS.items() if hard(name, "tails") and op.int4 is None]


@pytest.mark.parametrize("op", LINEAR)
def test_weights_end_anywhere_in_a_panel(op: str) -> None:
    counts = [case.features["out_channels"] for case in hard(op, "tails")]
    assert {-(-count // 16) % 4 for count in counts} == {0, 1, 2, 3}


def test_groups_at_the_edge_of_exact_sums_take_both_ways() -> None:
    found = [routes.choose(bind(case).call).route for op in OPS for case in hard(op, "wide groups")]
    assert found == ["groups", routes.EMULATED, routes.EMULATED]


@pytest.mark.parametrize("op", [name for name, op in OPS.items() if op.family is Family.ROW_RANGE])
def test_steps_of_tiny_ranges_have_no_inverse(op: str) -> None:
    for case in hard(op, "tiny ranges"):
        rows = bind(case).inputs["x"].unpack().reshape(-1, case.inputs["x"][0][-1])
        step = (np.fmax(rows.max(-1), 0) - np.fmin(rows.min(-1), 0)) / np.float32(255)
        with np.errstate(all="ignore"):
            assert (np.isinf(np.float32(1) / step) & (step > 0)).sum() > 5
