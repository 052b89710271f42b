"""The matrix unit's kernels: the emulated tiles everywhere, the processor's own where there are some."""

from __future__ import annotations

import ctypes
import errno
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest
from cases import GENERAL, conv
from test_exact import ROUTED, routed
from wide import check

from refsim.cli.doctor import processor
from refsim.core.rng import Rng
from refsim.exec.cpu import NativeExecutor, isa, routes
from refsim.exec.cpu.amx import tiles
from refsim.exec.cpu.amx.prepack import TileSizes, divide
from refsim.exec.cpu.conv_problem import conv_problem
from refsim.exec.cpu.isa import ISAS, cpu
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS

LACKING = tiles.why_not(cpu().isa)
ROUTES = [
    "amx_emulated",
    pytest.param("amx", marks=pytest.mark.skipif(LACKING is not None, reason=str(LACKING))),
]
THREADS = (1, 2, 3)
RULE = next(rule for rule in routes.RULES if rule.route == "amx")


layer = partial(conv, GENERAL)
#: What the cases of the corpus for routes, which test_exact.py runs on tiles too, have not: pixels read in place.
CASES = {
    "in place, one block": layer((1, 64, 7, 7), 64, 1),
    "in place, several images, a cut panel": layer((3, 20, 5, 9), 72, 1),
    "in place, blocks of 512 and one pixel": layer((1, 8, 27, 19), 16, 1),
    "groups, in place": layer((2, 64, 5, 9), 64, 1, groups=2),
    "relu at another zero point": layer((1, 16, 9, 9), 48, 3, activation="relu", out_zp=3),
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_cases(case: Case, route: str) -> None:
    for threads in THREADS:
        assert check(case, NativeExecutor(threads, {"*": route})) == route


def test_cases_reach_every_way() -> None:
    """Of one to three threads: shapes of tiles, ways to read a pixel, lines, blocks."""
    shapes: Counter[tuple[int, int]] = Counter()
    ways: Counter[str] = Counter()
    calls = [bind(case).call for case in CASES.values()]
    calls += [bound.call for op in ROUTED for bound in routed(op) if RULE.takes(bound.call.op)]
    for call in calls:
        layout = TileSizes(conv_problem(call))
        for threads in THREADS:
            made = divide(layout, threads)
            shapes[made.shapes.a, made.shapes.b] += 1
            ways["in place" if layout.in_place else "packed"] += 1
            ways["flat" if made.cut.flat else "by row"] += 1
            ways["shares"] += made.per_group > 1
            ways["blocks"] += made.cut.block != layout.size[1:]
            ways["odd rows"] += made.shapes.rows % 2
            ways["short chunks"] += made.shapes.k_bytes < 64
    assert {(2, 2), (1, 4), (4, 1)} <= shapes.keys()
    assert {"in place", "packed", "flat", "by row"} <= ways.keys()
    assert min(ways.values()) > 0, ways


# --- the choice --------------------------------------------------------------------------------------------


@pytest.fixture
def with_tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A processor that has them, and a system that lets them be used."""
    row = next(row for row in ISAS if row.tiles)
    for module in (routes, isa):
        monkeypatch.setattr(module, "cpu", lambda: isa.Cpu("sapphirerapids", "", row))
    monkeypatch.setattr(tiles, "refused", lambda: None)
    yield monkeypatch


def test_large_products_take_tiles_and_small_ones_do_not(with_tiles: pytest.MonkeyPatch) -> None:
    large, small = (Prepared(bind(layer((1, c, 14, 14), 256, 1)).call) for c in (256, 4))
    assert NativeExecutor().choose(large).route == "amx"
    choice = NativeExecutor().choose(small)
    assert choice.route == "gemm" and "estimated time of the direct product" in dict(choice.rejected)["amx"]
    row = Prepared(bind(OPS["q8ta_linear_gemv"].sample(Rng(3))).call)
    choice = NativeExecutor().choose(row)
    assert choice.route == "gemv" and "one output pixel" in dict(choice.rejected)["amx"]


def test_a_refusal_takes_the_next_route(with_tiles: pytest.MonkeyPatch) -> None:
    with_tiles.setattr(tiles, "refused", lambda: "the operating system refuses tile registers (errno 95)")
    choice = NativeExecutor().choose(Prepared(bind(layer((1, 256, 14, 14), 256, 1)).call))
    assert choice.route == "gemm" and dict(choice.rejected)["amx"] == tiles.refused()
    assert "errno 95" in processor().detail and "amx" in processor().detail


def test_a_processor_without_the_instructions_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "cpu", lambda: isa.Cpu("", "", ISAS[-1]))
    rejected = dict(NativeExecutor().choose(Prepared(bind(layer((1, 256, 14, 14), 256, 1)).call)).rejected)
    assert rejected["amx"] == "portable has no tiles" and "asked for" in rejected["amx_emulated"]
    assert rejected["gemm8"] == "portable has no such products"


# --- what the system is asked ----------------------------------------------------------------------------


class _System:
    """Stands for the C library: keeps what it is asked, and answers with a number."""

    def __init__(self, answer: int) -> None:
        self.answer, self.asked = answer, list[tuple[object, ...]]()

    def syscall(self, *words: object) -> int:
        assert all(isinstance(word, ctypes.c_long) for word in words)  # int would leave half of a register
        self.asked.append(tuple(word.value for word in words))  # type: ignore[attr-defined]
        ctypes.set_errno(0 if self.answer == 0 else errno.EOPNOTSUPP)
        return self.answer


@pytest.mark.parametrize("answer", [0, -1])
def test_what_the_system_is_asked(answer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA): Linux, Documentation/arch/x86/xstate.rst."""
    system = _System(answer)
    monkeypatch.setattr(
        ctypes, "CDLL", lambda name, use_errno: system if name is None and use_errno else None
    )
    monkeypatch.setattr(tiles.platform, "system", lambda: "Linux")
    monkeypatch.setattr(tiles.platform, "machine", lambda: "x86_64")
    said = tiles.refused.__wrapped__()
    assert system.asked == [(158, 0x1023, 18)]
    assert said == (
        f"the operating system refuses tile registers (errno {errno.EOPNOTSUPP})" if answer else None
    )


@pytest.mark.parametrize(
    ("system", "machine"), [("Darwin", "x86_64"), ("Linux", "aarch64"), ("Windows", "AMD64")]
)
def test_other_systems_are_not_asked(system: str, machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", None)
    monkeypatch.setattr(tiles.platform, "system", lambda: system)
    monkeypatch.setattr(tiles.platform, "machine", lambda: machine)
    assert tiles.refused.__wrapped__() == "only Linux on x86-64 is asked for tiles"
