"""Lower and run real architectures, and compare with torch and ExecuTorch: python -m bench.zoo."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.harness import ROOT
from bench.zoo import results
from bench.zoo.catalogue import MODELS, choose
from bench.zoo.harness import one
from bench.zoo.limited import Limits
from bench.zoo.page import PAGE, page, summary
from bench.zoo.reasons import stale, unexplained
from refsim.cli.kit.progress import verb
from refsim.cli.kit.text import print_table
from refsim.core import atomic_write
from refsim.core.doing import progress

RESULTS = ROOT / "out" / "zoo.jsonl"
COLUMNS = ("model", "s", "nodes", "steps", "falls short of")


def arguments(given: Sequence[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(prog="python -m bench.zoo", description=__doc__)
    add = parser.add_argument
    add("--only", nargs="+", default=[], metavar="GLOB", help="names or families of models")
    add("--only-failed", action="store_true", help="models whose last result falls short of something")
    add("--renew", action="store_true", help="lower and run again what has a result")
    add("--again", action="store_true", help="also make the quantized programs and ExecuTorch's files again")
    add("--seconds", type=float, default=Limits.seconds, help="for each of a model's stages (%(default)s)")
    add("--memory", type=int, default=Limits.megabytes, metavar="MB", help="for each stage (%(default)s)")
    add("--results", type=Path, default=RESULTS, help="file of results (out/zoo.jsonl)")
    add("--list", action="store_true", help="name the models that would run, and end")
    add("--write", action="store_true", help="make docs/zoo.md of the results, and end")
    add("--check", action="store_true", help="exit with 1 if something falls short without a reason")
    return parser, parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    parser, options = arguments(given)
    try:
        chosen = choose(options.only)
    except ValueError as error:
        parser.error(str(error))
    rows = results.read(options.results)
    if options.only_failed:
        chosen = [model for model in chosen if model.name in rows and results.wrong(rows[model.name])]
    elif not (options.renew or options.again):
        chosen = [model for model in chosen if model.name not in rows]
    if options.list:
        print("\n".join(f"{model.name:32} {model.family:20} {model.scheme}" for model in chosen))
        return 0
    if options.write:
        atomic_write.write(PAGE, page(rows).encode())
        return 0
    if not options.check:
        lines = []
        limits = Limits(options.seconds, options.memory)
        with verb(["zoo"]), progress("models", len(chosen)) as advance:
            for model in chosen:
                row = one(model, options.results.parent / "zoo", limits, options.again)
                results.append(options.results, row)
                lines.append(line(row))
                if not sys.stderr.isatty():
                    print("  ".join(map(str, lines[-1])), file=sys.stderr, flush=True)
                advance()
        print_table(COLUMNS, lines)
        rows = results.read(options.results)
    known = {name: rows[name] for name in MODELS if name in rows}
    print_table(("", "models"), summary(list(known.values())))
    found = [*stale(known), *unexplained(known)]
    print("\n".join(found))
    return int(options.check and bool(found))


def line(row: results.Row) -> tuple[object, ...]:
    """A model in the table that a run prints."""
    file = row["theirs"] or row["ours"]
    worst = results.steps(file) if file else None
    short = "; ".join(f"{aspect}: {what}" for aspect, what in results.wrong(row).items())
    return (row["name"], row.get("seconds", 0.0), file["nodes"] if file else 0, worst, short[:160])


if __name__ == "__main__":
    sys.exit(main())
