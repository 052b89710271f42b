"""Run the bundled models and compare every buffer with what ET-VK's own runtime wrote."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click
import numpy as np

import refsim
from refsim.cli._execute import Execution, execute
from refsim.cli.kit.complete import Completeness
from refsim.cli.kit.options import executors_option
from refsim.cli.kit.text import print_table, say_all
from refsim.cli.kit.verb import Result, verb
from refsim.cli.run import EXPECTED_NAMES, output_verdicts, print_result, verdict_text
from refsim.core import choices
from refsim.core.errors import FormatError
from refsim.core.status import DIFFERENT, SAME
from refsim.formats import npz
from refsim.formats.dumps import Recorded

PACKAGE = Path(refsim.__file__).parent
#: Where the models are: beside the modules of an installed refsim, or with the tests of a checkout.
FOLDERS = (PACKAGE / "bundled", PACKAGE.parent / "tests" / "data" / "models")
DEFAULT = "mixed_ops"


def bundled() -> dict[str, Path]:
    """The .pte files that have recorded buffers, by name."""
    for folder in FOLDERS:
        names = sorted(p.stem for p in folder.glob("*.pte") if (folder / f"{p.stem}.dump.zip").is_file())
        if names:
            return {name: folder / f"{name}.pte" for name in names}
    raise FormatError("demo", "no bundled models", need=f"*.pte in {FOLDERS[0]}")


@verb("demo", "mixed_ops")
@click.argument("name", default=DEFAULT)
@executors_option
def command(name: str, executors: str) -> Result:
    """Run the bundled models: NAME (mixed_ops) with a table of its operators, then one line per model."""
    models = bundled()
    if name not in models:
        raise FormatError("demo", "no such bundled model", got=name, need=choices.need(name, models))
    order = [name, *(other for other in models if other != name)]
    summaries = []
    for model_name in order:
        path = models[model_name]
        recorded = Recorded(path.with_name(f"{model_name}.dump.zip"))
        io_path = path.with_name(f"{model_name}.io.npz")
        model = refsim.load(path)
        inputs = npz.read_arrays(io_path, ("in",), model.input_shapes())
        result = execute(model, inputs, executors.split(","), recorded=recorded, repeat=2)
        outputs = next(iter(result.outputs.values()))
        wanted = npz.read_arrays(io_path, EXPECTED_NAMES, [(a.shape, a.dtype) for a in outputs])
        verdicts = output_verdicts(result, wanted)
        whole = Completeness(recorded.path, result.needed, result.compared)
        checks = [check for row in result.rows for check in row.checks.values()]
        summaries.append(
            {
                "model": model_name,
                "operators": len({(row.delegate, row.node) for row in result.rows}),
                "buffers": len(checks),
                "bytes": sum(check.compared for check in checks),
                "different": sum(check.different for check in checks),
                "not_compared": whole.missing,
                "outputs_same": all(verdict["same"] for verdict in verdicts)
                and not any(result.apart.values()),
                "ms": {e: float(np.sum([row.ms[e] for row in result.rows])) for e in result.outputs},
            }
        )
        if model_name == name:
            against = Path(recorded.path).name
            head = f"{path.name}, run on {executors}; every packed buffer against {against}"
            told = [verdict_text(verdict, io_path.name) for verdict in verdicts]
            first = partial(_show_one, head, result, against, told)
    same = all(
        s["outputs_same"] and s["bytes"] and not s["different"] and not s["not_compared"] for s in summaries
    )

    def show() -> None:
        first()
        heads = ("model", "operators", "buffers", "bytes", "different", "outputs", "ms")
        print_table(heads, [_brief(summary) for summary in summaries])

    return Result({"models": summaries, "same": same}, show, SAME if same else DIFFERENT)


def _show_one(head: str, result: Execution, against: str, told: Sequence[str]) -> None:
    """The model that was asked for, operator by operator."""
    say_all((head, ""))
    print_result(result, against)
    say_all((*told, ""))


def _brief(summary: dict[str, object]) -> tuple[object, ...]:
    ms = summary["ms"]
    assert isinstance(ms, dict)
    return (
        summary["model"],
        summary["operators"],
        summary["buffers"],
        summary["bytes"],
        summary["different"],
        "same bits" if summary["outputs_same"] else "different",
        sum(ms.values()),
    )
