"""A program of some of the operators of another: delegates and plain kernels with no more than what these need.

What a part reads and does not write becomes an input, and what it writes and nobody reads an output. Runtimes neither
take nor give packed int8 tensors, so such an input of a delegate is quantized from floats, and such an output
dequantized.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from refsim.core.dtypes import BY_DELEGATE_CODE
from refsim.core.errors import GraphError
from refsim.core.layout import BY_SCHEMA_VALUE
from refsim.exec.instructions import PlainKernel, one_chain
from refsim.formats.pte.edit import no_constants, placed, planned
from refsim.formats.pte.read import VULKAN_ID, Pte
from refsim.formats.pte.schema import (
    DELEGATE_SEGMENT,
    Chain,
    Delegate,
    DelegateCall,
    DelegateData,
    EValue,
    Instruction,
    IntIdList,
    KernelCall,
    MoveCall,
    NamedData,
    OptionalTensorList,
    Plan,
    Tensor,
    TensorList,
)
from refsim.formats.pte.write import write_pte
from refsim.formats.vkgraph.edit import PREPACK, GraphEditor
from refsim.formats.vkgraph.read import Blob, read_blob
from refsim.formats.vkgraph.schema import OperatorCall, SymInt, ValueList, VkGraph, VkTensor
from refsim.formats.vkgraph.write import compacted
from refsim.graph.memory import overlapping
from refsim.graph.shapes import SYMBOLS
from refsim.graph.values import flat
from refsim.ops.base.registry import OPS
from refsim.ops.base.traits import Family

_LISTS = (IntIdList, TensorList, OptionalTensorList)


@dataclass(frozen=True, order=True)
class Part:
    """An operator of a program: an instruction, and of a call of a delegate the place in its chain; -1 of a kernel."""

    instruction: int
    operator: int = -1


def parts(pte: Pte) -> list[Part]:
    """The operators of a program in their order. GraphError for a program that cannot be cut."""
    plan = pte.plan()
    one_chain(plan, f"{pte.where}: {plan.name}")
    if lost := pte.unread():
        raise GraphError(pte.where, "has fields that would be lost in another file", got=", ".join(lost))
    blobs = dict(pte.blobs(plan))
    found = []
    for at, step in enumerate(plan.chains[0].instructions):
        place = f"{pte.where}: instruction {at}"
        if isinstance(step, DelegateCall):
            if step.delegate_index not in blobs:
                got = plan.delegates[step.delegate_index].id
                raise GraphError(place, "not a Vulkan delegate", got=got, need=VULKAN_ID)
            found += [Part(at, operator) for operator in operators(blobs[step.delegate_index].graph)]
        elif isinstance(step, KernelCall | MoveCall):
            found.append(Part(at))
    return found


def program_of(pte: Pte, kept: Collection[Part], merged: bool = False) -> bytes:
    """The program of these operators alone; what they read and do not write are its inputs. ``merged``: see `cut`.

    RefsimError where they make no program.
    """
    plan, blobs = pte.plan(), dict(pte.blobs(pte.plan()))
    writer = _Writer(pte, plan)
    for at, step in enumerate(plan.chains[0].instructions):
        mine = {part.operator for part in kept if part.instruction == at}
        if isinstance(step, DelegateCall) and mine:
            where = f"{pte.where}: delegate {step.delegate_index}"
            writer.delegate(step, cut(blobs[step.delegate_index], mine, merged, where))
        elif mine:
            writer.step(step, f"{pte.where}: instruction {at}")
    return writer.pte()


@dataclass
class Flow:
    """What steps read before one of them writes it, what they read, and what they write, in order."""

    missing: dict[int, None] = field(default_factory=dict)
    read: set[int] = field(default_factory=set)
    written: dict[int, None] = field(default_factory=dict)

    def step(self, reads: Iterable[int], writes: Iterable[int]) -> None:
        for number in reads:
            self.read.add(number)
            if number not in self.written:
                self.missing.setdefault(number)
        self.written |= dict.fromkeys(writes)


class _Writer:
    """A plan that instructions are appended to. Ids are those of the source, with new values behind them."""

    def __init__(self, pte: Pte, plan: Plan) -> None:
        self.source, self.plan = pte, plan
        self.values: list[EValue] = list(plan.values)
        self.steps: list[Instruction] = []
        self.delegates: list[Delegate] = []
        self.blobs: list[bytes] = []
        self.flow = Flow()
        self._dynamic = max((v.shape_dynamism for v in plan.values if isinstance(v, Tensor)), default=0)

    def delegate(self, step: DelegateCall, piece: Piece) -> None:
        reads = [self._value(step, port) for port in piece.inputs]
        writes = [self._value(step, port) for port in piece.outputs]
        self.flow.step(self._flat(reads), writes)
        self.steps.append(DelegateCall(len(self.delegates), (*reads, *writes)))
        data = DelegateData(DELEGATE_SEGMENT, len(self.blobs))
        self.delegates.append(replace(self.plan.delegates[step.delegate_index], processed=data))
        self.blobs.append(piece.blob)

    def step(self, step: Instruction, where: str) -> None:
        if isinstance(step, KernelCall):
            kernel = PlainKernel(self.plan, step, where)
            self.flow.step(self._flat(kernel.given), kernel.outputs)
        elif isinstance(step, MoveCall):
            self.flow.step(self._flat((step.move_from,)), (step.move_to,))
        self.steps.append(step)

    def pte(self) -> bytes:
        """The file: values, operators and data that nothing uses are left out, and tensors get new places."""
        flow = self.flow
        opened = {n for n, v in enumerate(self.values) if isinstance(v, Tensor) and not v.is_constant}
        inputs = [n for n in self.plan.inputs if n in flow.missing]
        inputs += [n for n in flow.missing if n not in inputs and n in opened]
        given = [n for n in flow.written if isinstance(self.values[n], Tensor)]
        outputs = [n for n in self.plan.outputs if n in given]
        outputs += [n for n in given if n not in outputs and n not in flow.read]
        if not outputs:
            raise GraphError(self.source.where, "has no operator left that gives something")
        used = sorted(set(self._flat([*inputs, *outputs, *(a for s in self.steps for a in _ids(s))])))
        ids = {-1: -1, **{old: new for new, old in enumerate(used)}}
        called = dict.fromkeys(s.op_index for s in self.steps if isinstance(s, KernelCall))
        names = {number: at for at, number in enumerate(called)}
        arena = 0
        values: list[EValue] = []
        for number in used:
            held = self.values[number]
            if isinstance(held, Tensor) and number in opened:
                place, arena = placed(held, arena)
                held = replace(held, allocation=place)
            elif isinstance(held, _LISTS):
                held = replace(held, items=tuple(ids[item] for item in held.items))
            values.append(held)
        plan = replace(
            self.plan,
            values=tuple(values),
            inputs=tuple(ids[n] for n in inputs),
            outputs=tuple(ids[n] for n in outputs),
            chains=(Chain((), (), tuple(_with_ids(s, ids, names) for s in self.steps)),),
            operators=tuple(self.plan.operators[number] for number in names),
            delegates=tuple(self.delegates),
            arena_sizes=(0, arena),
            container=None,
        )
        return self._file(plan)

    def _file(self, plan: Plan) -> bytes:
        program = self.source.program
        segments: list[memoryview | bytes] = list(self.blobs)
        stored, mutable = program.constant_segment, []
        if stored is not None and any(isinstance(v, Tensor) and v.data_index for v in plan.values):
            segments.append(self.source.segments[stored.segment_index])
            stored = replace(stored, segment_index=len(segments) - 1)
        elif stored is not None or not program.constant_buffers:
            stored = no_constants(segments)
        for row in program.mutable_segments:
            segments.append(self.source.segments[row.segment_index])
            mutable.append(replace(row, segment_index=len(segments) - 1))
        named = []
        for key in dict.fromkeys(
            row.named_key for blob in self.blobs for row in read_blob(blob).graph.constants
        ):
            if key in self.source.named_data:
                segments.append(self.source.named_data[key])
                named.append(NamedData(key, len(segments) - 1))
        made = replace(
            program,
            plans=(plan,),
            inline_delegates=(),
            constant_segment=stored,
            mutable_segments=tuple(mutable),
            named_data=tuple(named),
        )
        return write_pte(made, segments)

    def _value(self, step: DelegateCall, port: Port) -> int:
        """The plan's value for a tensor at the border of a delegate."""
        if port.place is not None:
            return step.args[port.place]
        tensor, _ = planned(port.dtype, port.sizes, 0)
        self.values.append(replace(tensor, shape_dynamism=self._dynamic))
        return len(self.values) - 1

    def _flat(self, ids: Iterable[int]) -> Iterator[int]:
        """These values, and what lists among them hold."""
        for number in ids:
            if number >= 0:
                yield number
                held = self.values[number]
                yield from self._flat(held.items) if isinstance(held, _LISTS) else ()


def _ids(step: Instruction) -> tuple[int, ...]:
    if isinstance(step, MoveCall):
        return (step.move_from, step.move_to)
    assert isinstance(step, KernelCall | DelegateCall)
    return step.args


def _with_ids(step: Instruction, ids: dict[int, int], names: dict[int, int]) -> Instruction:
    if isinstance(step, MoveCall):
        return MoveCall(ids[step.move_from], ids[step.move_to])
    assert isinstance(step, KernelCall | DelegateCall)
    changed = replace(step, args=tuple(ids[a] for a in step.args))
    return replace(changed, op_index=names[changed.op_index]) if isinstance(changed, KernelCall) else changed


QUANTIZE, DEQUANTIZE = (
    next(op.serialized for op in OPS.values() if op.family is family)
    for family in (Family.QUANTIZE, Family.DEQUANTIZE)
)
#: Brings the inputs that `Model.random_inputs` draws, from -1 to 1, to all values of int8.
SCALE = 1 / 128
_BYTES = (SCALE, 0, -128, 127)
#: What goes with operators that need it, and is none that a reader would count.
_HELPERS = {PREPACK, *SYMBOLS}


@dataclass(frozen=True)
class Port:
    """A tensor at the border. ``place``: its place among the arguments of the whole delegate; None for a new one."""

    place: int | None
    dtype: str
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """A delegate that was cut out, and its border."""

    blob: bytes
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def operators(graph: VkGraph) -> list[int]:
    """The places of the operators in the chain, without those that only bring constants and sizes to others."""
    return [number for number, call in enumerate(graph.chain) if call.name not in _HELPERS]


def cut(blob: Blob, kept: Collection[int], merged: bool, where: str) -> Piece:
    """These operators of a delegate, by their places in the chain.

    ``merged``: new packed inputs of equal dims become one. Tensors share memory as they did, but for those that
    would now be needed at the same time. GraphError for a part that gives nothing.
    """
    graph = blob.graph
    chain = _with_helpers(graph, kept)
    flow, whole = _flow(graph, chain), _flow(graph, graph.chain)
    own = [n for n in graph.input_ids if n in flow.missing]
    bare = replace(graph, chain=tuple(chain), input_ids=(), output_ids=())
    editor = GraphEditor(replace(blob, graph=bare), where)
    same: dict[int, int] = {}
    first: dict[tuple[int, ...], int] = {}
    inputs = [_port(graph, n, graph.input_ids.index(n)) for n in own]
    for number in own:
        editor.input(number)
    for number in (n for n in flow.missing if n not in own):
        held = graph.values[number]
        if not isinstance(held, VkTensor):
            raise GraphError(f"{where}: value {number}", "is computed by an operator that was left out")
        if not _packed(held):
            inputs.append(_port(graph, number, None))
            editor.input(number)
        elif merged and first.setdefault(held.dims, number) != number:
            same[number] = first[held.dims]
        else:
            floats = editor.tensor("float32", held.dims)
            editor.call(QUANTIZE, floats, *map(editor.literal, (*_BYTES, None)), number, before=0)
            inputs.append(Port(None, "float32", held.dims))
            editor.input(floats)
    outputs = []
    for number in flow.written:
        held = graph.values[number]
        if number in graph.output_ids:
            place = len(graph.input_ids) + graph.output_ids.index(number)
            outputs.append(_port(graph, number, place))
            editor.output(number)
        elif number in whole.read - flow.read and isinstance(held, VkTensor):
            outputs.append(Port(None, "float32", held.dims) if _packed(held) else _port(graph, number, None))
            if _packed(held):
                floats = editor.tensor("float32", held.dims)
                given = map(editor.literal, (*_BYTES, None, None))
                editor.output(editor.call(DEQUANTIZE, number, *given, floats))
            else:
                editor.output(number)
    if not outputs:
        raise GraphError(where, "has no operator left that gives something")
    made = _apart(_with_same(editor.graph(), same), graph)
    return Piece(compacted(Blob(made, blob.constants), where), tuple(inputs), tuple(outputs))


def _with_helpers(graph: VkGraph, kept: Collection[int]) -> list[OperatorCall]:
    """The operators, with those before them that bring constants and sizes to them."""
    wanted: set[int] = set()
    found: list[OperatorCall] = []
    for number in reversed(range(len(graph.chain))):
        call = graph.chain[number]
        helps = call.name in _HELPERS and not wanted.isdisjoint(flat(graph, call.args[-1:]))
        if number in kept or helps:
            found.append(call)
            wanted.update(flat(graph, call.args[:-1]))
    return found[::-1]


def _flow(graph: VkGraph, chain: Collection[OperatorCall]) -> Flow:
    flow = Flow()
    for call in chain:
        flow.step(_computed(graph, call.args[:-1]), _computed(graph, call.args[-1:]))
    return flow


def _computed(graph: VkGraph, ids: tuple[int, ...]) -> Iterator[int]:
    """The tensors without data and the SymInts among values."""
    for number in flat(graph, ids):
        held = graph.values[number]
        if isinstance(held, SymInt) or (isinstance(held, VkTensor) and not held.is_constant):
            yield number


def _packed(held: VkTensor) -> bool:
    row = BY_SCHEMA_VALUE.get(held.memory_layout)
    return row is not None and row.packed_int8 and BY_DELEGATE_CODE[held.datatype].name == "int8"


def _port(graph: VkGraph, number: int, place: int | None) -> Port:
    held = graph.values[number]
    if isinstance(held, VkTensor):
        return Port(place, BY_DELEGATE_CODE[held.datatype].name, held.dims)
    return Port(place, "int64", ())


def _with_same(graph: VkGraph, same: dict[int, int]) -> VkGraph:
    """The graph with values in place of others."""
    if not same:
        return graph

    def swapped(ids: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(same.get(number, number) for number in ids)

    chain = tuple(replace(call, args=(*swapped(call.args[:-1]), call.args[-1])) for call in graph.chain)
    values = tuple(ValueList(swapped(v.items)) if isinstance(v, ValueList) else v for v in graph.values)
    return replace(graph, chain=chain, values=values)


def _apart(graph: VkGraph, source: VkGraph) -> VkGraph:
    """Give memory of its own to what is needed with another of its memory object, unless the source has it so."""
    before = {frozenset(pair) for _, *pair in overlapping(source)}
    while found := next((pair for _, *pair in overlapping(graph) if frozenset(pair) not in before), None):
        number = found[1]
        held = graph.values[number]
        assert isinstance(held, VkTensor)
        values = (*graph.values[:number], replace(held, mem_obj_id=-1), *graph.values[number + 1 :])
        graph = replace(graph, values=values)
    return graph
