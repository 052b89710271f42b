"""A sweep from its plan to its results: chunks that are left are computed, stored, and their failures written down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from refsim.core.errors import FormatError
from refsim.formats.cases import write_folder
from refsim.sweep.database import Database
from refsim.sweep.outcome import Failure, Outcome
from refsim.sweep.plan import Chunk, SweepVariant

#: Computes chunks in any order.
Serve = Callable[[Sequence[Chunk]], Iterator[list[Outcome]]]
#: How many cases are written for an operator on a variant.
MOST_FOLDERS = 5


def sweep(chunks: Sequence[Chunk], serve: Serve, database: Database, folder: Path) -> Iterator[list[Outcome]]:
    """Compute the chunks; each is in the database when its outcomes are yielded, and cases of failures in ``folder``.

    Only the first few failures of an operator on a variant are written as folders.
    """
    written: Counter[tuple[str, SweepVariant]] = Counter()
    for outcomes in serve(chunks):
        folders: dict[Failure, str] = {}
        for outcome in outcomes:
            for failure in outcome.failures:
                key = failure.subject, failure.variant
                if failure.files and written[key] < MOST_FOLDERS:
                    written[key] += 1
                    folders[failure] = _write(folder, failure)
        database.add(outcomes, folders)
        yield outcomes


def _write(folder: Path, failure: Failure) -> str:
    target = folder / failure.name
    try:
        write_folder(target, failure.files)
    except FormatError:
        if not target.exists():  # else the case is there, from a chunk that was not finished
            raise
    return str(target)
