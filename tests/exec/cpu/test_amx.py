"""The matrix unit's kernels: the emulated tiles everywhere, the processor's own where there are some."""

from __future__ import annotations

import ctypes
import errno
from collections import Counter
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from cases import GENERAL, conv
from test_exact import ROUTED, routed
from wide import check

from refsim.cli.doctor import processor
from refsim.core.rng import Rng
from refsim.exec.cpu import NativeExecutor, compiled, isa, routes
from refsim.exec.cpu.amx import tiles
from refsim.exec.cpu.amx.prepack import TileSizes, divide
from refsim.exec.cpu.amx.tiles import EMULATED_BYTES, Emulated, Real, Shapes, emulation
from refsim.exec.cpu.conv_problem import conv_problem
from refsim.exec.cpu.ir import PTR, ModuleText
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


# --- the instructions --------------------------------------------------------------------------------------


def instructions(module: ModuleText, name: str, *, emulated: bool) -> None:
    """Each of them once: sums of two products of tiles, the first sums loaded, the others zeroed; both stored."""
    if emulated:
        emulation(module, name)
    with module.function(name, (PTR,) * 6) as fn:
        config, a, b, start, out, memory = fn.params
        unit = Emulated(fn, name, memory) if emulated else Real(fn)
        shapes = Shapes(2, 2)
        unit.configure(config)
        unit.load(shapes.pixels(0), a, fn.i64(80))
        unit.load(shapes.weights(1), b, fn.i64(64))
        unit.load(shapes.sums(0, 1), start, fn.i64(0))
        unit.zero(shapes.sums(1, 1))
        for _ in range(2):
            unit.multiply(shapes.sums(0, 1), shapes.pixels(0), shapes.weights(1))
        unit.multiply(shapes.sums(1, 1), shapes.pixels(0), shapes.weights(1))
        unit.store(shapes.sums(0, 1), out, fn.i64(128))
        unit.store(shapes.sums(1, 1), out + 64, fn.i64(128))
        unit.release()


@pytest.mark.parametrize("emulated", [True] if LACKING else [True, False])
@pytest.mark.parametrize(("rows", "k_bytes"), [(16, 64), (1, 4), (7, 28), (13, 60), (16, 4)])
def test_instructions(rows: int, k_bytes: int, emulated: bool) -> None:
    rng = np.random.default_rng(rows)
    a = rng.integers(-128, 128, (16, 80), dtype=np.int8)
    b = rng.integers(-128, 128, (16, 16, 4), dtype=np.int8)
    start = rng.integers(-(2**31), 2**31, 16).astype(np.int32)
    out = np.full((17, 32), 77, np.int32)
    memory = np.full(EMULATED_BYTES, 99, np.uint8)
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 6)(compiled.address(instructions, emulated=emulated))
    config = Shapes(2, 2, rows, k_bytes).config
    run(*(array.ctypes.data for array in (config, a, b, start, out, memory)))
    k4s = k_bytes // 4
    want = np.einsum(
        "mkq,knq->mn", a[:rows, :k_bytes].reshape(rows, k4s, 4).astype(np.int64), b[:k4s].astype(np.int64)
    )
    assert np.array_equal(out[:rows, :16], (start + 2 * want).astype(np.int32))
    assert np.array_equal(out[:rows, 16:], want)
    assert (out[rows:] == 77).all(), "no more rows than the configuration has"


@pytest.mark.parametrize("a", range(1, 5))
@pytest.mark.parametrize("b", range(1, 5))
def test_registers_of_different_kinds_differ(a: int, b: int) -> None:
    if a * b + min(a, b) >= tiles.TILES:
        return
    shapes = Shapes(a, b)
    sums = {shapes.sums(i, j) for i in range(a) for j in range(b)}
    pixels, weights = {shapes.pixels(i) for i in range(a)}, {shapes.weights(j) for j in range(b)}
    assert len(sums) == a * b and sums | pixels | weights <= set(range(tiles.TILES))
    assert not (sums & pixels or sums & weights or pixels & weights)
    # every tile of the kind that there are fewer of has a register of its own
    assert len(pixels if a <= b else weights) == min(a, b)


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


def test_a_processor_without_tiles_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    row = next(row for row in ISAS if not row.tiles)
    monkeypatch.setattr(routes, "cpu", lambda: isa.Cpu("", "", row))
    choice = NativeExecutor().choose(Prepared(bind(layer((1, 256, 14, 14), 256, 1)).call))
    assert dict(choice.rejected)["amx"] == f"{row.name} has no tiles"
    assert "asked for" in dict(choice.rejected)["amx_emulated"]


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
