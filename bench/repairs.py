"""How many seeded bugs `refsim shaders --repair` repairs, and whether it names their line.

python -m bench.repairs [--count 40] [--seed 1] [--seconds 60] [--workers 1]

A bug is one change of the GLSL in tests/modules/glsl or in shaders/, drawn by the generator of `refsim mutate`, and
compiled at -O and at -O0 by turns, with lines. What does not compile or run, and what no case shows, is drawn again.
The same bugs are drawn with any number of workers, processes that each search for the repair of one bug.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import count, islice
from pathlib import Path

from bench.harness import ROOT
from refsim.core.errors import FormatError
from refsim.core.rng import Rng
from refsim.formats import kernels
from refsim.modules import inventory
from refsim.modules import repaired as verb
from refsim.modules.build import Repairing, Request, opened
from refsim.modules.repair import report

sys.path.insert(0, str(ROOT / "tests"))

from modules import build
from mutants.generated.change import Change
from mutants.generated.glsl_sites import changes

LEVELS = ("-O", "-O0")
SHADERS = ROOT / "shaders"
#: Cases of the corpus beside the recordings, as `refsim shaders` has them.
CASES = 48


@dataclass(frozen=True)
class Outcome:
    """What became of one bug; ``lines`` are those of the statement that holds it."""

    change: Change
    module: str
    level: str
    lines: tuple[str, ...]
    told: str
    place: str
    tried: int
    seconds: float
    processor: float

    @property
    def repaired(self) -> bool:
        return bool(self.told)

    @property
    def named(self) -> bool:
        return self.place in self.lines

    def __str__(self) -> str:
        state = ("repaired" if self.named else "repaired elsewhere") if self.repaired else "not repaired"
        told = f"; {self.place}: {self.told}" if self.told else ""
        took = f"{self.seconds:.1f} s ({self.processor:.1f} s of processor time)"
        return f"{state} in {took}, {self.tried} edits: {self.module} {self.level}, {self.change}{told}"


@dataclass(frozen=True)
class Target:
    """A kernel that gets bugs: one of ExecuTorch's interface, or one of refsim's own, which is ``launched`` as such."""

    operator: str
    module: build.Module
    launched: bool = False

    @property
    def root(self) -> Path:
        return SHADERS if self.launched else build.SOURCES

    def sources(self) -> Iterator[str]:
        """The files below the root that the module is made of, but for those that are written by a program."""
        waiting, seen = [self.root / f"{self.module.source}.comp"], set[Path]()
        while waiting:
            path = waiting.pop()
            if path not in seen and path.parent.name != "push" and path.parent.parent.name != "push":
                seen.add(path)
                yield str(path.relative_to(self.root))
                named = re.findall(r'#include "([^"]+)"', path.read_text())
                waiting += [path.parent / name for name in named if (path.parent / name).is_file()]

    def folder(self, scratch: Path, code: bytes) -> Path:
        """A folder with this build of the module, among the right ones of its kind."""
        if self.launched:
            folder = scratch / "spirv"
            folder.mkdir()
            name = self.module.name
            (folder / kernels.NAME).write_text(f'[{name}]\nmodule = "{name}.spv"\nlaunch = "refsim"\n')
        else:
            folder = Path(shutil.copytree(build.BINARIES, scratch / "spirv"))
        (folder / f"{self.module.name}.spv").write_bytes(code)
        return folder


@cache
def targets() -> list[Target]:
    known = inventory.known()
    theirs = [
        Target(known[name][0], row) for name, row in build.MODULES.items() if known[name][1] is not None
    ]
    left = {"UNSIGNED_DOT", "TEXTURE"}
    own = [build.Module(path.stem, path.stem) for path in sorted(SHADERS.glob("*.comp"))]
    return [
        *(one for one in theirs if not left & set(one.module.definitions)),
        *(Target(row.name, row, True) for row in own),
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


def _lines(change: Change) -> tuple[str, ...]:
    """The lines of the statement that a change is in."""
    begin = change.source.index(change.statement, max(0, change.begin - len(change.statement)))
    first = change.source.count("\n", 0, begin) + 1
    return tuple(f"{change.file}:{first + line}" for line in range(change.statement.count("\n") + 1))


def _processor_time() -> float:
    """Seconds of this process and of those that it waited for."""
    return sum(os.times()[:4])


def tried(target: Target, change: Change, level: str, seconds: float) -> Outcome | None:
    """What becomes of a bug; None if it does not compile, cannot be opened, is refused, or makes no byte wrong."""
    with suppress(FormatError):
        return _searched(target, change, level, seconds)
    return None


def _searched(target: Target, change: Change, level: str, seconds: float) -> Outcome | None:
    op, module = target.operator, target.module
    with tempfile.TemporaryDirectory() as scratch:
        glsl = Path(
            shutil.copytree(target.root, Path(scratch) / "glsl", ignore=shutil.ignore_patterns("*.spv"))
        )
        (glsl / change.file).write_text(change.changed)
        code = build.compiled(module, Path(scratch), (level, "-g"), glsl)
        folder = target.folder(Path(scratch), code)
        variant = "fallback" if "FALLBACK" in module.definitions else ""
        request = Request(str(folder), (op,), CASES, variant=variant, repair=Repairing(seconds))
        with opened(request) as shaders:
            outcome = shaders.verification.run([op])
            if not outcome.wrong:
                return None
            begin, used = time.perf_counter(), _processor_time()
            searched = [one.searched for one in verb.repaired(shaders, outcome) or ()]
            took, used = time.perf_counter() - begin, _processor_time() - used
        found = [one for each in searched for one in each.repairs]
        place = str(report.line(found[0])).removeprefix(f"{glsl}/") if found else ""
        told = found[0].edit.said if found else ""
        return Outcome(
            change,
            f"{'refsim ' * target.launched}{module.name}",
            level,
            _lines(change),
            told,
            place,
            sum(one.tried for one in searched),
            took,
            used,
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
