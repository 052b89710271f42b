"""Native kernels write the emulated kernels' bytes: every case, every recording, random ones, any number of threads.

REFSIM_RANDOM=1000 runs that many random configurations per operator and thread count instead of the usual few.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from examples import some
from wide import EMULATED, ROOT, SQUARE, check, large_window, on_processor, repacks, wide

from refsim.core.buffer import PackedBuffer
from refsim.core.errors import RefsimError
from refsim.core.qmath import PROFILES
from refsim.core.rng import Rng
from refsim.exec.cpu import NativeExecutor
from refsim.exec.cpu.isa import cpu
from refsim.formats import recordings
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target

RANDOM = int(os.environ.get("REFSIM_RANDOM", "12"))
THREADS = (1, 2, 3)
EXECUTORS = {count: NativeExecutor(count) for count in THREADS}
CASES = [
    pytest.param(case, id=f"{name}-{number}")
    for name, op in OPS.items()
    for number, case in enumerate(some(op))
]
#: Shapes of whole tiles of 64 columns or channels, of narrower ones, and of what is left beside them
REPACKED = [
    (2, 64, 8, 64), (1, 67, 5, 113), (1, 128, 3, 80), (1, 3, 9, 72), (1, 48, 12, 40), (1, 33, 1, 21), (2, 4, 30, 7),
    (1, 132, 4, 16), (1, 96, 5, 148),
]  # fmt: skip
RECORDINGS = sorted((ROOT / "golden" / "upstream").glob("*.zip"))


@pytest.mark.parametrize("case", CASES)
def test_case(case: Case) -> None:
    for executor in EXECUTORS.values():
        check(case, executor)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_recordings(path: Path) -> None:
    compared = 0
    for recording in recordings.read(path):
        try:
            prepared = Prepared(recording.call())
        except RefsimError:
            continue  # refused here; tests/ops counts these
        expected = EMULATED.run_prepared(prepared, recording.inputs())
        for count, executor in EXECUTORS.items():
            actual = executor.run_prepared(prepared, recording.inputs())
            assert np.array_equal(actual.raw, expected.raw), f"{recording.id}, {count} threads"
            compared += 1
    assert compared


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("name", OPS)
def test_random(name: str, threads: int) -> None:
    """Small shapes as the operators sample them; every fourth one larger."""
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
@pytest.mark.parametrize("cpu", ["generic", "haswell"])
def test_other_processors(cpu: str) -> None:
    """Code for a lesser processor than the host's writes the same bytes (in a process of its own)."""
    code = (
        "from wide import SQUARE, check, large_window, repacks, wide, OPS, Rng\n"
        "from refsim.exec.cpu import NativeExecutor\n"
        "executor = NativeExecutor(2)\n"
        f"for name in OPS:\n  for seed in range({max(3, RANDOM // 5)}):\n"
        "    check(wide(name, seed), executor); check(OPS[name].sample(Rng(seed)), executor)\n"
        "for seed in range(3): check(large_window(seed), executor)\n"
        f"for shape in {REPACKED[:4]}:\n  for case in repacks(shape): check(case, executor)\n"
    )
    on_processor(cpu, code)


def test_fast_routes_are_taken() -> None:
    """The comparison above would pass with the model alone; most configurations must not take it."""
    routes = Counter()
    for name in (
        "q8ta_conv2d",
        "q8ta_conv2d_pw",
        "q8ta_linear",
        "q8ta_linear_gemv",
        "q8ta_conv2d_transposed",
    ):
        for seed in range(10):
            routes[EXECUTORS[1].choose(Prepared(bind(wide(name, seed)).call)).route] += 1
    assert routes["emulated"] == 0, routes


@pytest.mark.parametrize(
    "route",
    [
        "winograd4",
        "winograd2",
        "gemm",
        pytest.param(
            "gemm8",
            marks=pytest.mark.skipif(not cpu().isa.maddubs, reason=f"{cpu().isa.name} has no vpmaddubsw"),
        ),
    ],
)
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


@pytest.mark.parametrize(("channels", "route"), [(112, "winograd4"), (116, "emulated")])
@pytest.mark.parametrize("zp", [127, -128])
def test_winograd_at_the_bound_of_its_sums(channels: int, route: str, zp: int) -> None:
    """The largest sums that the check at prepack lets through, and the first ones that it does not."""
    window = {"kernel_size": (3, 3), "stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    params = {**window, "in_scale": 0.02, "in_zp": zp, "out_scale": 0.5, "out_zp": -4}
    x = {"x": ((1, channels, 9, 9), "4C")}
    bound = bind(Case("q8ta_conv2d_im2col", params, x, "4C", features={"out_channels": 20}))
    weight, scales = bound.call.consts["weight"], bound.call.consts["weight_scales"]
    assert weight is not None and scales is not None
    weight = np.where(weight != 0, -128, 0).astype(np.int8)
    sums = weight.sum(1, dtype=np.int32)
    largest = int(np.abs(sums.astype(np.int64)).max()) * 255 * 0.02 * scales
    scales = np.where(scales > 0, scales * (50 / largest.max()), 0).astype(np.float32)
    consts = {**bound.call.consts, "weight": weight, "weight_sums": sums, "weight_scales": scales}
    prepared = Prepared(replace(bound.call, consts=consts))
    executor = NativeExecutor(1, {"*": "winograd4"})
    assert executor.choose(prepared).route == route
    desc = bound.call.descs["x"]
    for value in (-128, 127):
        inputs = {"x": PackedBuffer.pack(np.full(desc.shape, value, np.int8), desc.layout)}
        expected, actual = (e.run_prepared(prepared, inputs).raw for e in (EMULATED, executor))
        assert np.array_equal(actual, expected)
        assert value == zp or len(np.unique(expected)) > 2, "else sums that wrap would not be seen"
