"""Where accuracy goes, as `run --float` shows it: the option, the table and the JSON."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from refsim.cli.kit.text import print_table, say
from refsim.core import choices
from refsim.exec.executor import Executor
from refsim.exec.model import Model

if TYPE_CHECKING:
    from refsim.partition.accuracy import Accuracy

COLUMNS = (
    "delegate",
    "node",
    "operator",
    "float node",
    "gain dB",
    "share",
    "dB",
    "own dB",
    "largest",
    "mean",
    "beyond",
)
#: The keys of a row of the JSON, in the order of the columns.
KEYS = (
    "delegate",
    "node",
    "operator",
    "place",
    "gain",
    "share",
    "sqnr",
    "own",
    "largest",
    "mean",
    "saturated",
)

float_option = click.option(
    "--float",
    "exact",
    metavar="FLOAT.pt2",
    help="The program before it was quantized: say what each operator loses, what gains most in float first.",
)


def measured(
    model: Model, given: Sequence[np.ndarray], exact: str | None, executor: Executor
) -> Accuracy | None:
    """What the run loses; None without the option. FormatError, GraphError as `accuracy` raises it."""
    if exact is None:
        return None
    from refsim.partition.load import load

    program = load(exact)
    from refsim.partition.accuracy import accuracy  # torch is there, or load would have said so

    return accuracy(model, given, program, executor)


def as_json(found: Accuracy | None) -> dict[str, Any]:
    """The key of the JSON; nothing without the option. What is infinite is null: nothing is lost there."""
    if found is None:
        return {}
    rows = [
        {"value": loss.value, **{key: _finite(getattr(loss, key)) for key in KEYS}} for loss in found.losses
    ]
    return {
        "accuracy": {
            "outputs": [_finite(one) for one in found.outputs],
            "operators": rows,
            "missing": list(found.missing),
        }
    }


def show(found: Accuracy | None, exact: str | None) -> None:
    """Print the table."""
    if found is None:
        return
    say()
    say(f"against {exact}: what each operator loses, what gains most in float first")
    print_table(COLUMNS, [_cells(loss) for loss in found.losses], drop=("delegate", "mean", "own dB"))
    outputs = ", ".join(f"out{number} {_db(value)} dB" for number, value in enumerate(found.outputs))
    say(f"outputs: {outputs}")
    if found.missing:
        say(f"not found in {exact}: {choices.listed(found.missing)}")


def _cells(loss: Any) -> tuple[object, ...]:
    gain = "-" if loss.gain is None else _db(loss.gain)
    share = f"{100 * loss.share:.1f}%"
    steps = tuple("-" if held is None else f"{held:.2f}" for held in (loss.largest, loss.mean))
    beyond = "-" if loss.saturated is None else f"{100 * loss.saturated:.1f}%"
    return (
        loss.delegate, loss.node, loss.operator, loss.place, gain, share, _db(loss.sqnr), _db(loss.own), *steps, beyond,
    )  # fmt: skip


def _db(value: float) -> str:
    return f"{value:.1f}".replace("-0.0", "0.0") if isfinite(value) else "same" if value > 0 else "none"


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not isfinite(value) else value
