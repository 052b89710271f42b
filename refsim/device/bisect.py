"""Which operator of a device's run is wrong: each buffer beside the right one, and beside that of its own inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from refsim.bytediff import Report, diff
from refsim.bytediff.hypotheses.defects import NAME as KNOWN_DEFECT
from refsim.bytediff.hypotheses.defects import known
from refsim.bytediff.hypotheses.dispatch import nothing_written
from refsim.bytediff.invocations import Geometry
from refsim.bytediff.rank import best_of
from refsim.core.buffer import ByteKind, PackedBuffer, byte_kinds
from refsim.core.counted import counted
from refsim.core.tensor import TensorDesc
from refsim.exec.factory import executor_named
from refsim.exec.model import Model
from refsim.exec.trace import Traced, bound_of, trace
from refsim.ops.base.binding import BoundCase
from refsim.ops.base.spec import Call

#: On what an operator was computed of whose inputs a float one was not dumped.
GIVEN = "inputs that were not all dumped, taken from your run"


class Buffers(Protocol):
    """The buffers of a device's run by value name: `refsim.formats.dumps.Recorded`, or what was just collected."""

    def __contains__(self, name: object) -> bool: ...

    def unfit(self, name: str, desc: TensorDesc) -> str:
        """Why the device's buffer cannot be compared with such a tensor; empty if it can, or if there is none."""
        ...

    def beside(self, name: str, buffer: PackedBuffer) -> np.ndarray:
        """The device's bytes of a value, to be compared with this buffer of the same shape and layout."""
        ...


@dataclass(frozen=True)
class Row:
    """One node. ``run`` compares its dump with a run from the start, ``alone`` with the node on its dumped inputs.

    ``wrong``: the operator itself is at fault; its output is wrong though its inputs are as dumped, or were right.
    ``cause``: what is known to be wrong with upstream's kernel here, for a node that no kernel computes or whose buffer
    has exactly the bytes of that defect. ``own`` is the
    call with its dumped inputs. ``is_int8``: the output is an int8 buffer, which a whole dump has. ``unfit`` says why
    the dumped buffer cannot be compared: it is of another shape or layout. ``given``: an input of ``own`` was not
    dumped, and is that of the right run. ``doubt`` says why nobody can tell whether it is wrong: the run may have had
    other inputs than these.
    """

    delegate: int
    node: int
    operator: str
    output: str
    run: Report | None
    alone: Report | None
    wrong: bool
    cause: str = ""
    own: BoundCase | None = None
    is_int8: bool = True
    unfit: str = ""
    given: bool = False
    doubt: str = ""

    @property
    def judged(self) -> Report | None:
        """The report about the operator itself: on its own inputs, if they are known."""
        return self.run if self.alone is None else self.alone


def bisect(
    model: Model,
    recorded: Buffers,
    inputs: Sequence[np.ndarray],
    tell: Callable[[], object] = lambda: None,
    explained: int | None = None,
    launched: Callable[[Call], Geometry | None] = lambda call: None,
    others: bool = False,
    asked: tuple[int, int] | None = None,
    unsaid: bool = False,
    **options: Any,
) -> list[Row]:
    """A row for each int8 operator, quantize and dequantize, in execution order; ``options`` are those of `diff`.

    If an operator's inputs were dumped too, it is also computed on those. That separates an operator that is wrong
    from one that got wrong inputs. ``tell`` is called after each node of the model, int8 or not. Of the wrong
    operators after the first ``explained`` ones, the reports say only what differs: causes take their time.
    ``asked``: the delegate and the number of the one node that is explained instead.
    ``launched`` says how the device launched a call's kernel, if not as refsim launches its own. ``others``: the
    device had other inputs than these, so that no operator is wrong but on inputs that were dumped. ``unsaid``: nobody
    says which inputs it had; the first operator is not called wrong if it looks as if it had others, see `unblamed`.
    """
    rows: list[Row] = []
    before: dict[str, BoundCase] = {}

    def visit(traced: Traced) -> None:
        diverged = others or any(row.run is not None and not row.run.same for row in rows)
        if traced.bound is not None:
            why = explained is None or sum(row.wrong for row in rows) < explained
            why = why if asked is None else (traced.delegate, traced.node.number) == asked
            row = _row(
                traced, recorded, before.get(traced.bound.call.op.name), diverged, why, launched, options
            )
            rows.append(unblamed(row) if unsaid and not rows else row)
            before[traced.bound.call.op.name] = traced.bound
        elif traced.node.meaning is not None:
            rows.append(_meant(traced, recorded, diverged, options))
        tell()

    trace(model, inputs, executor_named("cpu"), visit)
    return rows


def unblamed(row: Row) -> Row:
    """The first row as it is where nobody says which inputs the run had: with a doubt, if it may have had others.

    Its operator reads them, and they were not dumped, so it may be right. Hardly any bug of it makes half of its
    elements wrong, but other inputs do. A buffer that nobody wrote to is no such doubt.
    """
    report = row.judged
    if not (row.wrong and row.given and row.own is not None and report is not None):
        return row
    elements, wrong = row.own.call.out.numel, report.differing
    if 2 * wrong < elements or _unwritten(report):
        return row
    doubt = (
        f"node {row.node} {row.operator} reads the inputs, and {counted(wrong, 'element', 'differ')} "
        f"of its {elements}: the device may have had other inputs than these"
    )
    return replace(row, alone=None, own=None, wrong=False, cause="", doubt=doubt)


def _unwritten(report: Report) -> bool:
    """Whether every byte, padding too, is what a buffer was filled with: zeros say nothing, since inputs may be 0."""
    best = best_of(report.evidence, nothing_written)
    return best is not None and best.exact and best.whole and best.fitted


def allowed(rows: Sequence[Row]) -> list[Row] | None:
    """The operators whose buffers differ from the right run, if each is right for the inputs that it had.

    For rows that were judged under the device's profile: what it allows in one operator reaches those that read it.
    None where an operator is wrong, or got inputs that were not dumped.
    """
    found = [row for row in rows if row.run is not None and row.run.differing]
    right = all(row.judged is not None and row.judged.same for row in found)
    return found if right and not any(row.wrong or row.unfit for row in rows) else None


def _row(
    traced: Traced,
    recorded: Buffers,
    before: BoundCase | None,
    diverged: bool,
    why: bool,
    launched: Callable[[Call], Geometry | None],
    options: dict[str, Any],
) -> Row:
    assert traced.bound is not None
    name, bound, node = traced.output, traced.bound, traced.node
    run = alone = own = None
    given = False
    unfit = recorded.unfit(name, bound.call.out)
    if name in recorded and not unfit:
        handed = _dumped_inputs(traced, recorded, diverged)
        # where the node is judged alone, the run only says that something before it was wrong
        first = handed is None or not diverged
        held = traced.outputs[name]
        expected = held if isinstance(held, PackedBuffer) and not first else bound.call.expected(bound.inputs)
        title = f"{name} {expected.desc}, node {node.number} {node.operator}"
        if why and not np.array_equal(recorded.beside(name, expected), expected.raw):
            options = {**options, "geometry": launched(bound.call)}
        if handed is not None:
            given = any(value not in recorded for value in traced.input_names().values())
            own = bound_of(bound.call, handed)
            alike = first and all(handed[argument] == bound.inputs[argument] for argument in handed)
            again = expected if alike else own.call.expected(own.inputs)
            dumped = recorded.beside(name, again)
            told = f"{title}, computed from {GIVEN if given else 'its dumped inputs'}"
            alone = diff(again, dumped, call=own, previous=before, title=told, explain=why, **options)
        explain = why and first and (alone is None or alone.same)
        dumped = recorded.beside(name, expected)
        run = diff(expected, dumped, call=bound, previous=before, title=title, explain=explain, **options)
    wrong = run is not None and not run.same and (not diverged if alone is None else not alone.same)
    cause = _known_defect(alone or run) if wrong else ""
    return Row(
        traced.delegate, node.number, node.operator, name, run, alone, wrong, cause, own, bound.call.out.is_int8, unfit,
        given,
    )  # fmt: skip


def _known_defect(report: Report | None) -> str:
    """The defect of upstream's kernel that predicts every element of the buffer, in words."""
    if report is None:
        return ""
    best = report.causes[0] if report.causes else best_of(report.evidence, known)
    return best.detail if best is not None and best.exact and best.name == KNOWN_DEFECT else ""


def _meant(traced: Traced, recorded: Buffers, diverged: bool, options: dict[str, Any]) -> Row:
    """A node that runs by its definition: its own elements are compared, and its note is the cause."""
    name, node = traced.output, traced.node
    buffer = traced.outputs[name]
    assert isinstance(buffer, PackedBuffer) and node.meaning is not None
    run, unfit = None, recorded.unfit(name, buffer.desc)
    if name in recorded and not unfit:
        dumped = recorded.beside(name, buffer).copy()
        spare = byte_kinds(buffer.desc) != ByteKind.VALUE  # padding, of which nobody reads anything
        dumped[spare] = buffer.raw[spare]
        title = f"{name} {buffer.desc}, node {node.number} {node.operator}"
        run = diff(buffer, dumped, title=title, limit=options["limit"])
    wrong = run is not None and not run.same and not diverged
    cause = node.upstream or ""
    is_int8 = buffer.desc.is_int8
    return Row(
        traced.delegate, node.number, node.operator, name, run, None, wrong, cause, is_int8=is_int8, unfit=unfit
    )  # fmt: skip


def _dumped_inputs(traced: Traced, recorded: Buffers, diverged: bool) -> dict[str, PackedBuffer] | None:
    """The dumped inputs; None if one of them was not dumped, or is another tensor.

    A float input that was not dumped is that of the right run, as long as nothing diverged before.
    """
    assert traced.bound is not None
    handed = {}
    for argument, value in traced.input_names().items():
        buffer = traced.bound.inputs[argument]
        if recorded.unfit(value, buffer.desc):
            return None
        if value in recorded:
            raw = recorded.beside(value, buffer)
            desc = buffer.desc
            handed[argument] = PackedBuffer.from_raw(raw, desc.shape, desc.layout, desc.dtype)
        elif not buffer.desc.is_int8 and not diverged:
            handed[argument] = buffer
        else:
            return None
    return handed
