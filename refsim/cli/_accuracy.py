"""Where accuracy goes, as `run --float` shows it: the option, and what it asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from math import isfinite
from typing import Any

import click
import numpy as np

from refsim.cli.kit.devtools import write_node_data
from refsim.cli.kit.text import wrote
from refsim.core import atomic_write
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


def write_losses(lost: RunAccuracy | None, file: str, html: str | None, node_data: str | None) -> None:
    """Write what a run loses as a page with bars and as node data, as asked. UsageError without ``--float``."""
    if lost is None and (html or node_data):
        raise click.UsageError(
            f"{'--html' if html else '--node-data'} needs --float: it shows what operators lose"
        )
    if lost is None:
        return
    if html is not None:
        atomic_write.write(html, lost.page(file).encode())
        wrote(html)
    write_node_data(node_data, f"losses of {file}", lost.shares)


def _db(value: float) -> str:
    return f"{value:.1f}".replace("-0.0", "0.0") if isfinite(value) else "same" if value > 0 else "none"


def _finite(value: float | None) -> float | None:
    return None if isinstance(value, float) and not isfinite(value) else value
