"""Read mutants of every format and print what became of them: ``python -m tests.fuzz 100000 --workers 8``.

A finding is kept in a folder, and ``python -m tests.fuzz --again FORMAT:NUMBER --seed S`` makes and reads it again.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault(
    "REFSIM_MAX_BYTES", str(16 << 20)
)  # before refsim is imported, here and in every worker

from tests.fuzz.formats import FORMATS
from tests.fuzz.runner import ACCEPTED, FINDINGS, OUTCOMES, Outcome, Tally, read, run, scratch


def main() -> int:
    """Status 1 if there is a finding."""
    given = _arguments()
    if given.again:
        return _again(given)
    names = given.formats.split(",") if given.formats else list(FORMATS)
    tallies = {name: Tally() for name in names}
    found: Counter[str] = Counter()
    begin = told = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    outcomes = run(names, given.total, given.seed, given.workers, given.first)
    while (outcome := _next(outcomes)) is not None:
        tallies[outcome.format].add(outcome)
        if outcome.kind in FINDINGS:
            key = f"{outcome.format}: {outcome.kind}: {outcome.what}"
            if not found[key]:
                _keep(given, outcome)
                print(f"{outcome.format}:{outcome.number} {outcome.kind}: {outcome.what}", flush=True)
            found[key] += 1
        if time.monotonic() - told > 60:
            told = time.monotonic()
            done = sum(t.counts.total() for t in tallies.values())
            print(f"{done} mutants, {told - begin:.0f} s", file=sys.stderr, flush=True)
        if given.minutes and time.monotonic() - begin > 60 * given.minutes:
            break
    for line in table(tallies):
        print(line)
    for name, tally in tallies.items():
        seconds, number = tally.slowest
        if seconds > 1:
            print(f"slowest: {name}:{number}, {seconds:.2f} s")
    print(f"seed {given.seed}, from number {given.first}, {time.monotonic() - begin:.0f} s")
    for key, count in found.most_common():
        print(f"{count} x {key}")
    return 1 if found else 0


def _next(outcomes: Iterator[Outcome]) -> Outcome | None:
    """None at the end, and when somebody ends the run: its table is printed all the same."""
    try:
        return next(outcomes, None)
    except KeyboardInterrupt:
        return None


def table(tallies: dict[str, Tally]) -> list[str]:
    """A Markdown table, a row per format and one of sums."""
    rows = [("format", "mutants", *OUTCOMES, "slowest, s", "most memory, MiB")]
    rows += [_row(name, [tally]) for name, tally in tallies.items()]
    rows.append(_row("all", list(tallies.values())))
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|---" + "|--:" * (len(rows[0]) - 1) + "|")
    return lines


def _row(name: str, tallies: list[Tally]) -> tuple[str, ...]:
    counts = sum((tally.counts for tally in tallies), Counter[str]())
    slowest, largest = (max(getattr(tally, what)[0] for tally in tallies) for what in ("slowest", "largest"))
    return (
        name,
        str(counts.total()),
        *(str(counts[kind]) for kind in OUTCOMES),
        f"{slowest:.2f}",
        str(largest >> 20),
    )


def _keep(given: argparse.Namespace, outcome: Outcome) -> None:
    if not given.keep:
        return
    folder = Path(given.keep) / f"{outcome.format}-{outcome.number}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in FORMATS[outcome.format].mutant(given.seed, outcome.number).items():
        (folder / name).write_bytes(data)
    (folder / "finding.txt").write_text(f"{outcome.what}\n{outcome.trace}")


def _again(given: argparse.Namespace) -> int:
    name, _, number = given.again.rpartition(":")
    row = FORMATS[name]
    with scratch() as folder:
        outcome = read(folder, row, row.mutant(given.seed, int(number)), int(number))
    print(
        f"{outcome.kind}: {outcome.what}, {outcome.seconds:.2f} s, {outcome.memory >> 20} MiB\n{outcome.trace}"
    )
    return 0 if outcome.kind == ACCEPTED or outcome.kind not in FINDINGS else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "total", type=int, nargs="?", default=10_000, help="how many mutants, over all formats"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--first", type=int, default=0, help="the number of the first mutant, to go on where a run ended"
    )
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, help="end after this long")
    parser.add_argument("--formats", help="only these, with commas between them")
    parser.add_argument("--keep", metavar="DIR", help="keep one mutant of each finding here")
    parser.add_argument("--again", metavar="FORMAT:NUMBER", help="only this mutant, in this process")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
