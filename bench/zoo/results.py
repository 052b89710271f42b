"""The file of results: a line of JSON for each model, the last one counts. What a row says, aspect by aspect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
ALLOWED = 1.001  # steps: one, and what binary32 adds to a value that is many steps large
#: What is asked of every model, in the order in which it is told.
ASPECTS = ("made", "executorch", "lower", "graph", "run", "torch", "steps", "own file")


def read(path: Path) -> dict[str, Row]:
    """The latest row of each model. A line that a killed process left unfinished is skipped."""
    found: dict[str, Row] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
            found[row["name"]] = row
        except (ValueError, TypeError, KeyError):
            continue
    return found


def append(path: Path, row: Row) -> None:
    """Add a row; a line that was left unfinished ends first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = not path.exists() or path.read_bytes()[-1:] in (b"", b"\n")
    with path.open("a") as file:
        file.write(("" if whole else "\n") + json.dumps(row) + "\n")


def wrong(row: Row) -> dict[str, str]:
    """What falls short, by aspect: a few words on each. Nothing of aspects that do not apply."""
    made = row["made"]
    if made.get("error"):
        return {"made": made["error"]}
    found: dict[str, str | None] = {
        "executorch": row["executorch"]["error"],
        "lower": row["lower"]["error"],
        "graph": row["lower"]["graph"],
    }
    theirs, ours = row["theirs"], row["ours"]
    file = theirs or ours  # ours stands in where ExecuTorch makes none
    if file:
        found |= {"run": file["error"], "torch": ", ".join(file["torch"]), "steps": off(file)}
    if ours and ours is not file:
        found["own file"] = ours["error"] or (None if found["steps"] else off(ours))
    return {aspect: found[aspect] or "" for aspect in ASPECTS if found.get(aspect)}


def off(file: Row) -> str | None:
    """The outputs that are further from torch's than allowed."""
    return "; ".join(
        f"output {number}: " + (each.get("why") or f"{each['steps']:.3g} steps")
        for number, each in enumerate(file["outputs"])
        if each["steps"] is None or each["steps"] > ALLOWED
    )


def steps(file: Row) -> float | None:
    """The most steps of any output; None if it did not run or an output does not compare."""
    found = [each["steps"] for each in file.get("outputs", ())]
    return None if not found or None in found else max(found)
