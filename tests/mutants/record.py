"""What became of bugs as it was last found: seeded.jsonl of those that are known, random.jsonl of one random run."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mutants.generated.naming import AMONG_EQUALS, BY_REPAIR, PLACES, RIGHT
from mutants.generated.targets import AREAS
from mutants.generated.trial import CORPUS, EQUIVALENT, INVALID, LIVES, MODELS_, TESTS, Verdict
from mutants.outcome import Outcome
from mutants.seeded import ALL
from mutants.tree import CHECKOUT
from refsim.cli._mutated import RandomTotal
from refsim.core import atomic_write
from refsim.core.errors import FormatError

Row = Mapping[str, Any]
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


def seeded_path() -> Path:
    return CHECKOUT / "tests" / "mutants" / "seeded.jsonl"


def random_path() -> Path:
    return CHECKOUT / "tests" / "mutants" / "generated" / "random.jsonl"


# --- known bugs ------------------------------------------------------------------------------------------


def row(outcome: Outcome) -> Row:
    """What is kept of an outcome."""
    cause = outcome.causes[0] if outcome.causes else outcome.message
    return {
        "id": outcome.mutant.id, "digest": outcome.mutant.digest, "how": outcome.how, "case": outcome.case,
        "tried": outcome.tried, "rank": outcome.rank, "cause": cause.replace(str(CHECKOUT) + "/", ""),
    }  # fmt: skip


def read() -> dict[str, Row]:
    """The recorded rows by id; none without a record."""
    path = seeded_path()
    lines = path.read_text().splitlines() if path.exists() else []
    return {found["id"]: found for found in map(json.loads, lines)}


def renew(outcomes: Iterable[Outcome]) -> list[Row]:
    """Put outcomes into the record and drop mutants that are gone; all rows, in the order of the mutants."""
    rows = read() | {outcome.mutant.id: row(outcome) for outcome in outcomes}
    kept = [rows[name] for name in ALL if name in rows]
    _write(seeded_path(), kept)
    return kept


def _write(path: Path, rows: Iterable[Row]) -> None:
    atomic_write.write(path, "".join(json.dumps(each) + "\n" for each in rows).encode())


# --- random changes --------------------------------------------------------------------------------------


def total(area: str, verdicts: Sequence[Verdict]) -> RandomTotal:
    """Verdicts of an area by kind, and how many of what was noticed by bytes or an error was also named."""
    kinds = Counter(each.verdict for each in verdicts)
    noticed = [each for each in verdicts if each.noticed]
    places = Counter(each.place for each in noticed)
    took = sorted(seconds for each in verdicts for seconds in each.reports)
    return RandomTotal(
        area=area,
        drawn=len(verdicts),
        **{kind: kinds[kind] for kind in (INVALID, EQUIVALENT, CORPUS, MODELS_, TESTS, LIVES)},
        noticed=len(noticed),
        named=sum(each.named for each in noticed),
        reported=len(noticed) - kinds[TESTS],
        places=sum(places[place] for place in PLACES),
        placed=places[RIGHT],
        among_equals=places[RIGHT] + places[AMONG_EQUALS],
        repaired=places[RIGHT] + places[AMONG_EQUALS] + places[BY_REPAIR],
        seconds=(took[len(took) // 2], took[(95 * len(took) - 1) // 100]) if took else None,
    )


def totals(verdicts: Iterable[Verdict]) -> list[RandomTotal]:
    """One per area that occurs, and one of all."""
    rows = tuple(verdicts)
    areas = [name for name in AREAS if any(each.area == name for each in rows)]
    found = [total(name, [each for each in rows if each.area == name]) for name in areas]
    return [*found, total("all", rows)]


def by_choice(verdicts: Iterable[Verdict]) -> int:
    """Of those noticed: what no byte showed, only a choice that is not the one written down."""
    return sum(each.verdict == TESTS and each.by.startswith(CHOICES) for each in verdicts)


def write(
    verdicts: Sequence[Verdict],
    count: int,
    seed: int,
    left_out: Mapping[str, str],
    first: int | None = None,
    note: str = "",
) -> None:
    """Write random.jsonl: a line about the run, then a line per change. ``note``: what became of it."""
    head = {"count": count, "seed": seed, "left_out": left_out, "first": first, "note": note}
    _write(random_path(), [head, *map(_kept, verdicts)])


def _kept(each: Verdict) -> Row:
    said, *causes = (FOLDERS.sub("", text) for text in (each.said, *each.causes))
    return {**vars(each), "said": said[:200], "causes": causes}


def read_random() -> tuple[Row, list[Verdict]] | None:
    """(about the run, its verdicts), or None if no run is recorded."""
    path = random_path()
    if not path.exists():
        return None
    head, *_ = path.read_text().splitlines()
    return json.loads(head), read_verdicts(path, skip=1)


def append(path: Path, verdict: Verdict) -> None:
    """Add a line to a file of verdicts."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(vars(verdict)) + "\n")


def read_verdicts(path: Path, skip: int = 0) -> list[Verdict]:
    """Verdicts of a file with one a line; none without a file. FormatError for a line that is none.

    Whoever was killed while it wrote left a last line without an end; it is taken off.
    """
    if not path.exists():
        return []
    found = []
    whole, ended, rest = path.read_text().rpartition("\n")
    if rest:
        path.write_text(whole + ended)
    for number, text in enumerate(whole.splitlines()[skip:], 1 + skip):
        try:
            held = json.loads(text)
            lists = {name: tuple(held.get(name, ())) for name in ("causes", "pattern", "reports")}
            found.append(Verdict(**{**held, **lists}))
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{path}:{number}", "not a verdict", got=repr(error)[:200]) from error
    return found
