"""Run a model on executors and watch every buffer: times, dumps, comparison with recorded bytes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refsim import aten
from refsim.core.buffer import ByteKind, PackedBuffer, byte_kinds
from refsim.core.errors import ParameterError
from refsim.core.locate import at_byte
from refsim.exec.factory import executor_named
from refsim.exec.model import Model
from refsim.formats import dumps
from refsim.graph.graph import Node
from refsim.graph.interpreter import Event

COLUMNS = ("delegate", "node", "operator", "kernels", "output", "shape", "layout", "bytes")


@dataclass(frozen=True)
class Check:
    """A buffer against a recorded one: bytes compared and different, and the first difference."""

    compared: int
    different: int
    first: dict[str, Any] | None = None

    def __str__(self) -> str:
        if not self.different:
            return "same"
        assert self.first is not None
        place = self.first
        return (
            f"different {self.different} of {self.compared}, first byte {place['byte']} "
            f"at {','.join(map(str, place['index']))}: got {place['got']}, need {place['need']}"
        )


@dataclass
class Row:
    """One output of one executed node."""

    delegate: int
    node: int
    operator: str
    kernels: str
    value: str
    shape: tuple[int, ...]
    layout: str | None
    dtype: str
    nbytes: int
    ms: dict[str, float] = field(default_factory=dict)
    checks: dict[str, Check] = field(default_factory=dict)

    def cells(self) -> tuple[object, ...]:
        shape = "x".join(map(str, self.shape))
        layout = self.layout or self.dtype
        return (self.delegate, self.node, self.operator, self.kernels, self.value, shape, layout, self.nbytes)

    def as_json(self) -> dict[str, Any]:
        content = {k: v for k, v in vars(self).items() if k != "checks"}
        return content | {"golden": {name: vars(check) for name, check in self.checks.items()}}


@dataclass
class Result:
    """What a run of all executors gave; outputs by executor."""

    rows: list[Row]
    outputs: dict[str, list[np.ndarray]]
    dumped: list[str]
    unmatched: list[str]

    @property
    def different(self) -> int:
        """Buffers that differ from the recorded ones."""
        return sum(any(check.different for check in row.checks.values()) for row in self.rows)


def execute(
    model: Model,
    inputs: Sequence[np.ndarray],
    executors: Sequence[str],
    *,
    recorded: dumps.Recorded | None = None,
    dump_regex: str | None = None,
    dump_folder: str | None = None,
    repeat: int = 1,
    threads: int = 1,
) -> Result:
    """Run on each executor in turn. Dumps are taken from the first; times are the least of ``repeat`` runs."""
    pattern = _pattern(dump_regex)
    if len(set(executors)) != len(executors):
        raise ParameterError(
            "executors", "one is named twice", got=",".join(executors), need="distinct names"
        )
    rows: dict[str, Row] = {}
    result = Result([], {}, [], [])
    runners = [
        (name, executor_named(name, threads)) for name in executors
    ]  # all of them exist before the first runs
    for number, (name, runner) in enumerate(runners):

        def observe(event: Event, name: str = name, first: bool = number == 0) -> None:
            for at, (value, held) in enumerate(event.outputs.items()):
                row = rows.setdefault(dumps.value_name(event.delegate, value), _row(event, value, held))
                seconds = event.seconds if at == 0 else 0.0  # one time per node, whatever it puts out
                row.ms[name] = min(seconds * 1e3, row.ms.get(name, math.inf))
                if recorded is not None and row.value in recorded and isinstance(held, PackedBuffer):
                    row.checks[name] = check(event.node, held, recorded.raw(row.value, held.desc))
                if first and pattern and dump_folder and pattern.search(f"{row.value} {event.node.name}"):
                    params = event.node.call.params if event.node.call else None
                    info = dumps.sidecar(row.value, held, event.node.name, event.node.number, params)
                    dumps.write(dump_folder, info, held)
                    if row.value not in result.dumped:
                        result.dumped.append(row.value)

        for _ in range(repeat):
            result.outputs[name] = model.run(inputs, runner, observe)
    result.rows = list(rows.values())
    if recorded is not None:
        result.unmatched = sorted(set(recorded.entries) - set(rows))
    return result


def check(node: Node, held: PackedBuffer, recorded: np.ndarray) -> Check:
    """Compare the bytes that a device defines: values, and the padding that the operator writes there."""
    if node.call is not None:
        compared = node.call.device_defined()
    elif held.desc.is_int8:
        compared = byte_kinds(held.desc) == ByteKind.VALUE
    else:
        compared = np.ones(held.desc.nbytes, bool)
    wrong = np.flatnonzero((held.raw != recorded) & compared)
    first = None
    if wrong.size:
        at = int(wrong[0])
        place = at_byte(held.desc, at)
        view = np.int8 if held.desc.is_int8 else np.uint8
        first = {
            "byte": at,
            "index": place.index,
            "kind": place.kind.name.lower(),
            "got": int(held.raw[at].view(view)),
            "need": int(recorded[at].view(view)),
        }
    return Check(int(compared.sum()), int(wrong.size), first)


def _row(event: Event, value: int, held: PackedBuffer | np.ndarray) -> Row:
    packed = held if isinstance(held, PackedBuffer) else None
    array = held.data if isinstance(held, PackedBuffer) else held
    return Row(
        delegate=event.delegate,
        node=event.node.number,
        operator=operator_name(event.node),
        kernels=kernels(event.node),
        value=dumps.value_name(event.delegate, value),
        shape=packed.desc.shape if packed else array.shape,
        layout=str(packed.desc.layout) if packed else None,
        dtype=str(array.dtype),
        nbytes=packed.desc.nbytes if packed else array.nbytes,
    )


def operator_name(node: Node) -> str:
    """``q8ta_add``, or a float operator's name without the parts that are always the same."""
    return node.call.op.name if node.call else node.name.removesuffix(".default")


def kernels(node: Node) -> str:
    """The kernels that a node dispatches, in order; or the library that runs a float operator."""
    if node.prepared is None:
        return aten.find(node.name, str(node)).source
    return ", ".join(step.launch.shader for step in node.prepared.dispatches)


def _pattern(regex: str | None) -> re.Pattern[str] | None:
    if regex is None:
        return None
    try:
        return re.compile(regex)
    except re.error as error:
        raise ParameterError("--dump", "not a regular expression", got=repr(regex), need=error) from error
