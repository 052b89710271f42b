"""How a file would be executed, as a value, and its text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from refsim.check.run import pointer
from refsim.core.counted import counted
from refsim.core.layout import layout
from refsim.core.meanings import DtypeName
from refsim.core.plain import FLAT
from refsim.core.result import Command, Table, Text, shape_text
from refsim.device.opened import OpenedFile
from refsim.graph.describe import DelegateFacts, OperatorFacts, TensorFacts
from refsim.graph.origin import Origins

COLUMNS = ("node", "operator", "kernels", "inputs", "output", "shape", "layout", "bytes")
DROP = ("kernels", "inputs", "bytes", "output")


@dataclass(frozen=True)
class InputBound:
    """An input that may be smaller than the file says."""

    input: Annotated[str, "in0, in1 and so on."]
    dtype: DtypeName
    shape: Annotated[Sequence[int], "The largest shape."]


@dataclass(frozen=True, kw_only=True)
class InspectedFile(OpenedFile):
    """How a file would be executed."""

    plan: Annotated[Sequence[str], "The instructions around the delegates, in words."]
    bounds: Annotated[Sequence[InputBound], "The inputs that may be smaller than the file says."]
    delegates: Annotated[Sequence[DelegateFacts], "The delegates."]
    made: Annotated[Origins, FLAT]
    targeted: bool

    def text(self) -> Text:
        if self.targeted:
            yield self.aimed.line()
        yield f"{self.file}: {counted(len(self.delegates), 'Vulkan delegate')}"
        if self.plan:
            yield f"plan: {', '.join(self.plan)}"
        for row in self.bounds:
            yield f"{row.input}: {row.dtype}, up to {shape_text(row.shape)}"
        for one in self.delegates:
            yield ""
            yield from self._delegate(one)
        yield from self.made.summary()
        yield ""
        yield Command(pointer(self.aimed.model.path, self.aimed.runtime))

    def _delegate(self, one: DelegateFacts) -> Iterator[str | Table]:
        given = f"inputs {_values(one.inputs)}" if one.inputs else "no inputs"
        yield f"delegate {one.delegate}: {given}; outputs {_values(one.outputs)}"
        rows = [((one.delegate, operator.node), _cells(operator)) for operator in one.operators]
        yield self.made.table(COLUMNS, rows, DROP)
        for number in self.aimed.model.numbers(one.delegate):
            yield str(number)
        memory, constants = one.memory, one.constants
        yield f"constants: {constants.count}, {counted(constants.bytes, 'byte')}"
        held = f"{counted(memory.bytes, 'byte')} in {counted(memory.objects, 'object')}"
        yield f"memory: {held}; {memory.bytes_unshared} if none were shared"
        yield f"transitions: {len(one.transitions)}"
        for row in one.transitions:
            written = f"{counted(row.bytes, 'byte')} written"
            yield f"  node {row.node} {row.operator}: {change(row.before, row.after)}, {written}"
        for operator in one.operators:
            if operator.note is not None:
                yield f"note: node {operator.node} {operator.operator}: {operator.note}"


def change(before: str | None, after: str | None) -> str:
    """A transition in words."""
    return f"{_short_layout(before)} -> {_short_layout(after)}"


def _cells(operator: OperatorFacts) -> list[object]:
    inputs = " ".join(map(_short, operator.inputs))
    head: list[object] = [operator.node, operator.operator, operator.kernels, inputs]
    if not operator.outputs:
        return [*head, None, None, None, None]
    out = operator.outputs[0]
    return [*head, _short(out.value), shape_text(out.shape), _layout(out), out.bytes]


def _values(tensors: Sequence[TensorFacts]) -> str:
    return ", ".join(f"{_short(t.value)} {t.dtype} {shape_text(t.shape)} {_layout(t)}" for t in tensors)


def _short(value: str) -> str:
    """``v30`` of ``delegate0_v30``: the delegate is in the head line."""
    return value.partition("_")[2]


def _layout(tensor: TensorFacts) -> str:
    """The short name of a tensor's layout; its dtype if it has none."""
    return _short_layout(tensor.layout) if tensor.layout else tensor.dtype


def _short_layout(name: str | None) -> str:
    return str(layout(name)) if name else "no layout"
