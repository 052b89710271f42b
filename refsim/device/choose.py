"""Which values of a model an unchanged runtime could hand out, and why it could not hand out the others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from refsim.core import choices
from refsim.core.dtypes import BY_DELEGATE_CODE
from refsim.core.errors import GraphError, ParameterError
from refsim.core.layout import BY_SCHEMA_VALUE, CHANNELS_PACKED_INT8, WIDTH_PACKED, Layout
from refsim.core.tensor import TensorDesc
from refsim.exec.model import Model
from refsim.formats.dumps import value_name
from refsim.formats.pte import schema as program
from refsim.formats.pte.edit import ProgramEditor
from refsim.formats.vkgraph.edit import PREPACK
from refsim.formats.vkgraph.read import Blob
from refsim.formats.vkgraph.schema import UNSET_DATATYPE, VkTensor
from refsim.graph.graph import Graph, Node, Tensor
from refsim.graph.memory import BOUND_TWICE, prepacked
from refsim.graph.values import flat

#: Why a packed value has no words.
NO_WORDS = f"{PREPACK} writes it, and where words share such memory, loading aborts with {BOUND_TWICE}"
#: Dtypes that a delegate hands out without a conversion.
_HANDED = ("float32", "int32")


@dataclass(frozen=True)
class Exposable:
    """A value of a delegate. ``writer`` is the node that writes it, None for an input of the delegate.

    ``written``: the position in the chain of the operator that writes it, -1 for an input; ``readers``: of those that
    read it. ``given``: the output of the program that it is
    already. ``reason``: why it cannot be handed out, if it cannot.
    """

    delegate: int
    value: int
    tensor: Tensor
    writer: Node | None
    written: int
    readers: tuple[int, ...]
    is_output: bool = False
    given: int | None = None
    prepacked: bool = False
    layouts: tuple[Layout, ...] = ()
    reason: str = ""

    @property
    def name(self) -> str:
        return value_name(self.delegate, self.value)

    @property
    def packed(self) -> TensorDesc | None:
        """Its buffer, if it is int8 in a packed layout."""
        desc = self.tensor.desc
        return desc if desc is not None and desc.is_int8 else None

    @property
    def has_words(self) -> bool:
        """Whether the runtime loads a file that hands out its bytes as words, if it is packed."""
        return self.packed is None or not self.prepacked

    @property
    def most_bytes(self) -> int:
        """Bytes of a packed value in the largest layout that the runtime may choose."""
        desc = self.packed
        assert desc is not None
        return max(TensorDesc(desc.shape, row).nbytes for row in (desc.layout, *self.layouts))


def check(model: Model) -> ProgramEditor:
    """An editor of the model's program; GraphError if no value of this file can be handed out, with the reason."""
    if model.container is None or model.plan is None:
        raise GraphError(
            model.path, "a bare delegate has no program whose outputs could grow", need="a .pte file"
        )
    if not model.graphs:
        raise GraphError(model.path, "has no Vulkan delegate", need="a delegate with values to hand out")
    editor = ProgramEditor(model.container)
    plan = model.plan
    for number, step in enumerate(plan.chains[0].instructions):
        if isinstance(step, program.JumpFalseCall):
            place = f"{model.path}: instruction {number}"
            raise GraphError(place, "control flow: a delegate may not run at all", got="JumpFalseCall")
    for number in model.graphs:
        _, call = editor.call_of(number)
        for argument in call.args:
            held = plan.values[argument]
            if isinstance(held, program.Tensor) and held.shape_dynamism:
                place = f"{model.path}: delegate {number}"
                shapes = (f"in{n}={','.join(map(str, row.sizes)) or 1}" for n, row in enumerate(model.border))
                need = f"--shape {choices.listed(shapes)}"
                raise GraphError(
                    place,
                    "dynamic shapes: the sizes of buffers have to be known",
                    got=f"value {argument}",
                    need=f"the shape of a run, such as {need}",
                )
    return editor


def candidates(model: Model) -> list[Exposable]:
    """Every value that an operator of a delegate writes, and every input that the program does not get from outside.

    They are in execution order. GraphError for a delegate of which nothing can be handed out.
    """
    assert model.container is not None and model.plan is not None
    found: list[Exposable] = []
    blobs = dict(model.container.blobs(model.plan))
    for number, graph in model.graphs.items():
        _check_border(blobs[number], graph, f"{model.path}: delegate {number}")
        found += _of_delegate(model, number, graph, blobs[number])
    return found


def _check_border(blob: Blob, graph: Graph, where: str) -> None:
    for what, ids in (("input", graph.inputs), ("output", graph.outputs)):
        for value in ids:
            held = blob.graph.values[value]
            row = BY_SCHEMA_VALUE.get(held.memory_layout) if isinstance(held, VkTensor) else None
            if row is not None and row.packed_int8:
                raise GraphError(
                    where, f"a packed int8 {what}: the runtime stages a quarter of its bytes and fails",
                    got=f"value {value}, {graph.tensors[value].desc}", need="float at the border",
                )  # fmt: skip


def _of_delegate(model: Model, number: int, graph: Graph, blob: Blob) -> Iterator[Exposable]:
    assert model.plan is not None
    plan = model.plan
    where = f"{model.path}: delegate {number}"
    steps = (s for c in plan.chains[:1] for s in c.instructions if isinstance(s, program.DelegateCall))
    call = next((step for step in steps if step.delegate_index == number), None)
    if call is None:
        raise GraphError(where, "is never called", need="a call in the first chain")
    packed = prepacked(blob.graph)
    border = (*graph.inputs, *graph.outputs)
    if len(call.args) != len(border):
        raise GraphError(where, "wrong number of arguments", got=len(call.args), need=len(border))
    arguments = dict(zip(border, call.args, strict=True))
    readers: dict[int, list[int]] = {}
    written = dict.fromkeys(graph.inputs, -1)
    for at, operator in enumerate(blob.graph.chain):
        for value in dict.fromkeys(flat(blob.graph, operator.args[:-1])):
            readers.setdefault(value, []).append(at)
        written |= dict.fromkeys(flat(blob.graph, operator.args[-1:]), at)
    writers: list[tuple[Node | None, int]] = [
        (None, value) for value in graph.inputs if arguments[value] not in plan.inputs
    ]
    writers += [(node, value) for node in graph.nodes for value in node.outputs]
    for node, value in writers:
        tensor = graph.tensors[value]
        held = blob.graph.values[value]
        assert isinstance(held, VkTensor)
        is_output = node is not None and value in graph.outputs
        given = (
            plan.outputs.index(arguments[value]) if is_output and arguments[value] in plan.outputs else None
        )
        row = BY_SCHEMA_VALUE.get(held.memory_layout)
        yield Exposable(
            number, value, tensor, node, written[value], tuple(readers.get(value, ())), is_output, given,
            value in packed,
            CHANNELS_PACKED_INT8 if row is not None and row.is_dynamic else (),
            _reason(held),
        )  # fmt: skip


def _reason(held: VkTensor) -> str:
    dtype = BY_DELEGATE_CODE[held.datatype].name
    if dtype == "int8":
        row = BY_SCHEMA_VALUE.get(held.memory_layout, WIDTH_PACKED)
        return "" if row.packed_int8 else f"int8 in the layout {row.name}, which is not packed"
    if dtype not in _HANDED:
        return f"{dtype}: a delegate hands out float32 and int32, and packed int8"
    if held.staging_datatype not in (UNSET_DATATYPE, held.datatype):
        return f"{dtype} staged as {BY_DELEGATE_CODE[held.staging_datatype].name}"
    return ""


def expression(option: str, text: str) -> re.Pattern[str]:
    """A regular expression that chooses values; ParameterError for a text that is none."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ParameterError(option, "not a regular expression", got=repr(text), need=error) from error


def select(found: list[Exposable], patterns: tuple[str, ...]) -> tuple[list[Exposable], Mapping[str, str]]:
    """The values to hand out, and the reason of each that is left out.

    Without patterns all values are meant that can be handed out. With patterns, regular expressions over the value's
    and its operator's name, GraphError names a value that was asked for and cannot be had.
    """
    if not patterns:
        return [c for c in found if not c.reason], {c.name: c.reason for c in found if c.reason}
    compiled = [expression("--value", pattern) for pattern in patterns]
    chosen: dict[str, Exposable] = {}
    for pattern, regex in zip(patterns, compiled, strict=True):
        named = [c for c in found if regex.search(c.name) or (c.writer and regex.search(c.writer.name))]
        if not named:
            few = choices.first([c.name for c in found])
            names = [c.name for c in found] + [c.writer.name for c in found if c.writer]
            need = f"a name such as {few}{choices.meant(pattern, names)}"
            raise GraphError("--value", "no such value", got=repr(pattern), need=need)
        for c in named:
            if c.reason:
                raise GraphError(f"--value: {c.name}", "cannot be handed out", got=c.reason)
            chosen[c.name] = c
    return [c for c in found if c.name in chosen], {}
