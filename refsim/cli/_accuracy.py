"""Where accuracy goes, as `run --float` shows it: the option, the value and its text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from math import isfinite
from typing import Annotated, Any

import click
import numpy as np

from refsim.core import choices
from refsim.core.result import Table
from refsim.exec.executor import Executor
from refsim.exec.model import Model

COLUMNS = (
    "delegate", "node", "operator", "float node", "gain dB", "share", "dB", "own dB", "largest", "mean", "beyond",
)  # fmt: skip

float_option = click.option(
    "--float",
    "exact",
    metavar="FLOAT.pt2",
    help="The program before it was quantized: say what each operator loses, what gains most in float first.",
)


@dataclass(frozen=True)
class OperatorLoss:
    """What one operator loses. What is infinite is null: nothing is lost there."""

    delegate: Annotated[int, "Number of the delegate."]
    node: Annotated[int, "Number of the node in it."]
    operator: Annotated[str, "Name of the operator."]
    value: Annotated[str, "Its output."]
    place: Annotated[str, "The node of the float program."]
    gain: Annotated[
        float | None, "dB that the outputs gain if it stays in float; null for one without weights."
    ]
    share: Annotated[float, "Its part of what the outputs lose."]
    sqnr: Annotated[float | None, "Signal to noise of the value, in dB."]
    own: Annotated[float | None, "The same of what the operator adds."]
    largest: Annotated[float | None, "The largest error in steps of the value's scale; null for floats."]
    mean: Annotated[float | None, "The mean error in these."]
    saturated: Annotated[float | None, "The share of elements beyond what int8 holds; null for floats."]


@dataclass(frozen=True)
class RunAccuracy:
    """What a run loses. ``dB``: each number of dB as text, by what it is of."""

    exact: str
    outputs: Annotated[Sequence[float | None], "The outputs, in dB."]
    operators: Annotated[Sequence[OperatorLoss], "The operators, the most costly first."]
    missing: Annotated[Sequence[str], "Nodes that were not found in the float program."]
    cells: Sequence[Sequence[object]]
    told: Sequence[str]

    def text(self) -> Iterator[str | Table]:
        yield ""
        yield f"against {self.exact}: what each operator loses, what gains most in float first"
        yield Table(COLUMNS, self.cells, drop=("delegate", "mean", "own dB"))
        yield f"outputs: {', '.join(f'out{number} {text} dB' for number, text in enumerate(self.told))}"
        if self.missing:
            yield f"not found in {self.exact}: {choices.listed(self.missing)}"


def measured(
    model: Model, given: Sequence[np.ndarray], exact: str | None, executor: Executor
) -> RunAccuracy | None:
    """What the run loses; None without the option. FormatError, GraphError as `accuracy` raises it."""
    if exact is None:
        return None
    from refsim.partition.load import load

    program = load(exact)
    from refsim.partition.accuracy import Loss, accuracy  # torch is there, or load would have said so

    found = accuracy(model, given, program, executor)

    def operator(loss: Loss) -> OperatorLoss:
        held: dict[str, Any] = {one.name: _finite(getattr(loss, one.name)) for one in fields(OperatorLoss)}
        return OperatorLoss(**held)

    def cells(loss: Loss) -> list[object]:
        gain = "-" if loss.gain is None else _db(loss.gain)
        steps = ["-" if held is None else f"{held:.2f}" for held in (loss.largest, loss.mean)]
        beyond = "-" if loss.saturated is None else f"{100 * loss.saturated:.1f}%"
        losses = [gain, f"{100 * loss.share:.1f}%", _db(loss.sqnr), _db(loss.own), *steps, beyond]
        return [loss.delegate, loss.node, loss.operator, loss.place, *losses]

    return RunAccuracy(
        exact, list(map(_finite, found.outputs)), list(map(operator, found.losses)), found.missing,
        list(map(cells, found.losses)), list(map(_db, found.outputs)),
    )  # fmt: skip


def _db(value: float) -> str:
    return f"{value:.1f}".replace("-0.0", "0.0") if isfinite(value) else "same" if value > 0 else "none"


def _finite(value: float | None) -> float | None:
    return None if isinstance(value, float) and not isfinite(value) else value
