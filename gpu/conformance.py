"""The Kompute executor against the definitions, on one device: every case, recordings, random calls, whole models.

``python -m refsim_gpu.conformance [INDEX] [--random N] [--models DIR] [--recordings DIR] [--json FILE]`` prints the
counts that docs/conformance.md reports. Every comparison is of all bytes, guard words included.

``--modules DIR`` puts the modules of another build in the place of refsim's shaders. They may have the known defects of
upstream's, and ``--profile`` says which numerics they must have; without it any one that is known is allowed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from refsim.core import choices
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import MissingDependencyError, RefsimError
from refsim.core.qmath import PROFILES
from refsim.core.rng import Rng
from refsim.exec.emulated import EmulatedExecutor
from refsim.exec.executor import YOURS, Executor
from refsim.exec.model import load
from refsim.formats import profiles
from refsim.golden import recorded
from refsim.golden.check import ACCEPTED, REFUSED
from refsim.golden.judge import WRONG, judged
from refsim.golden.telling import recorded_cases
from refsim.graph.interpreter import Kept
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target
from refsim_gpu.command import command
from refsim_gpu.executor import KomputeExecutor
from refsim_gpu.modules import ModuleExecutor, Options

#: Failures of each kind that are printed.
MOST_FAILED = 3


@dataclass
class Count:
    """How many comparisons were made, and which failed."""

    name: str
    compared: int = 0
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, what: str, good: bool) -> None:
        self.compared += 1
        if not good:
            self.failed.append(what)


def cases(name: str, random: int, target: Target | None = None) -> Iterator[BoundCase]:
    """The operator's example, then random cases (seeds 0, 1, ...)."""
    yield bind(OPS[name].cases.example, target)
    for seed in range(random):
        yield bind(OPS[name].sample(Rng(seed)), target)


def accepted(executor: Executor, bound: BoundCase, actual: PackedBuffer, strict: bool = False) -> bool:
    """Whether all bytes are the definition's; or, for another build's kernels, are otherwise as they may be."""
    if actual == bound.call.expected(bound.inputs):
        return True
    if not executor.foreign or executor.source(bound.call).whose != YOURS:
        return False
    return judged(bound, actual, profiles=() if strict else PROFILES.values()).verdict != WRONG


def compare_calls(
    executor: Executor,
    bounds: Iterable[BoundCase],
    count: Count,
    strict: bool = False,
    name: Callable[[Case], str] = str,
) -> None:
    """Compare all bytes of the device's buffer with the definition's; as many cases at once as the executor likes."""
    source = iter(bounds)
    while some := list(islice(source, executor.batch)):
        results = executor.run_batch([(bound.call, bound.inputs) for bound in some])
        for bound, result in zip(some, results, strict=True):
            failed = isinstance(result, RefsimError)
            what = f"{name(bound.case)}: {result}" if failed else name(bound.case)
            count.add(what, not isinstance(result, RefsimError) and accepted(executor, bound, result, strict))


def compare_recordings(executor: Executor, folder: Path, count: Count, every: int = 1) -> None:
    """Compare device and definition on each recorded call. Calls that refsim refuses are left out.

    ``every`` n takes every n-th of a file.
    """
    operators = sorted(path.stem for path in folder.glob("*.zip"))
    taken = (one for op in operators for one in islice(recorded_cases(op, folder), 0, None, every))
    compare_calls(executor, (one.bound for one in taken), count, name=lambda case: case.note)


def compare_modules(executor: Executor, folder: Path, count: Count, target: Target | None = None) -> None:
    """Repeat each recorded call on kernels of another build; see `refsim.golden.recorded`."""
    for row in recorded.check(executor, folder, target=target):
        if row.status != REFUSED:
            said = ", ".join(filter(None, (row.status, row.message)))
            count.add(f"{row.case}: {said}", row.status in ACCEPTED)


def compare_model(
    executor: Executor, path: Path, inputs: list[np.ndarray], count: Count, target: Target | None = None
) -> None:
    """Compare every buffer of every node on the device with the emulated kernels."""
    model = load(path, target)
    ours, theirs = Kept(), Kept()
    model.run(inputs, executor, ours)
    model.run(inputs, EmulatedExecutor(), theirs)
    for key, expected in theirs.items():
        held = ours.get(key)
        good = held == expected if isinstance(expected, PackedBuffer) else np.array_equal(held, expected)
        count.add(f"{path.stem}: delegate {key[0]} value {key[1]}", bool(good))


def run(
    executor: Executor,
    random: int,
    recordings: Path | None,
    models: Path | None,
    target: Target | None = None,
) -> list[Count]:
    """Run everything: one count per operator, one for the recordings, one per model."""
    counts = []

    def timed(name: str) -> Count:
        counts.append(Count(name, seconds=time.perf_counter()))
        return counts[-1]

    for name in OPS:
        count = timed(name)
        try:
            compare_calls(executor, cases(name, random, target), count, target is not None)
        except (
            MissingDependencyError
        ) as error:  # a new operator that is not built yet keeps no other from its turn
            count.add(str(error), False)
        count.seconds = time.perf_counter() - count.seconds
    if recordings is not None:
        count = timed("recordings")
        if executor.foreign:
            compare_modules(executor, recordings, count, target)
        else:
            compare_recordings(executor, recordings, count)
        count.seconds = time.perf_counter() - count.seconds
    for path in sorted(models.glob("*.pte")) if models is not None else ():
        count = timed(path.stem)
        arrays = path.with_suffix(".io.npz")
        archive = np.load(arrays if arrays.is_file() else path.with_suffix(".npz"))
        compare_model(executor, path, [archive["in0"]], count, target)
        count.seconds = time.perf_counter() - count.seconds
    return counts


def _opened(options: argparse.Namespace) -> KomputeExecutor | ModuleExecutor:
    if options.modules is None:
        return KomputeExecutor(options.index, use_dot=False if options.no_dot else None)
    variant = "fallback" if options.no_dot else ""
    return ModuleExecutor(str(options.modules), Options(options.index, variant))


@command("refsim_gpu.conformance")
def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="refsim_gpu.conformance")
    parser.add_argument("index", nargs="?", type=int, default=0)
    parser.add_argument("--random", type=int, default=300)
    parser.add_argument("--recordings", type=Path)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--no-dot", action="store_true", help="the shaders without the packed dot product")
    parser.add_argument(
        "--modules", type=Path, help="SPIR-V modules of another build, in place of our shaders"
    )
    parser.add_argument("--profile", help="with --modules: the numerics that they must have")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    return _report(options)


def _report(options: argparse.Namespace) -> int:
    target = Target(profiles.profile(options.profile)) if options.profile else None
    with _opened(options) as executor:
        ours = executor.ours if isinstance(executor, ModuleExecutor) else executor
        info = ours.device.info
        print(f"{info.name}, {info.driver}, packed dot product: {ours.pipelines.use_dot}", flush=True)
        counts = run(executor, options.random, options.recordings, options.models, target)
    for count in counts:
        print(
            f"{count.name:28} {count.compared:6} compared {len(count.failed):4} failed {count.seconds:7.1f} s"
        )
        for what in count.failed[:MOST_FAILED]:
            print(f"    {what}")
        if len(count.failed) > MOST_FAILED:
            print(f"    {choices.more(len(count.failed) - MOST_FAILED, '--json FILE has all')}")
    failed = sum(len(count.failed) for count in counts)
    print(f"{sum(count.compared for count in counts)} compared, {failed} failed")
    if options.json:
        report = {"device": info.name, "driver": info.driver, "counts": [asdict(count) for count in counts]}
        options.json.write_text(json.dumps(report, indent=1))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
