"""How many seeded bugs `refsim shaders --repair` repairs, and whether it names their line.

python -m bench.repairs [--count 40] [--seed 1] [--seconds 60] [--workers 1]

A bug is one change of the GLSL in tests/modules/glsl or in shaders/, drawn by the generator of `refsim mutate`, and
compiled at -O and at -O0 by turns, with lines. What does not compile or run, and what no case shows, is drawn again.
The same bugs are drawn with any number of workers, processes that each search for the repair of one bug.
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from functools import cache
from itertools import count, islice

from bench.harness import ROOT
from refsim.core.rng import Rng
from refsim.modules import inventory

sys.path.insert(0, str(ROOT / "tests"))

from modules import build
from mutants.generated.change import Change
from mutants.generated.glsl_sites import changes
from mutants.repaired import SHADERS, Outcome, Target, tried

LEVELS = ("-O", "-O0")


@cache
def targets() -> list[Target]:
    known = inventory.known()
    theirs = [
        Target(known[name][0], row) for name, row in build.MODULES.items() if known[name][1] is not None
    ]
    left = {"UNSIGNED_DOT", "TEXTURE"}
    return [
        *(one for one in theirs if not left & set(one.module.definitions)),
        *(Target.own(path.stem) for path in sorted(SHADERS.glob("*.comp"))),
    ]


def drawn(seed: int) -> Iterator[tuple[Target, Change]]:
    """Bugs without end: a kernel, and a change of one of its files."""
    rng = Rng(seed)
    while True:
        target = rng.choice(targets())
        files = sorted(target.sources())
        yield (
            target,
            rng.choice([one for name in files for one in changes(name, (target.root / name).read_text())]),
        )


def outcomes(seed: int, seconds: float, workers: int) -> Iterator[Outcome]:
    """What becomes of the bugs that some case shows, in the order in which they are drawn."""
    waiting: deque[Future[Outcome | None]] = deque()
    with ProcessPoolExecutor(workers) as pool:
        try:
            for number, (target, change) in zip(count(), drawn(seed), strict=False):
                waiting.append(pool.submit(tried, target, change, LEVELS[number % len(LEVELS)], seconds))
                if len(waiting) == 2 * workers and (outcome := waiting.popleft().result()) is not None:
                    yield outcome
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.repairs", description=__doc__)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=1)
    asked = parser.parse_args(arguments)
    found: list[Outcome] = []
    for outcome in islice(outcomes(asked.seed, asked.seconds, asked.workers), asked.count):
        found.append(outcome)
        print(outcome, flush=True)
    repaired = [one for one in found if one.repaired]
    named = sum(one.named for one in repaired)
    print(f"{len(repaired)} of {len(found)} repaired; the line of {named} of these is told")
    for what in ("seconds", "processor"):
        took = sorted(getattr(one, what) for one in found)
        print(f"{what}: median {took[len(took) // 2]:.1f}, most {took[-1]:.1f}, sum {sum(took):.1f}")


if __name__ == "__main__":
    main(sys.argv[1:])
