"""Which operator of a device's run is wrong: each buffer beside the right one, and beside that of its own inputs."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from refsim.bytediff import Report, defects, diff
from refsim.bytediff.invocations import Geometry
from refsim.bytediff.rank import judge
from refsim.core import choices
from refsim.core.buffer import ByteKind, PackedBuffer, byte_kinds, offsets
from refsim.core.counted import counted
from refsim.core.qmath import Profile
from refsim.core.tensor import TensorDesc
from refsim.device import floats
from refsim.device.dumped import GIVEN, Buffers, Row, Strayed, dumped, dumped_inputs
from refsim.device.other_inputs import doubted
from refsim.exec.executor import Executor, MeantBy
from refsim.exec.factory import executor_named
from refsim.exec.model import Model
from refsim.exec.trace import Traced, bound_of, trace
from refsim.formats import kernels
from refsim.formats.dumps import value_name
from refsim.graph.graph import Graph, Node
from refsim.ops.base.binding import BoundCase
from refsim.ops.base.spec import Call


def launched_flat(call: Call) -> Geometry | None:
    """How upstream's kernel on flat tensors is launched; None for other calls, or where that is not known."""
    last = kernels.written_flat(call)
    return None if last is None else Geometry.of(call, last)


def launched(runner: Executor | None, call: Call) -> Geometry | None:
    """How the kernel that writes a call's output is launched, if that is not refsim's: an executor's, or upstream's."""
    last = None if runner is None else runner.written(call)
    return launched_flat(call) if last is None else Geometry.of(call, last)


def bisect(
    model: Model,
    recorded: Buffers,
    inputs: Sequence[np.ndarray],
    tell: Callable[[], object] = lambda: None,
    explained: int | None = None,
    runner: Executor | None = None,
    others: bool = False,
    asked: tuple[int, int] | None = None,
    unsaid: bool = False,
    **options: Any,
) -> list[Row]:
    """A row for each int8 operator, and for each output of a float operator that was dumped, in execution order.

    An operator whose inputs were dumped too is also computed on those, which separates a wrong one from one that got
    wrong inputs. ``options`` are those of `diff`. ``tell`` is called after each node of the model. Causes take their
    time: they are sought of the first ``explained`` wrong operators, or of ``asked`` (delegate, node) alone.
    ``runner``: the executor whose run this is, if it is one; calls have the meaning of its kernels. ``others``: the
    device had other inputs, so that none is wrong but on dumped ones. ``unsaid``: nobody says which it had; others are
    tried.
    """

    flat = any(graph.target.runtime.flat for graph in model.graphs.values())
    defined = MeantBy(runner) if runner is not None and runner.flat else executor_named("cpu")

    def walk(excused: Container[str] = ()) -> list[Row]:
        rows: list[Row] = []
        before: dict[str, BoundCase] = {}
        strayed = Strayed(model, recorded, others)

        right: dict[str, PackedBuffer] = {}

        def visit(traced: Traced) -> None:
            right.update((n, held) for n, held in traced.outputs.items() if isinstance(held, PackedBuffer))
            diverged = strayed.reached(traced)
            if traced.bound is not None:
                told = sum(row.wrong and row.value not in excused for row in rows)
                why = explained is None or told < explained
                why = why if asked is None else (traced.delegate, traced.node.number) == asked
                bound = traced.bound
                if runner is not None:
                    bound = replace(bound, call=runner.meant(bound.call))
                last = before.get(bound.call.op.name)
                rows.append(_row(traced, bound, recorded, last, diverged, strayed, why, runner, options))
                before[bound.call.op.name] = bound
            elif traced.node.meaning is not None and not flat:
                rows.append(_meant(traced, recorded, diverged, options))
            else:
                graph = model.graphs[traced.delegate]
                rows.extend(floats.rows(graph, traced, recorded, strayed, diverged, options))
                if diverged:
                    floats.follow(graph, traced, recorded, strayed)
            strayed.see(traced, diverged)
            tell()

        trace(model, inputs, defined, visit)
        return [resized(model, recorded, row, right.get(row.value)) for row in rows]

    rows = walk()
    doubts = doubted(model, recorded, inputs, rows, options.get("profile")) if unsaid else {}
    excused = [name for name, doubt in doubts.items() if doubt.excused]
    if excused and explained:
        rows = walk(excused)  # an operator behind them is explained, and not they
    return [doubts[row.value].of(row) if row.value in doubts else row for row in rows]


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
    bound: BoundCase,
    recorded: Buffers,
    before: BoundCase | None,
    diverged: bool,
    strayed: Strayed,
    why: bool,
    runner: Executor | None,
    options: dict[str, Any],
) -> Row:
    name, node = traced.output, traced.node
    run = alone = own = None
    given = False
    unfit = recorded.unfit(name, bound.call.out)
    if name in recorded and not unfit:
        handed = dumped_inputs(traced, recorded, strayed)
        # where the node is judged alone, the run only says that something before it was wrong
        first = handed is None or not diverged
        held = traced.outputs[name]
        expected = held if isinstance(held, PackedBuffer) and not first else bound.call.expected(bound.inputs)
        title = f"{name} {expected.desc}, node {node.number} {node.operator}"
        if why and not np.array_equal(recorded.beside(name, expected), expected.raw):
            options = {**options, "geometry": launched(runner, bound.call)}
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
    is_int8 = bound.call.out.is_int8
    row = Row.of(traced, name, run, alone, diverged, own=own, is_int8=is_int8, unfit=unfit, given=given)
    if row.wrong:
        return replace(row, cause=_known_defect(alone or run))
    return row if run is None or run.same or alone is not None else replace(row, cause=strayed.why(traced))


def _known_defect(report: Report | None) -> str:
    """The defect of upstream's kernel that predicts every element of the buffer, in words."""
    if report is None:
        return ""
    known = report.causes[:1] or [judge(report.evidence, one) for one in defects.known(report.evidence)]
    return next((cause.detail for cause in known if cause.exact and cause.name == defects.NAME), "")


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
    cause, is_int8 = node.upstream or "", buffer.desc.is_int8
    return Row.of(traced, name, run, None, diverged, cause=cause, is_int8=is_int8, unfit=unfit)


@dataclass(frozen=True)
class Bisected:
    """All operators of a run. ``asked``: (delegate, node) of the one to explain, if not the first that is wrong."""

    rows: Sequence[Row]
    profile: Profile | None
    asked: tuple[int, int] | None = None

    @property
    def compared(self) -> list[Row]:
        """Those whose buffer was there to be compared."""
        return [row for row in self.rows if row.run is not None]

    @property
    def wrong(self) -> list[Row]:
        """Those that are wrong themselves."""
        return [row for row in self.rows if row.wrong]

    @property
    def first(self) -> Row | None:
        """The first whose buffer is not the right run's."""
        return next((row for row in self.rows if row.run is not None and not row.run.same), None)

    @property
    def doubted(self) -> Row | None:
        """The first that is right for other inputs than were given."""
        return next((row for row in self.rows if row.excused), None)

    @cached_property
    def legal(self) -> list[Row]:
        """What differs, if the profile allows each of these for the inputs of its operator."""
        return (allowed(self.rows) or []) if self.profile is not None else []

    @property
    def same(self) -> bool:
        return (self.first is None or bool(self.legal)) and not self.wrong

    @property
    def chosen(self) -> Row | None:
        """The one that is explained."""
        asked = next((row for row in self.rows if row.at == self.asked), None)
        return asked or (None if self.legal else next(iter(self.wrong), self.first))

    @property
    def report(self) -> Report | None:
        """What it gave, against what it should have; on its own inputs where it is wrong."""
        row = self.chosen
        if row is None:
            return None
        return row.alone if row.wrong and row.alone is not None else row.run

    def allowed_before(self, first: Row) -> list[Row]:
        """Those before the first that diverges whose bytes differ, but only as the profile allows."""
        before = self.rows[: next(number for number, row in enumerate(self.rows) if row is first)]
        return [row for row in before if row.run is not None and row.run.differing]

    def changed(self, model: Model) -> list[str]:
        """Of each operator that is right in the run, but not for its dumped inputs: that it had read others."""
        differ = {row.value for row in self.rows if row.run is not None and not row.run.same}
        notes = []
        for row in self.rows:
            if row.run is not None and row.run.same and row.alone is not None and not row.alone.same:
                node = model.graphs[row.delegate].writer(row.node)
                read = dict.fromkeys(value_name(row.delegate, value) for value in node.inputs.values())
                others = choices.listed([name for name in read if name in differ] or ["input"])
                notes.append(
                    f"node {row.node} {row.operator} is right, since it gave what the right run gives: it read another "
                    f"{others} than was dumped, which was changed later, or on the way to the file"
                )
        return notes


def resized(model: Model, recorded: Buffers, row: Row, right: PackedBuffer | None) -> Row:
    """The row, which says why if its buffer has the bound's shape; ``right``: what its operator should have written."""
    graph = model.graphs[row.delegate]
    if graph.bound is None:
        return row
    if not row.unfit:
        return _cut(graph, recorded, row, right)
    node = graph.writer(row.node)
    desc = graph.bound.tensors[node.outputs[0]].desc
    if desc is None or recorded.unfit(row.value, desc):
        return row
    shape = "x".join(map(str, desc.shape))
    own = next((resize for other, resize in graph.misshaped() if other is node), None)
    if own is not None:
        cause = f"not resized: it has the bound's shape {shape}{_places(recorded, row, desc, right)}"
        return replace(row, wrong=True, cause=cause)
    if (source := _source(graph, node)) is not None:
        return replace(row, cause=f"the bound's shape: it follows from {source}, which is not resized")
    return row


def _cut(graph: Graph, recorded: Buffers, row: Row, right: PackedBuffer | None) -> Row:
    """The row of a buffer that was dumped with the sizes of the run, though its operator was not resized."""
    if right is None or row.run is None or row.run.same:
        return row
    node = graph.writer(row.node)
    if not any(other is node and resize.keeps for other, resize in graph.misshaped()):
        source = _source(graph, node) if row.wrong and not row.cause else None
        told = f"stale rows: it may have read those of {source}, which is not resized"
        return row if source is None else replace(row, cause=told)
    bound = graph.root.tensors[node.outputs[0]].desc
    if bound is None or not bound.is_int8:
        return row
    raw = recorded.beside(row.value, right)
    inside = tuple(slice(size) for size in right.desc.shape)
    places = offsets(bound).reshape(bound.shape)[inside]
    held = places < raw.size
    if (raw.view(np.int8)[places[held]] != right.unpack()[held]).any():
        return row
    shape, count = "x".join(map(str, bound.shape)), counted(int(held.sum()), "element")
    cause = (
        f"not resized: {count} lie right, where the bound's shape {shape} has them; all others are stale rows"
    )
    return replace(row, wrong=True, cause=cause)


def _places(recorded: Buffers, row: Row, desc: TensorDesc, right: PackedBuffer | None) -> str:
    """Whether the right elements lie where the bound has them, and how many stale ones lie beside them."""
    if right is None or not desc.is_int8:
        return ""
    held = dumped(recorded, row.value, PackedBuffer(desc)).unpack()
    inside = held[tuple(slice(size) for size in right.desc.shape)]
    wrong = int(np.count_nonzero(inside != right.unpack()))
    stale = counted(held.size - inside.size, "other element")
    if wrong:
        return f"; {wrong} of {counted(inside.size, 'element')} differ, and {stale} are stale rows"
    return f"; all {counted(inside.size, 'element')} lie right, where the bound has them, and {stale} are stale rows"


def _source(graph: Graph, node: Node) -> Node | None:
    """The first operator before a node, on a way to it, that upstream does not resize."""
    wrong = {id(other) for other, resize in graph.misshaped() if not resize.stops}
    makers = {value: other for other in graph.nodes for value in other.outputs}
    seen, waiting = set(), [node]
    found: list[Node] = []
    while waiting:
        for value in waiting.pop().reads:
            before = makers.get(value)
            if before is not None and id(before) not in seen:
                seen.add(id(before))
                waiting.append(before)
                found += [before] if id(before) in wrong else []
    return min(found, key=lambda one: one.number, default=None)
