"""`run --sequence`: a table of runs at several shapes, as one process of ExecuTorch's would give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from refsim.cli.kit.buffers import GivenInputs
from refsim.cli.kit.text import print_table, say, shape_text
from refsim.cli.kit.verb import Result
from refsim.core.status import DIFFERENT, SAME
from refsim.exec.executor import Executor
from refsim.exec.model import Model
from refsim.exec.sequence import sequence

COLUMNS = ("run", "inputs", "output", "shape", "should be", "wrong", "stale", "unwritten", "alone")


def sequence_result(
    facts: Mapping[str, Any], model: Model, paths: Sequence[str], executor: Executor
) -> Result:
    """What runs with the inputs of these files give, one after another. ``facts``: keys of every run's object."""
    many = [GivenInputs(path, None).of(model) for path in paths]
    steps: list[dict[str, Any]] = []
    for path, inputs, step in zip(paths, many, sequence(model, many, executor), strict=True):
        outputs = [
            {
                "shape": list(found.shape),
                "meant": list(need.shape),
                "wrong": step.wrong(k),
                "stale": step.stale(k),
                "unwritten": int(step.never[k].sum()),
            }
            for k, (found, need) in enumerate(zip(step.outputs, step.meant, strict=False))
        ]
        steps.append(
            {
                "inputs": path,
                "shapes": [list(array.shape) for array in inputs],
                "outputs": outputs,
                "as_alone": step.as_alone,
                "stopped": step.stopped or None,
                "right": step.right,
            }
        )
    same = all(step["right"] for step in steps)

    def show() -> None:
        rows: list[list[object]] = []
        for number, step in enumerate(steps):
            head = [number, " ".join(map(shape_text, step["shapes"]))]
            last = "the same" if step["as_alone"] else "otherwise"
            rows += [
                [
                    *(*head, f"out{k}", *map(shape_text, (o["shape"], o["meant"]))),
                    *(o["wrong"], o["stale"], o["unwritten"], last),
                ]
                for k, o in enumerate(step["outputs"])
            ] or [[*head, "throws", "-", "-", "-", "-", "-", last]]
        print_table(COLUMNS, rows, drop=())
        for text in dict.fromkeys(step["stopped"] for step in steps if step["stopped"]):
            say(text)

    return Result({**facts, "sequence": steps, "same": same}, show, SAME if same else DIFFERENT)
