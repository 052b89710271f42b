"""Sums and functions of bytes by lookup tables or fused arithmetic: the formula's bytes, and the formula elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from examples import UNARY
from wide import check

from refsim.core.qmath import CANONICAL
from refsim.core.rng import Rng
from refsim.exec.cpu import NativeExecutor
from refsim.exec.cpu.elementwise import fma, lut, proof
from refsim.exec.cpu.elementwise import prepack as elementwise
from refsim.exec.cpu.elementwise.lut_kernel import PAIRS
from refsim.exec.cpu.elementwise.prepack import Elementwise
from refsim.exec.cpu.isa import ISAS, Isa, cpu
from refsim.exec.cpu.routes import EMULATED, FMA, LINEAR, LUT, RULES, VIA_NHWC, choose
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Affine, Family, Term

ADD, TARGET = OPS["q8ta_add"], Target(CANONICAL)
#: Looks bytes up, whatever this processor does.
ISA = next(isa for isa in ISAS if isa.lookup)
A, B = np.repeat(proof.BYTES, 256), np.tile(proof.BYTES, 256)
MODERATE = dict(a_scale=0.0213, a_zp=3, b_scale=0.0517, b_zp=-7, out_scale=0.0611, out_zp=5)
TIES = {**MODERATE, "a_scale": 0.5, "b_scale": 0.25, "out_scale": 1.0}
#: A third and five sixths of a step: every sixth pair is a tie that roundings decide.
THIRDS = {**MODERATE, "a_scale": 0.02, "b_scale": 0.05, "out_scale": 0.06}
FAR = {**MODERATE, "a_scale": 0.5, "b_scale": 0.4}
#: One for each kernel.
EACH = {
    "pairs": MODERATE,
    "pairs_a": {**MODERATE, "a_scale": 0.0913},
    "pairs_b": {**MODERATE, "b_scale": 0.0913},
    "pairs_ab": {**MODERATE, "a_scale": 0.0713, "b_scale": 0.0819},
}

HERE = cpu().isa
native = pytest.mark.skipif(
    not HERE.lookup, reason=f"{HERE.name}: no instruction looks up 64 bytes for tables"
)
needs_fma = pytest.mark.skipif(
    not HERE.fma, reason=f"{HERE.name}: floats are not multiplied and added in one"
)


def case(params: dict[str, Any], shape: tuple[int, ...] = (1, 5, 3, 7), *layouts: str) -> Case:
    a, b, out = layouts or ("4W4C",) * 3
    return Case("q8ta_add", params, {"a": (shape, a), "b": (shape, b)}, out)


def drawn(count: int, seed: int) -> Iterator[dict[str, Any]]:
    rng = Rng(seed)
    for number in range(count):
        params = {f"{name}_scale": rng.scale_moderate() for name in ("a", "b", "out")}
        params |= {f"{name}_zp": rng.zero_point() for name in ("a", "b", "out")}
        yield params | {"alpha": (1.0, 0.3, -2.0)[number % 3]}


def described(params: dict[str, Any]) -> Elementwise:
    return elementwise.describe(bind(case(params)).call)


def evaluated(e: Elementwise, isa: object = None) -> np.ndarray:
    """What the tables of a sum mean, in NumPy: the kernel's part of the proof on any processor."""
    rank_a, rank_b, whole_a, whole_b, *rests = e.luts.astype(np.int32)
    total = np.clip(whole_a[:, None] + whole_b + (rank_a[:, None] % 256 < rank_b % 256), -128, 127)
    rest = dict(zip(PAIRS[e.op], rests, strict=True))
    beyond = rest.get("a", np.zeros(256, np.int32))[:, None] + rest.get("b", 0)
    return np.clip(total + np.clip(beyond, -128, 127), -128, 127).astype(np.int8)


#: How many of the sums below get tables of each form, those that saturate where a wider table is needed.
FORMS = {"pairs": 27, "pairs_a": 14, "pairs_b": 4, "pairs_ab": 3}


def test_the_tables_mean_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the native kernel: the definition's bytes for all pairs, for every shape that tables have."""
    monkeypatch.setattr(proof, "computed", evaluated)
    found = Counter()
    for params in drawn(60, 1):
        made = lut.find(described(params), ISA)
        if not isinstance(made, str):
            found[made.op] += 1
            expected = ADD.define(ADD.params(**params), TARGET, A, B)
            assert np.array_equal(evaluated(made).reshape(-1), expected), params
    assert FORMS.keys() == PAIRS.keys()
    assert dict(found) == FORMS


CLONE = Case("q8ta_clone", {}, {"x": ((1, 4, 2, 2), "4C")}, "4C")


@pytest.mark.parametrize(
    ("find", "of", "isa", "why"),
    [
        *(
            (lut.find, case(params), ISA, "no tables give every pair its byte")
            for params in (TIES, THIRDS, FAR)
        ),
        (lut.find, case(MODERATE), ISAS[-1], "portable looks up no bytes"),
        (lut.find, CLONE, ISA, "bytes stay as they are"),
        (fma.find, case(MODERATE), ISAS[-1], "portable fuses nothing"),
        (fma.find, UNARY.cases.example, ISA, "one input"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_why_there_is_no_faster_way(
    find: Callable[..., object], of: Case, isa: Isa, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "computed", evaluated)
    assert find(elementwise.describe(bind(of).call), isa) == why


LOW, HIGH = lut.NARROW
#: Sums with these and less, or with these and more, all saturate.
ALL_LOW, ALL_HIGH = -128 - LOW - 1, 127 - HIGH


@pytest.mark.parametrize("shift", [0, 5, -7])
@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        ((LOW, HIGH), (-20, 20), True), ((LOW - 1, HIGH), (-20, 20), False), ((LOW, HIGH + 1), (-20, 20), False),
        ((LOW - 9, LOW + 3), (ALL_LOW - 30, ALL_LOW), True), ((LOW - 9, LOW + 3), (ALL_LOW - 30, ALL_LOW + 1), False),
        ((HIGH - 3, HIGH + 9), (ALL_HIGH, ALL_HIGH + 30), True),
        ((HIGH - 3, HIGH + 9), (ALL_HIGH - 1, ALL_HIGH + 30), False),
    ],
)  # fmt: skip
def test_whole_numbers_may_end_where_the_table_does_or_every_sum_saturates(
    first: tuple[int, int], second: tuple[int, int], fits: bool, shift: int
) -> None:
    """No byte shows tables that were passed over where a shift just fits."""
    x, y = np.array(first, np.int16) - np.int16(shift), np.array(second, np.int16) + np.int16(shift)
    assert lut._fits(x, y, np.array([shift], np.int16), (LOW, HIGH)).tolist() == [fits]


# --- the kernels -------------------------------------------------------------------------------------------


@native
@pytest.mark.parametrize("op", PAIRS)
@pytest.mark.parametrize("layouts", [("4W4C",) * 3, ("4W4C", "4C", "4C1W"), ("4W",) * 3], ids=str)
def test_every_kernel_of_sums(op: str, layouts: tuple[str, ...]) -> None:
    """Also over lengths that are no multiple of a vector, and beside padding."""
    made = lut.find(described(EACH[op]), ISA)
    assert not isinstance(made, str) and made.op == op
    for shape in ((1, 4, 1, 1), (1, 5, 3, 7), (2, 8, 9, 13), (1, 64, 16, 16)):
        for executor in (NativeExecutor(), NativeExecutor(2)):
            assert check(case(EACH[op], shape, *layouts), executor) == LUT


@pytest.mark.parametrize("route", [LUT, FMA, LINEAR, VIA_NHWC])
@pytest.mark.parametrize("name", [op.name for op in OPS.of_family(Family.ELEMENTWISE, Family.SHUFFLE)])
def test_each_route_gives_the_same_bytes(name: str, route: str) -> None:
    executor, taken = NativeExecutor(2, {"*": route}), Counter()
    for seed in range(40):
        taken[check(OPS[name].sample(Rng(seed)), executor)] += 1
    rule = next(rule for rule in RULES if rule.route == route)
    able = {LUT: HERE.lookup, FMA: HERE.fma}.get(route, True)
    assert bool(taken[route]) == (able and rule.takes(OPS[name])), taken


@native
@pytest.mark.parametrize("params", [TIES, FAR], ids=["ties", "far"])
def test_fma_where_there_are_no_tables(params: dict[str, Any]) -> None:
    assert check(case(params, (1, 8, 9, 12)), NativeExecutor()) == FMA
    choice = NativeExecutor().choose(Prepared(bind(case(params)).call))
    assert dict(choice.rejected)[LUT] == "no tables give every pair its byte"


def test_the_formula_where_nothing_else_gives_every_byte() -> None:
    assert check(case(THIRDS, (1, 8, 9, 12)), NativeExecutor()) == LINEAR
    rejected = dict(NativeExecutor().choose(Prepared(bind(case(THIRDS)).call)).rejected)
    if HERE.fma:
        assert rejected[FMA] == "no constants give every pair its byte"


@native
def test_a_wrong_table_is_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """One wrong byte of 1024, seen by 256 pairs: the proof finds it."""
    make = lut._pairs

    def damaged(e: Elementwise, n: np.ndarray) -> Elementwise | None:
        made = make(e, n)
        assert made is not None
        made.luts[2, 7] += 1
        return made

    monkeypatch.setattr(lut, "_pairs", damaged)
    assert check(case(MODERATE, (1, 8, 9, 12)), NativeExecutor()) == FMA


# --- fused arithmetic --------------------------------------------------------------------------------------


@needs_fma
def test_fma_constants_are_found_for_nearly_all() -> None:
    executor, taken = NativeExecutor(2, {"*": FMA}), Counter()
    for number, params in enumerate(drawn(40, 2)):
        layouts = ("4W4C",) * 3 if number % 2 else ("4W4C", "4C", "4C1W")
        taken[check(case(params, (1, 5, 3, 1 + number), *layouts), executor)] += 1
    assert taken[FMA] > 35, taken


@needs_fma
def test_wrong_constants_are_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against bytes that no sum has."""
    monkeypatch.setattr(fma, "TRIES", 1)
    assert not isinstance(fma.find(described(MODERATE), HERE), str)
    saturated = proof.saturated
    monkeypatch.setattr(proof, "saturated", lambda e, n: saturated(e, n) ^ (n == 7))
    assert fma.find(described(MODERATE), HERE) == "no constants give every pair its byte"


def test_an_operator_is_taken_by_its_arithmetic_not_by_its_name() -> None:
    """A new operator that adds two inputs takes the routes of q8ta_add; one that no kernel computes takes none."""
    call, term = bind(case(MODERATE)).call, Term(0.02, 3)

    def route(first: Term, second: Term) -> str:
        made = Affine((first, second), np.float32(30.0), 5)
        return choose(replace(call, op=replace(ADD, name="new", affine=lambda params: made))).route

    assert route(term, replace(term, factor=-1.0)) in (LUT, FMA, LINEAR)
    assert route(replace(term, factor=2.0), term) == EMULATED
