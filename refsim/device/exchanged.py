"""Buffers that hold exactly what other values should: exchanged with each other, or of another exposed file."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.core.errors import FormatError
from refsim.exec.factory import executor_named
from refsim.exec.model import Model
from refsim.exec.trace import Traced, trace
from refsim.formats.dumps import value_name

if TYPE_CHECKING:
    from refsim.device.dumped import Row
    from refsim.device.verdicts import Triage

#: Why an output may hold what another value should.
OTHER_FILE = "the outputs may be those of a file that exposes other values"


def check_exchanged(model: Model, rows: Sequence[Row], where: str, what: str, need: str) -> None:
    """FormatError if two buffers hold exactly what the other should: ``what`` they are, and what is needed."""
    two = exchanged(model, rows)
    if two is not None:
        raise FormatError(where, f"two {what} are exchanged", got=GOT.format(*two), need=need)


def exchanged(model: Model, rows: Sequence[Row]) -> tuple[str, str] | None:
    """The first two values of a run of which each holds what the other should; None without any.

    That is what the right run gives there, or what follows from the inputs that the operator had: other operators may
    be wrong, and one of the two may read the other. ``rows`` are those of `refsim.device.bisect.bisect`.
    """
    runs = {row.value: row.run.evidence for row in rows if row.run is not None and row.run.differing}
    held = {name: key(ev.actual) for name, ev in runs.items()}
    if (two := pair({name: key(ev.expected) for name, ev in runs.items()}, held)) is not None:
        return two
    alone = {
        row.value: (row, row.alone.evidence)
        for row in rows
        if row.alone is not None and row.alone.differing and row.value in held
    }
    want = {name: key(ev.expected) for name, (_, ev) in alone.items()}
    holders = {held[name]: name for name in alone}
    for first in alone:
        other = holders.get(want[first])
        if other is None or other == first:
            continue
        row, ev = alone[other]
        if want[other] == held[first] or _reading(model, row, first, ev.actual) == held[first]:
            return first, other
    return None


def _reading(model: Model, row: Row, name: str, held: PackedBuffer) -> tuple[object, bytes] | None:
    """What an operator gives if it reads these bytes as the value ``name``; None if it reads no such value."""
    node = model.graphs[row.delegate].writer(row.node)
    taken = [argument for argument, value in node.inputs.items() if value_name(row.delegate, value) == name]
    if row.own is None or not taken:
        return None
    return key(row.own.call.expected({**row.own.inputs, **dict.fromkeys(taken, held)}))


def taken_for(found: Triage, inputs: Sequence[np.ndarray]) -> list[str]:
    """Of each wrong operator whose output holds exactly what another value should: that it does, as a sentence.

    The outputs of a file that exposes other values look so, if these have the same shapes. Nothing in them says of
    which file they are.
    """
    held: dict[tuple[object, bytes], str] = {}
    for v in found.wrong:
        ev = None if v.report is None else v.report.evidence
        if ev is not None and len(np.unique(ev.got[ev.kinds == ByteKind.VALUE])) > 1:
            held[key(ev.actual)] = v.row.value
    notes = []

    def visit(traced: Traced) -> None:
        for name, buffer in traced.outputs.items():
            if isinstance(buffer, PackedBuffer):
                value = held.get(key(buffer))
                if value is not None and value != name:
                    notes.append(f"{value} holds exactly the right bytes of {name}: {OTHER_FILE}")

    if held:
        trace(found.collected.model, inputs, executor_named("cpu"), visit)
    return notes


#: How two exchanged buffers are told.
GOT = "{} where {} should be, and the other way round"


def pair(want: Mapping[str, Hashable], got: Mapping[str, Hashable]) -> tuple[str, str] | None:
    """The first two names of which each has got what the other wants; None without any. Keys are those of `key`."""
    holders = {held: name for name, held in got.items()}
    for name, wanted in want.items():
        other = holders.get(wanted)
        if other is not None and other != name and want[other] == got[name] != wanted:
            return name, other
    return None


def key(buffer: PackedBuffer) -> tuple[object, bytes]:
    """What two buffers have in common that hold the same elements of the same tensor."""
    return buffer.desc, hashlib.sha256(buffer.elements().tobytes()).digest()
