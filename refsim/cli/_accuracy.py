"""Where accuracy goes, as `run --float` shows it: the option, and what it asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from math import isfinite
from typing import Any

import click
import numpy as np

from refsim.device.losses import OperatorLoss, RunAccuracy
from refsim.exec.executor import Executor
from refsim.exec.model import Model

float_option = click.option(
    "--float",
    "exact",
    metavar="FLOAT.pt2",
    help="The program before it was quantized: say what each operator loses, what gains most in float first.",
)


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
