"""docs/zoo.md, made of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from bench.zoo.catalogue import MODELS
from bench.zoo.reasons import REASONS, Reason, explained
from bench.zoo.results import Row, steps, wrong

PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"
HEAD = """# The zoo

Real architectures with random weights. ExecuTorch 1.5.1 and refsim lower each of them; refsim runs both files.
`python -m bench.zoo` (extra `zoo`) finds the results, `python -m bench.zoo --write` makes this page of them. Inputs are
small, so that a model takes seconds.
"""
COLUMNS = {
    "model": "a name for `python -m bench.zoo --only`",
    "nodes": "operators called in the delegates of ExecuTorch's file; of refsim's where ExecuTorch makes none",
    "operators": "different ones, those outside of delegates included",
    "without torch": "whether the file runs where torch is not installed",
    "steps": "how far the worst output is from the quantized program in torch: in steps of the output's quantizer; "
    "for a float output, a step is 1/255 of its range",
    "alike": "the same if torch leaves out the roundings that lowering leaves out: a quantize and a dequantize between "
    "float operators. Found only where steps are more than one",
    "same graph": "whether refsim lowers the program to the same delegates, with every operator, argument, constant "
    "and layout in the same order; `-` where ExecuTorch makes no file",
}


def page(rows: Mapping[str, Row], reasons: tuple[Reason, ...] = REASONS) -> str:
    """The whole page."""
    known = [rows[name] for name in MODELS if name in rows]
    blocks = [HEAD, _table(("", "models"), summary(known)), _columns()]
    for family in dict.fromkeys(row["family"] for row in known):
        of = [row for row in known if row["family"] == family]
        blocks += [f"## {family}\n", _table(tuple(COLUMNS), [cells(row) for row in of])]
    blocks += ["## What falls short\n", _reasons(known, reasons)]
    return "\n".join(blocks)


def summary(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """What was asked, and of how many models it holds."""
    files = [row for row in rows if row["theirs"]]
    short = {row["name"]: wrong(row) for row in rows}

    def share(of: Sequence[Row], *aspects: str) -> str:
        good = sum(not set(aspects) & set(short[row["name"]]) for row in of)
        return f"{good} of {len(of)}" + (f" ({100 * good / len(of):.0f} %)" if of else "")

    made = [row for row in rows if row["lower"]]
    return [
        ("quantized with PT2E or torchao", share(rows, "made")),
        ("lowered by ExecuTorch", share(made, "executorch")),
        ("lowered by refsim", share(made, "lower")),
        ("ExecuTorch's files that refsim runs", share(files, "run")),
        ("files that run without torch", share(made, "run", "torch", "lower")),
        ("outputs within one step of torch", share(made, "run", "steps", "lower")),
        ("the same graph as ExecuTorch's", share(files, "graph", "lower")),
    ]


def cells(row: Row) -> tuple[str, ...]:
    """A row of a family's table."""
    short, file = wrong(row), row["theirs"] or row["ours"]
    if not file:
        return (row["name"], *["-"] * (len(COLUMNS) - 1))
    worst, checked = steps(file), row.get("check")
    alike = steps(checked) if checked else None
    if not row["theirs"]:
        graph = "-"
    else:
        graph = "no" if {"graph", "lower"} & set(short) else "yes"
    return (
        row["name"],
        str(file["nodes"]),
        str(len(file["operators"])),
        "no" if {"torch", "run"} & set(short) else "yes",
        "-" if worst is None else f"{worst:.3g}",
        "" if alike is None else f"{alike:.3g}",
        graph,
    )


def _reasons(rows: Sequence[Row], reasons: tuple[Reason, ...]) -> str:
    found = explained(reasons)
    lines = [
        (row["name"], aspect, found.get((row["name"], aspect), "no reason is known"))
        for row in rows
        for aspect in wrong(row)
    ]
    return _table(("model", "aspect", "reason"), lines) if lines else "Nothing.\n"


def _columns() -> str:
    lines = (fill(f"- {name}: {text}", 120, subsequent_indent="  ") for name, text in COLUMNS.items())
    return "\n".join(lines) + "\n"


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"
