"""The outcomes on generated mutants: their totals, and random.jsonl with one run of a fresh seed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutants.generated import naming
from mutants.generated.targets import AREAS
from mutants.generated.trial import CORPUS, EQUIVALENT, INVALID, LIVES, MODELS_, TESTS, Verdict
from mutants.tree import CHECKOUT
from refsim.cli._mutated import RandomTotal
from refsim.core import atomic_write
from refsim.core.errors import FormatError

COLUMNS = (
    "area", "drawn count", "invalid count", "equivalent count", "by corpus count", "by models count",
    "by tests count", "survived count", "noticed", "cause or region named", "of reports", "place right",
    "or among equals", "or by repair", "report s (median, 95 %)",
)  # fmt: skip


#: The tests that compare choices with what is written down: which build is dispatched, how work is divided.
CHOICES = (
    "tests/exec/cpu/test_plans.py",
    "tests/ops/test_launches.py",
    "tests/ops/test_arrays.py",
    "tests/gpu/test_reads.py::test_no_word_is_asked_for",
)

#: Where a mutant's copy of the sources lay, the checkout, or Python: folders of one machine.
FOLDERS = re.compile(
    r"/\S*/refsim-mutant-\w*(/copy/)?|/\S*?/(?=(?:refsim|tests|shaders|golden)/)|/\S*/lib/(?=python3)"
)


def record_path() -> Path:
    return CHECKOUT / "tests" / "mutants" / "generated" / "random.jsonl"


@dataclass(frozen=True)
class Total:
    """Verdicts of an area by kind, and how many of what was noticed by bytes or an error was also named."""

    area: str
    verdicts: tuple[Verdict, ...]

    def count(self, verdict: str) -> int:
        return sum(each.verdict == verdict for each in self.verdicts)

    @property
    def meant(self) -> int:
        """Those that count: programs that do something else."""
        return len(self.verdicts) - self.count(INVALID) - self.count(EQUIVALENT)

    @property
    def noticed(self) -> int:
        return sum(each.noticed for each in self.verdicts)

    @property
    def by_choice(self) -> int:
        """Of those noticed: what no byte showed, only a choice that is not the one written down."""
        return sum(each.verdict == TESTS and each.by.startswith(CHOICES) for each in self.verdicts)

    @property
    def named(self) -> int:
        return sum(each.named for each in self.verdicts if each.noticed)

    @property
    def reported(self) -> int:
        """Noticed by cases or models, which have a report; what a test alone notices has none."""
        return self.noticed - self.count(TESTS)

    def places(self, *verdicts: str) -> int:
        """How many reports say such of the changed place (`naming.located`)."""
        return sum(each.place in verdicts for each in self.verdicts if each.noticed)

    @property
    def seconds(self) -> tuple[float, float] | None:
        """What a report took: the median, and what 95 of 100 did not exceed; None without any."""
        took = sorted(seconds for each in self.verdicts for seconds in each.reports)
        return (took[len(took) // 2], took[(95 * len(took) - 1) // 100]) if took else None

    def cells(self) -> tuple[object, ...]:
        """The columns of `COLUMNS`."""
        counts = (self.count(kind) for kind in (INVALID, EQUIVALENT, CORPUS, MODELS_, TESTS, LIVES))
        return (
            self.area, len(self.verdicts), *counts,
            share(self.noticed, self.meant), share(self.named, self.noticed), share(self.named, self.reported),
            *(share(count, self.places(*naming.PLACES)) for count in self.placed),
            "-" if self.seconds is None else "{:.2f}, {:.2f}".format(*self.seconds),
        )  # fmt: skip

    @property
    def placed(self) -> tuple[int, ...]:
        """How many places were right, with those among several edits with the same bytes, and with those by repair."""
        kinds = (naming.RIGHT, naming.AMONG_EQUALS, naming.BY_REPAIR)
        return tuple(self.places(*kinds[: count + 1]) for count in range(len(kinds)))

    def row(self) -> RandomTotal:
        return RandomTotal(
            area=self.area,
            drawn=len(self.verdicts),
            **{kind: self.count(kind) for kind in (INVALID, EQUIVALENT, CORPUS, MODELS_, TESTS, LIVES)},
            noticed=self.noticed,
            named=self.named,
            reported=self.reported,
            places=self.places(*naming.PLACES),
            placed=self.placed[0],
            among_equals=self.placed[1],
            repaired=self.placed[2],
            seconds=self.seconds,
        )


def share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part // whole} %)" if whole else "-"


def summary(verdicts: Iterable[Verdict]) -> list[Total]:
    """One total per area that occurs, and one of all."""
    rows = tuple(verdicts)
    areas = [name for name in AREAS if any(each.area == name for each in rows)]
    found = [Total(name, tuple(each for each in rows if each.area == name)) for name in areas]
    return [*found, Total("all", rows)]


# --- the record ------------------------------------------------------------------------------------------


def write(
    verdicts: Sequence[Verdict],
    count: int,
    seed: int,
    left_out: dict[str, str],
    first: int | None = None,
    note: str = "",
) -> None:
    """Write random.jsonl: a line about the run, then a line per change. ``note``: what became of it."""
    head = {"count": count, "seed": seed, "left_out": left_out, "first": first, "note": note}
    rows = [json.dumps(head), *(json.dumps(_kept(each)) for each in verdicts)]
    atomic_write.write(record_path(), "".join(row + "\n" for row in rows).encode())


def _kept(each: Verdict) -> dict[str, Any]:
    said, *causes = (FOLDERS.sub("", text) for text in (each.said, *each.causes))
    return {**vars(each), "said": said[:200], "causes": causes}


def read() -> tuple[dict[str, Any], list[Verdict]] | None:
    """(about the run, its verdicts), or None if no run is recorded."""
    if not record_path().exists():
        return None
    head, *_ = record_path().read_text().splitlines()
    return json.loads(head), read_verdicts(record_path(), skip=1)


def append(path: Path, verdict: Verdict) -> None:
    """Add a line to a file of verdicts."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(vars(verdict)) + "\n")


def read_verdicts(path: Path | None, skip: int = 0) -> list[Verdict]:
    """Verdicts of a file with one a line; none without a file. FormatError for a line that is none.

    Whoever was killed while it wrote left a last line without an end; it is taken off.
    """
    if path is None or not path.exists():
        return []
    found = []
    whole, ended, rest = path.read_text().rpartition("\n")
    if rest:
        path.write_text(whole + ended)
    for number, text in enumerate(whole.splitlines()[skip:], 1 + skip):
        try:
            row = json.loads(text)
            lists = {name: tuple(row.get(name, ())) for name in ("causes", "pattern", "reports")}
            found.append(Verdict(**{**row, **lists}))
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{path}:{number}", "not a verdict", got=repr(error)[:200]) from error
    return found
