"""Native kernels write the emulated kernels' bytes: random cases, any number of threads, every route.

tests/golden repeats the corpus and every recording on them.

REFSIM_RANDOM=1000 runs that many random configurations per operator and thread count instead of the usual few.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import permutations, product

import numpy as np
import pytest
from cases import GENERAL, POINT, TRANSPOSED, WIDE, conv
from wide import SQUARE, check, large_window, on_processor, repacks, wide

from refsim.core.qmath import PROFILES
from refsim.core.rng import Rng
from refsim.exec.cpu import NativeExecutor, routes, tile4x4
from refsim.exec.cpu.amx import tiles
from refsim.exec.cpu.ir import ModuleText
from refsim.exec.cpu.isa import cpu
from refsim.exec.cpu.relayout import repack as relayout
from refsim.golden import route_coverage, rules
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target

repack = relayout.repack
RANDOM = int(os.environ.get("REFSIM_RANDOM", "12"))
THREADS = (1, 2, 3)
EXECUTORS = {count: NativeExecutor(count) for count in THREADS}
#: Shapes of whole tiles of 64 columns or channels, of narrower ones, and of what is left beside them
REPACKED = [
    (2, 64, 8, 64), (1, 67, 5, 113), (1, 128, 3, 80), (1, 3, 9, 72), (1, 48, 12, 40), (1, 33, 1, 21), (2, 4, 30, 7),
    (1, 132, 4, 16), (1, 96, 5, 148),
]  # fmt: skip


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("name", OPS)
def test_random(name: str, threads: int) -> None:
    """The example, and small shapes as the operators sample them; every fourth one larger."""
    check(OPS[name].cases.example, EXECUTORS[threads])
    for number in range(RANDOM):
        seed = 1000 * threads + number
        check(wide(name, seed) if number % 4 == 0 else OPS[name].sample(Rng(seed)), EXECUTORS[threads])


@pytest.mark.parametrize("shape", REPACKED, ids=str)
def test_repacks(shape: tuple[int, ...]) -> None:
    for number, case in enumerate(repacks(shape)):
        check(case, EXECUTORS[1 + number % 3])


@pytest.mark.parametrize("seed", range(9))
def test_large_depthwise_windows(seed: int) -> None:
    case, executor = large_window(seed), EXECUTORS[1 + seed % 3]
    check(case, executor)
    assert executor.choose(Prepared(bind(case).call)).route == "depthwise"


def test_other_profiles_take_the_model() -> None:
    for profile in ("nvidia", "lavapipe"):
        prepared = Prepared(bind(OPS["q8ta_conv2d_pw"].sample(Rng(1)), Target(PROFILES[profile])).call)
        assert EXECUTORS[1].choose(prepared).route == "emulated"


@pytest.mark.long
@pytest.mark.parametrize(("name", "isa"), [("generic", "portable"), ("haswell", "avx2")])
def test_other_processors(name: str, isa: str) -> None:
    """Code for a lesser processor than the host's writes the same bytes (in a process of its own)."""
    code = (
        "from test_float_routes import *\n"
        "from wide import large_window, repacks, Rng\n"
        "executor = NativeExecutor(2)\n"
        f"for name in OPS:\n  for seed in range({max(3, RANDOM // 5)}):\n"
        "    check(wide(name, seed), executor); check(OPS[name].sample(Rng(seed)), executor)\n"
        "for seed in range(3): check(large_window(seed), executor)\n"
        f"for shape in {REPACKED[:4]}:\n  for case in repacks(shape): check(case, executor)\n"
        "for profile in EVERY:\n"
        "  for name in FREE:\n    for seed in range(4):\n"
        "      assert check(wide(name, seed), executor, Target(profile)) == taken(name, profile)\n"
        "  check(linear(1, 300, 28, 12), executor, Target(profile))\n"
        "print(cpu().isa.name)\n"
    )
    assert on_processor(name, code) == f"{isa}\n"


@pytest.mark.parametrize(
    "name", ["q8ta_conv2d", GENERAL, POINT, TRANSPOSED, "q8ta_linear", "q8ta_linear_gemv"]
)
def test_fast_routes_are_taken(name: str) -> None:
    """The comparison above would pass with the model alone; most configurations must not take it."""
    for seed in range(10):
        assert EXECUTORS[1].choose(Prepared(bind(wide(name, seed)).call)).route != "emulated"


#: Routes that may be asked for, and why this machine cannot take one.
ASKED_FOR: dict[str, str | None] = {
    routes.AMX_EMULATED: None,
    **dict.fromkeys(route_coverage.MATRICES),
    routes.AMX: tiles.why_not(cpu().isa),
    "gemm8": None if cpu().isa.maddubs else f"{cpu().isa.name} has no such products",
}


def each_route(*without: str) -> pytest.MarkDecorator:
    marks = {r: pytest.mark.skipif(why is not None, reason=str(why)) for r, why in ASKED_FOR.items()}
    rows = [pytest.param(r, marks=mark) for r, mark in marks.items() if r not in without]
    return pytest.mark.parametrize("route", rows)


@each_route(route_coverage.ONE_PIXEL)
def test_forced_routes(route: str) -> None:
    """Routes that a rule would prefer to another are exact wherever they apply."""
    executor = NativeExecutor(2, {"*": route})
    taken = Counter()
    for seed in range(RANDOM):
        for name in SQUARE:
            case = wide(name, seed)
            window = {"kernel_size": (3, 3), "stride": (1, 1), "padding": (1, seed % 3), "dilation": (1, 1)}
            case = replace(case, params={**case.params, **window})
            taken[check(case, executor)] += 1
    assert taken[route] > RANDOM, taken


#: Sizes with whole tiles of Winograd's, and with tiles that end beyond the output along either dim.
IMAGES = [(9, 24), (24, 9), (5, 8), (8, 5), (8, 8), (3, 40), (40, 3)]
REPACKED_TO = [*permutations(("4C", "4C1W", "4W4C"), 2)]


@pytest.mark.parametrize("route", ["winograd2", "winograd4"])
@pytest.mark.parametrize("out", [20, 64])
def test_outputs_that_end_within_a_tile(route: str, out: int) -> None:
    """Tiles are stored where they belong only if all of them lies inside."""
    executor = NativeExecutor(force={WIDE: route})
    for size in IMAGES:
        assert check(conv(WIDE, (2, 32, *size), out, 3), executor) == route


@pytest.mark.parametrize(("source", "to"), REPACKED_TO)
def test_rows_that_end_within_a_tile(source: str, to: str) -> None:
    executor = NativeExecutor(force={"q8ta_clone": "repack"})
    for width, channels in product((1, 2, 3, 5, 6, 7, 10, 11, 23), (4, 7, 21)):
        case = Case("q8ta_clone", {}, {"x": ((2, channels, 3, width), source)}, to, 1)
        assert check(case, executor) == "repack"


def whole_tiles_alone(module: ModuleText, name: str, *, source: str, to: str, at_once: int) -> None:
    """The kernel that repacks, but what is done in parts is not stored."""
    store = tile4x4.store_inside
    tile4x4.store_inside = lambda *rest: None
    try:
        repack(module, name, source=source, to=to, at_once=at_once)
    finally:
        tile4x4.store_inside = store


@pytest.mark.parametrize("shape", [(2, 16, 3, 4), (1, 20, 2, 16), (1, 80, 3, 12)], ids=str)
@pytest.mark.parametrize(("source", "to"), REPACKED_TO)
def test_whole_tiles_are_not_repacked_in_parts(
    source: str, to: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In parts they would be the same bytes, only later."""
    monkeypatch.setattr(relayout, "repack", whole_tiles_alone)
    case = Case("q8ta_clone", {}, {"x": (shape, source)}, to, 1)
    assert check(case, NativeExecutor(force={"q8ta_clone": "repack"})) == "repack"


# --- the cases of the corpus that are there for the routes of products -----------------------------------


ROUTED = [name for name, rule in rules.RULES.items() if any(hard.kind == "routes" for hard in rule.hard)]


@cache
def routed(op: str) -> list[BoundCase]:
    rule = rules.RULES[op]
    numbers = range(rule.spread, rule.count)
    return [bind(rules.case(op, n)) for n in numbers if rule.hard_of(n)[0].kind == "routes"]  # type: ignore[index]


@cache
def right_of(op: str) -> list[np.ndarray]:
    return [case.call.expected(case.inputs).raw for case in routed(op)]


@pytest.mark.few(7)
@pytest.mark.parametrize("threads", [1, 3])
@each_route()
def test_routed_cases(route: str, threads: int) -> None:
    executor = NativeExecutor(threads, {"*": route})
    taken: Counter[str] = Counter()
    for op in ROUTED:
        for case, right in zip(routed(op)[threads - 1 :: 3], right_of(op)[threads - 1 :: 3], strict=True):
            prepared = Prepared(case.call)
            if executor.choose(prepared).route != route:
                continue
            taken[op] += 1
            assert np.array_equal(executor.run_prepared(prepared, case.inputs).raw, right), str(case.case)
    assert taken.total() > 20, taken
