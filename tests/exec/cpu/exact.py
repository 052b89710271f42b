"""Native kernels against the emulated kernels, byte for byte: golden cases, recordings, random configurations.

python tests/exec/cpu/exact.py [--random 1000] [--threads 1,2,3] [--only REGEX]; what is finished is kept in a file,
so that a run that was stopped goes on where it was. NUMBA_CPU_NAME=generic checks the code for another processor.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from wide import SQUARE, wide

from refsim.core.buffer import PackedBuffer
from refsim.core.errors import RefsimError
from refsim.core.rng import Rng
from refsim.exec.cpu import EmulatedExecutor, NativeExecutor, compiled
from refsim.exec.cpu.isa import cpu
from refsim.exec.cpu.routes import RULES
from refsim.formats import recordings
from refsim.golden.store import Corpus, default_root
from refsim.ops.base.binding import bind
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call

CHUNK = 100
EMULATED = EmulatedExecutor()
Inputs = dict[str, PackedBuffer]


@dataclass(frozen=True)
class Source:
    """Configurations of an operator by number; None is one that is refused here."""

    count: Callable[[str], int]
    config: Callable[[str, int], tuple[Call, Inputs] | None]


@cache
def entries(op: str) -> list[object]:
    return list(Corpus(default_root()).entries(op)) if op in Corpus(default_root()).operators() else []


@cache
def recordings_of(op: str) -> list[recordings.Recording]:
    path = default_root() / "upstream" / f"{op}.zip"
    return list(recordings.read(path)) if path.exists() else []


def golden(op: str, number: int) -> tuple[Call, Inputs]:
    bound = bind(entries(op)[number].case)  # type: ignore[attr-defined]
    return bound.call, dict(bound.inputs)


def recorded(op: str, number: int) -> tuple[Call, Inputs] | None:
    recording = recordings_of(op)[number]
    try:
        return recording.call(), recording.inputs()
    except RefsimError:
        return None


def random(op: str, number: int) -> tuple[Call, Inputs]:
    """As the operators sample them; every fourth one larger."""
    seed = 100_000 + number
    bound = bind(wide(op, seed) if number % 4 == 0 else OPS[op].sample(Rng(seed)))
    return bound.call, dict(bound.inputs)


def window3(op: str, number: int) -> tuple[Call, Inputs]:
    """Convolutions that Winograd can compute, of any size."""
    case = wide(op, 200_000 + number)
    window = {"kernel_size": (3, 3), "stride": (1, 1), "padding": (1, 1 + number % 2), "dilation": (1, 1)}
    bound = bind(replace(case, params={**case.params, **window}))
    return bound.call, dict(bound.inputs)


MATRICES = frozenset(
    name for name, op in OPS.items() if next(rule for rule in RULES if rule.route == "gemm").takes(op)
)
#: Routes that a rule takes only where they are faster, asked for: configurations, and operators that have them.
FORCED = {
    "winograd4": (window3, SQUARE),
    "winograd2": (window3, SQUARE),
    "gemm8": (random, MATRICES),
    "amx": (random, MATRICES),
    "amx_emulated": (random, MATRICES),
}


def compare(
    call: Call, inputs: Inputs, executors: dict[int, NativeExecutor], number: int
) -> tuple[str, list[str]]:
    """The route taken, and what differs; the inputs' padding holds random bytes for the native kernels."""
    prepared = Prepared(call)
    expected = EMULATED.run_prepared(prepared, inputs)
    given = inputs
    if not call.padding.copied:
        rng = np.random.default_rng(number)
        given = {name: buffer.poison(rng) for name, buffer in inputs.items()}
    wrong = []
    for threads, executor in executors.items():
        actual = executor.run_prepared(prepared, given)
        differing = int(np.count_nonzero(actual.raw != expected.raw))
        if differing:
            wrong.append(f"{threads} threads: {differing} of {expected.raw.size} bytes differ")
    return executors[min(executors)].choose(prepared).route, wrong


def chunks(sources: dict[str, Source], only: str) -> Iterator[tuple[str, str, int, int]]:
    for kind, source in sources.items():
        for op in OPS:
            if re.search(only, f"{kind} {op}"):
                count = source.count(op)
                for first in range(0, count, CHUNK):
                    yield kind, op, first, min(count, first + CHUNK)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--random", type=int, default=1000, help="random configurations per operator (1000)")
    parser.add_argument("--threads", default="1,2,3", help="thread counts (1,2,3)")
    parser.add_argument("--only", default="", help="only where this regular expression is in 'kind operator'")
    parser.add_argument(
        "--state", type=Path, default=Path("out/exact.jsonl"), help="what is finished (out/exact.jsonl)"
    )
    options = parser.parse_args()
    sources = {
        "golden": Source(lambda op: len(entries(op)), golden),
        "recorded": Source(lambda op: len(recordings_of(op)), recorded),
        "random": Source(lambda op: options.random, random),
    }
    counts = [int(count) for count in options.threads.split(",")]
    executors = {count: NativeExecutor(count) for count in counts}
    forced = {route: {count: NativeExecutor(count, {"*": route}) for count in counts} for route in FORCED}
    for route, (config, ops) in FORCED.items():
        sources[route] = Source(lambda op, ops=ops: options.random if op in ops else 0, config)
    # the digest is of all sources that make the machine code, and of the processor
    code = f"{compiled.directory().name} {cpu().isa.name} threads {options.threads}"
    options.state.parent.mkdir(parents=True, exist_ok=True)
    lines = options.state.read_text().splitlines() if options.state.exists() else []
    done = {row["chunk"]: row for row in map(json.loads, lines) if row["code"] == code}
    totals: dict[str, Counter[str]] = {}
    routes: Counter[str] = Counter()
    failed = 0
    for kind, op, first, last in chunks(sources, options.only):
        key = f"{kind} {op} {first}-{last}"
        row = done.get(key)
        if row is None:
            row = {"code": code, "chunk": key, "routes": Counter(), "refused": 0, "wrong": []}
            for number in range(first, last):
                found = sources[kind].config(op, number)
                if found is None:
                    row["refused"] += 1
                    continue
                route, wrong = compare(*found, forced.get(kind, executors), number)
                row["routes"][route] += 1
                row["wrong"] += [f"{kind} {op} {number}, {route}: {text}" for text in wrong]
            with options.state.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(key, dict(row["routes"]), *row["wrong"][:3], sep="  ", flush=True)
        total = totals.setdefault(kind, Counter())
        total["configurations"] += sum(row["routes"].values())
        total["refused"] += row["refused"]
        routes.update(row["routes"])
        failed += len(row["wrong"])
    print(f"\n{code}")
    for kind, total in totals.items():
        print(f"{kind}: {total['configurations']} configurations, {total['refused']} refused by both")
    print(f"routes: {dict(routes)}")
    print(
        f"{sum(t['configurations'] for t in totals.values()) * len(executors)} comparisons, {failed} with a difference"
    )
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
