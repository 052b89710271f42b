"""Results of a sweep in one SQLite file, chunk by chunk, so that an interrupted sweep can go on.

One process writes it, and it alone has it open meanwhile. Each chunk is one transaction.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from refsim.core.errors import FormatError
from refsim.core.no_clobber import free
from refsim.sweep.outcome import STATUSES, Outcome, SweepFailure, summed
from refsim.sweep.plan import Chunk, SweepVariant

SCHEMA = 1
_APPLICATION = 0x5EF5  # "application_id": tells a sweep's file from any other SQLite file
_TABLES = f"""
CREATE TABLE sweep (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE chunk (
  subject TEXT, first INTEGER, count INTEGER, executor TEXT, threads INTEGER, isa TEXT,
  {", ".join(f"{status} INTEGER" for status in STATUSES)}, bytes INTEGER, seconds REAL, reasons TEXT,
  PRIMARY KEY (subject, first, executor, threads, isa));
CREATE TABLE failure (
  subject TEXT, first INTEGER, seed TEXT, profile TEXT, executor TEXT, threads INTEGER, isa TEXT, status TEXT,
  message TEXT, reproduction TEXT, folder TEXT);
"""
#: Before an executor's name, as a key of what results depend on.
_EXECUTOR = "executor "
_KEY = "subject = ? AND first = ? AND executor = ? AND threads = ? AND isa = ?"


class Database:
    """An open file of results. ``state``: what they depend on; a file of another state is refused.

    ``brought``: executor -> digest of the modules or the package that it brings. A file that has results of the same
    executor with others is refused too; executors may come in later.

    Without a path it is kept in memory. FormatError for a file that is no sweep's, is another's or is open elsewhere.
    """

    def __init__(
        self,
        path: str | None,
        state: dict[str, Any],
        resume: bool = False,
        brought: Mapping[str, str] | None = None,
    ) -> None:
        self.where = path or "a sweep in memory"
        exists = path is not None and Path(path).exists()
        if path is not None and Path(path).is_dir():
            need = f"a file, such as {free(os.path.join(path, 'results.sqlite'), folder=False)}"
            raise FormatError(self.where, "no file of results", got="a folder", need=need)
        if resume and not exists:
            raise FormatError(self.where, "nothing to go on with", got="no such file", need="a file of --db")
        if path is not None and exists and not resume:
            need = f"--resume, or a name that is free, such as {free(path, folder=False)}"
            raise FormatError(self.where, "already exists", need=need)
        with self._typed():
            self._file = sqlite3.connect(path or ":memory:", timeout=1.0)
            try:
                self._file.execute("PRAGMA locking_mode = EXCLUSIVE")
                self._file.execute("PRAGMA synchronous = NORMAL")
                self._file.execute("BEGIN EXCLUSIVE")
                if self._file.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
                    self._create(state)
                self._check(state)
                self._check_brought(brought or {})
                self._file.commit()
            except BaseException:
                self._file.close()
                raise

    def _create(self, state: dict[str, Any]) -> None:
        for statement in filter(str.strip, _TABLES.split(";")):
            self._file.execute(statement)
        self._file.execute(f"PRAGMA application_id = {_APPLICATION}")
        rows = {"schema": SCHEMA, **state}
        self._file.executemany("INSERT INTO sweep VALUES (?, ?)", ((k, json.dumps(rows[k])) for k in rows))

    def _check(self, state: dict[str, Any]) -> None:
        if self._file.execute("PRAGMA application_id").fetchone() != (_APPLICATION,):
            raise FormatError(self.where, "not the results of a sweep")
        held = {key: json.loads(value) for key, value in self._file.execute("SELECT key, value FROM sweep")}
        wanted = {"schema": SCHEMA, **state}
        different = [key for key in wanted if held.get(key) != wanted[key]]
        if different:
            raise self._of_another(f"other {', '.join(different)}")

    def _check_brought(self, brought: Mapping[str, str]) -> None:
        """Refuse an executor whose modules or package are others than before; remember those that are new."""
        held = dict(self._file.execute("SELECT key, value FROM sweep WHERE key LIKE ?", (f"{_EXECUTOR}%",)))
        rows = {f"{_EXECUTOR}{name}": json.dumps(digest) for name, digest in brought.items()}
        for key, digest in rows.items():
            if held.get(key, digest) != digest:
                raise self._of_another(f"other modules, or another package, of {key}")
        self._file.executemany("INSERT OR IGNORE INTO sweep VALUES (?, ?)", rows.items())

    def _of_another(self, got: str) -> FormatError:
        return FormatError(self.where, "results of another sweep", got=got, need="the same, or another file")

    @contextlib.contextmanager
    def _typed(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            text = str(error)
            what = "is being written by another process" if "locked" in text else "cannot be written"
            raise FormatError(self.where, what, got=text) from error
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise FormatError(self.where, "not the results of a sweep, or damaged", got=error) from error

    def missing(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """The chunks without those variants whose results are here."""
        with self._typed():
            rows = self._file.execute("SELECT subject, first, count, executor, threads, isa FROM chunk")
            done = set(rows)
        for chunk in chunks:
            at = (chunk.subject, chunk.first, chunk.count)
            left = tuple(v for v in chunk.variants if (*at, v.executor, v.threads, v.isa) not in done)
            if left:
                yield replace(chunk, variants=left)

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Keep what came of a chunk."""
        with self._typed(), self._file:
            for one in outcomes:
                v = one.variant
                key = (one.subject, one.first, v.executor, v.threads, v.isa)
                self._file.execute(f"DELETE FROM chunk WHERE {_KEY}", key)
                self._file.execute(f"DELETE FROM failure WHERE {_KEY}", key)
                row = (
                    one.subject, one.first, one.count, v.executor, v.threads, v.isa,
                    *(one.statuses[status] for status in STATUSES), one.nbytes, one.seconds, json.dumps(one.reasons),
                )  # fmt: skip
                self._file.execute(f"INSERT INTO chunk VALUES ({', '.join('?' * len(row))})", row)
                self._file.executemany(
                    "INSERT INTO failure VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        (
                            *(f.operator, one.first, str(f.seed), f.profile, v.executor, v.threads, v.isa),
                            *(f.status, f.message, f.case, f.folder or ""),
                        )
                        for f in one.failures
                    ),
                )

    def outcomes(self) -> list[Outcome]:
        """Everything that is kept: one outcome per subject and variant, with the failures that were told."""
        parts: list[Outcome] = []
        names = ", ".join(STATUSES)
        with self._typed():
            for row in self._file.execute(
                f"SELECT subject, executor, threads, isa, count, bytes, seconds, reasons, {names} FROM chunk "
                "ORDER BY rowid"
            ):
                statuses = Counter(dict(zip(STATUSES, row[8:], strict=True)))
                reasons, variant = Counter(json.loads(row[7])), SweepVariant(*row[1:4])
                parts.append(Outcome(row[0], 0, row[4], variant, statuses, row[5], row[6], reasons))
        return summed(parts)

    def failures(self) -> list[SweepFailure]:
        """The failures that were told one by one."""
        with self._typed():
            rows = self._file.execute(
                "SELECT subject, seed, profile, executor, threads, isa, status, message, reproduction, folder "
                "FROM failure ORDER BY rowid"
            )
            return [
                SweepFailure(
                    row[0], int(row[1]), row[2], SweepVariant(*row[3:6]), status=row[6], message=row[7], case=row[8],
                    folder=row[9] or None,
                )
                for row in rows
            ]  # fmt: skip

    def close(self) -> None:
        self._file.close()
