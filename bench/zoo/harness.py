"""One model after another, each stage in a process of its own, within limits of time and memory."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.harness import machine
from bench.zoo import limited, stages
from bench.zoo.limited import Limits, Row
from bench.zoo.model import Model
from bench.zoo.results import wrong
from refsim.core import atomic_write


def one(
    model: Model, folder: Path, limits: Limits, again: bool = False, call: Callable[..., Row] = limited.call
) -> Row:
    """The row of one model. What was made before is used again, unless ``again`` says to make it anew."""
    folder = folder / model.name
    if again:
        shutil.rmtree(folder, ignore_errors=True)
    folder = atomic_write.make_folder(folder)
    started = time.monotonic()
    row: dict[str, Any] = {
        "name": model.name, "family": model.family, "scheme": model.scheme, "commit": machine()["commit"],
        "made": None, "executorch": None, "lower": None, "theirs": None, "ours": None, "check": None,
    }  # fmt: skip
    row["made"] = _once(folder / stages.MADE, call, limits, stages.make, model.name, folder)
    if "error" not in row["made"]:
        row["executorch"] = _once(folder / stages.EXPORTED, call, limits, stages.export, folder)
        row["lower"] = {**stages.NOT_LOWERED, **call(limits, True, stages.lower, model.name, folder)}
        found = _run(folder, limits, call)
        row |= {"theirs": found.get(stages.THEIRS), "ours": found.get(stages.OURS)}
        if "steps" in wrong(row):
            file = stages.THEIRS if row["theirs"] else stages.OURS
            row["check"] = call(limits, True, stages.check, folder, file)
    row["seconds"] = round(time.monotonic() - started, 1)
    return row


def _once(
    done: Path, call: Callable[..., Row], limits: Limits, stage: Callable[..., Row], *arguments: object
) -> Row:
    """The row of a stage that no change of refsim can change: what it left, else it is called."""
    if done.exists():
        row: Row = json.loads(done.read_text())
        return row
    return call(limits, True, stage, *arguments)


def _run(folder: Path, limits: Limits, call: Callable[..., Row]) -> Mapping[str, Row]:
    """Both files without torch; with it those that fail because an operator needs it."""
    files = [file for file in (stages.THEIRS, stages.OURS) if (folder / file).exists()]
    found = _each(call(limits, False, stages.run, folder, files), files)
    needing = [file for file in files if found[file]["error"] and found[file]["torch"]]
    if needing:
        with_torch = _each(call(limits, True, stages.run, folder, needing), needing)
        found |= {file: {**row, "torch": found[file]["torch"]} for file, row in with_torch.items()}
    return found


def _each(answer: Row, files: list[str]) -> dict[str, Row]:
    """A row for each file, also where the whole process failed."""
    if "error" in answer:
        return {file: {**stages.EMPTY, "error": answer["error"]} for file in files}
    return answer
