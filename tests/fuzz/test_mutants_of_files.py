"""Mutants of every format, and every file that once brought out something else than a typed error."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from refsim.core.errors import FormatError
from tests.fuzz import readers, runner
from tests.fuzz.formats import FORMATS, Format
from tests.fuzz.runner import FINDINGS, TooSlow, read, run, run_here, scratch

CRASHERS = Path(__file__).parents[1] / "data" / "crashers"
SEED, COUNT, WAYS = 7, 100, 12


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFSIM_MAX_BYTES", "16M")


@pytest.mark.few(2)
@pytest.mark.parametrize("name", FORMATS)
def test_seeds_are_read(name: str) -> None:
    """Without damage something is accepted, or the mutants would test nothing but the first check."""
    row = FORMATS[name]
    with scratch() as folder:
        found = [read(folder, row, files, way=1).kind for files in row.seeds()]
    assert "accepted" in found
    assert not set(found) & set(FINDINGS)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", FORMATS)
def test_mutants(name: str) -> None:
    """Each is accepted or refused with a typed error. A failure names the mutant and how to make it again."""
    row = FORMATS[name]
    found = run_here(row, SEED, range(COUNT * row.share))
    wrong = [f"{one.what}\npython -m tests.fuzz --again {name}:{one.number} --seed {SEED}\n{one.trace}" for one in found
             if one.kind in FINDINGS]  # fmt: skip
    assert not wrong, wrong[0]
    assert {one.kind for one in found} == {"accepted", "typed"}


@pytest.mark.parametrize(
    "path", sorted(CRASHERS.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}"
)
def test_crashers(path: Path) -> None:
    """What is read in several ways, as its content chooses, is read in all of them."""
    row = FORMATS[path.parent.name]
    files = {file.name: file.read_bytes() for file in path.iterdir()}
    with scratch() as folder:
        for way in range(WAYS):
            outcome = read(folder, row, files, way=way)
            assert outcome.kind not in FINDINGS, f"{outcome.what}\n{outcome.trace}"


def _raises(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FormatError("x", "y"), "typed"),
        (KeyError("x"), "untyped"),
        (RecursionError(), "untyped"),
        (readers.Finding("x"), "untyped"),
        (MemoryError(), "too much memory"),
        (TooSlow(), "too slow"),
    ],
)
def test_outcomes(error: BaseException, kind: str) -> None:
    """The fuzzer itself: what it takes for a finding."""
    row = Format("x", lambda: (), lambda rng, files: files, lambda folder, way: _raises(error))
    with scratch() as folder:
        assert read(folder, row, {"a": b""}).kind == kind


def test_unprintable_output_is_a_finding() -> None:
    readers.printable("a line\nand another, größer")
    for text in ("\x1b[2J", "a\u202eb", "\x9b"):
        with pytest.raises(readers.Finding):
            readers.printable(text)


@pytest.mark.long
def test_workers() -> None:
    """Processes give each mutant's outcome once, the same as here."""
    found = sorted(run(["npy", "sums"], 120, SEED, 2), key=lambda one: (one.format, one.number))
    assert [(one.format, one.number) for one in found] == [(f, n) for f in ("npy", "sums") for n in range(60)]
    here = run_here(FORMATS["sums"], SEED, range(60))
    assert [one.kind for one in found if one.format == "sums"] == [one.kind for one in here]


class Deadly(runner.Reader):
    """Ends its process at one mutant, and takes too long for another."""

    def mutant(self, seed: int, number: int) -> runner.Outcome:
        if number == 1:
            os._exit(3)
        time.sleep(60 * (number == 2))
        return super().mutant(seed, number)


@pytest.mark.long
def test_a_mutant_that_ends_its_worker_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "Reader", Deadly)
    monkeypatch.setattr(runner, "PATIENCE", 1 / runner.SECONDS)
    found = {one.number: one.kind for one in run(["sums"], 4, SEED, 1)}
    assert (found.keys(), found[1], found[2]) == ({0, 1, 2, 3}, "crashed", "too slow")
    assert not {found[0], found[3]} & set(FINDINGS)
