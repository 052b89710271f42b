"""Outputs that hold exactly what other values should: exchanged with each other, or of another exposed file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.core.errors import FormatError
from refsim.device.bisect import Row
from refsim.device.verdicts import Triage
from refsim.exec.factory import executor_named
from refsim.exec.trace import Traced, trace

#: Why an output may hold what another value should.
OTHER_FILE = "the outputs may be those of a file that exposes other values"


def check_exchanged(rows: Sequence[Row], where: str) -> None:
    """FormatError if two outputs hold exactly what the other should."""
    want: dict[tuple[object, bytes], Row] = {}
    got: dict[str, tuple[object, bytes]] = {}
    for row in rows:
        if row.run is not None and row.run.differing:
            ev = row.run.evidence
            want[(ev.desc, _digest(ev.expected))] = row
            got[row.output] = (ev.desc, _digest(ev.actual))
    for name, key in got.items():
        other = want.get(key)
        if other is not None and other.output != name:
            back = want.get(got[other.output])
            if back is not None and back.output == name:
                raise FormatError(
                    where, "two outputs are exchanged", need="all outputs in order",
                    got=f"{name} where {other.output} should be, and the other way round",
                )  # fmt: skip


def taken_for(found: Triage, inputs: Sequence[np.ndarray]) -> list[str]:
    """Of each wrong operator whose output holds exactly what another value should: that it does, as a sentence.

    The outputs of a file that exposes other values look so, if these have the same shapes. Nothing in them says of
    which file they are.
    """
    held: dict[tuple[object, bytes], str] = {}
    for v in found.wrong:
        ev = None if v.report is None else v.report.evidence
        if ev is not None and len(np.unique(ev.got[ev.kinds == ByteKind.VALUE])) > 1:
            held[ev.desc, _digest(ev.actual)] = v.row.output
    notes = []

    def visit(traced: Traced) -> None:
        for name, buffer in traced.outputs.items():
            if isinstance(buffer, PackedBuffer):
                value = held.get((buffer.desc, _digest(buffer)))
                if value is not None and value != name:
                    notes.append(f"{value} holds exactly the right bytes of {name}: {OTHER_FILE}")

    if held:
        trace(found.collected.model, inputs, executor_named("cpu"), visit)
    return notes


def _digest(buffer: PackedBuffer) -> bytes:
    return hashlib.sha256(buffer.elements().tobytes()).digest()
