"""What a sweep computes: configurations in chunks, and on what.

Configuration number k of an operator follows from the sweep's seed and k alone: it is the case that the operator draws
from ``seed * 2**32 + k``, with profile number k of those that are swept, in turn. So a chunk is a range of numbers, and
means the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from refsim.core.errors import FormatError, ParameterError
from refsim.core.qmath import CANONICAL, LAVAPIPE, NVIDIA, Profile
from refsim.formats.file import there
from refsim.ops.base.registry import OPS, check_names

#: The name of random graphs, beside the names of the operators.
GRAPHS = "graphs"
#: Configurations of a chunk: of an operator, about half a second; of random graphs; of a model, which runs as a whole.
SIZE, GRAPHS_SIZE, MODEL_SIZE = 256, 16, 1
#: The profiles of a sweep that names none. Most native kernels are for the first, so every second configuration has it.
PROFILES = (CANONICAL, LAVAPIPE, CANONICAL, NVIDIA)
#: Seeds of one sweep; the next sweep's begin behind them.
SEEDS = 1 << 32


@dataclass(frozen=True, order=True)
class SweepVariant:
    """An executor, its threads, and the instruction set of its CPU kernels (a row of `refsim.exec.cpu.isa`, or "" for
    the machine's own)."""

    executor: str
    threads: int = 1
    isa: str = ""

    def __str__(self) -> str:
        threads = f" threads={self.threads}" if self.threads != 1 else ""
        return f"{self.executor}{threads}{f' isa={self.isa}' if self.isa else ''}"


@dataclass(frozen=True)
class Chunk:
    """Some configurations of an operator, of random graphs (`GRAPHS`), or of a model file, on some variants.

    ``strict``: kernels of other builds have to follow the configuration's profile, too. ``shrink``: a failure is made
    smaller before it is reported. ``repeats``: how many times more each configuration runs on the same data.
    """

    subject: str
    first: int
    count: int
    seed: int
    profiles: tuple[Profile, ...]
    variants: tuple[SweepVariant, ...]
    strict: bool = False
    shrink: bool = True
    model: bool = False
    repeats: int = 0

    @property
    def whole(self) -> bool:
        """Whether each configuration is more than one call: a model, or a graph."""
        return self.model or self.subject == GRAPHS

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + self.count)

    def draw(self, number: int) -> tuple[int, Profile]:
        """The seed and the profile of a configuration."""
        return self.seed * SEEDS + number, self.profiles[number % len(self.profiles)]

    def halves(self) -> list[Chunk]:
        """Two chunks that are the same work: of half the variants each, else of half the configurations."""
        if len(self.variants) > 1:
            middle = len(self.variants) // 2
            parts = self.variants[:middle], self.variants[middle:]
            return [replace(self, variants=part) for part in parts]
        half = self.count // 2
        return [
            replace(self, count=half),
            replace(self, first=self.first + half, count=self.count - half),
        ]


@dataclass(frozen=True)
class SweepPlan:
    """A sweep: ``configurations`` of each subject by its name, and what to run them on. ``models`` are subjects too."""

    configurations: dict[str, int]
    models: dict[str, int]
    variants: tuple[SweepVariant, ...]
    profiles: tuple[Profile, ...] = PROFILES
    strict: bool = False
    seed: int = 0
    repeats: int = 0

    @property
    def total(self) -> int:
        """Configurations, each on every variant."""
        return sum(self.configurations.values()) + sum(self.models.values())

    def chunks(self) -> Iterator[Chunk]:
        """All work, one chunk of each subject after the other, so that every subject soon has some."""
        whole = Chunk("", 0, 0, self.seed, self.profiles, self.variants, self.strict)
        whole = replace(whole, repeats=self.repeats)
        operators = {subject: count for subject, count in self.configurations.items() if subject != GRAPHS}
        yield from _in_turn(operators, SIZE, whole)
        yield from _in_turn({GRAPHS: self.configurations.get(GRAPHS, 0)}, GRAPHS_SIZE, whole)
        yield from _in_turn(self.models, MODEL_SIZE, replace(whole, model=True))

    def state(self, sources: str) -> dict[str, Any]:
        """What results depend on, beside the subject and the number of a configuration."""
        return {
            "seed": self.seed,
            "profiles": [asdict(profile) for profile in self.profiles],
            "strict": self.strict,
            "sources": sources,
            **({"repeats": self.repeats} if self.repeats else {}),
        }


def _in_turn(subjects: dict[str, int], size: int, chunk: Chunk) -> Iterator[Chunk]:
    for first in range(0, max(subjects.values(), default=0), size):
        for subject, count in subjects.items():
            if first < count:
                yield replace(chunk, subject=subject, first=first, count=min(size, count - first))


def shared(total: int, subjects: Sequence[str]) -> dict[str, int]:
    """So many configurations, evenly over the subjects."""
    each, more = divmod(total, len(subjects))
    found = {subject: each + (number < more) for number, subject in enumerate(subjects)}
    return {subject: count for subject, count in found.items() if count}


def subjects_of(given: Sequence[str]) -> list[str]:
    """Operators, and `GRAPHS`, by name; without names all of them. ParameterError for an unknown one."""
    subjects = (*OPS, GRAPHS)
    check_names("sweep", given, subjects)
    return list(dict.fromkeys(given)) or list(subjects)


def variants(
    executors: Sequence[str], threads: Sequence[str], sets: Sequence[str]
) -> tuple[SweepVariant, ...]:
    """Each executor; the native one with each number of threads and each instruction set."""
    numbers = []
    for number in ",".join(threads).split(","):
        if not number.isdecimal() or not 1 <= int(number) <= 1024:
            raise ParameterError("sweep --threads", "out of range", got=number, need="numbers from 1 to 1024")
        numbers.append(int(number))
    found: list[SweepVariant] = []
    for name in ",".join(executors).split(","):
        own = name == "cpu"
        found += [
            SweepVariant(name, n, isa)
            for n in (numbers if own else [1])
            for isa in ((sets or ("",)) if own else ("",))
        ]
    return tuple(dict.fromkeys(found))


def models_in(folder: str | None, runs: int) -> dict[str, int]:
    """Every model file in a folder, and how many inputs it gets; FormatError for a folder without any."""
    if folder is None:
        return {}
    paths = sorted(Path(folder).rglob("*.pte"))
    if not paths:
        got = None if Path(folder).is_dir() else there(folder)
        raise FormatError(folder, "no .pte file there", got=got, need="a folder of .pte files for --models")
    return {str(path.resolve()): runs for path in paths}
