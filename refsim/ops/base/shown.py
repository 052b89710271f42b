"""What a case calls: for golden show, and inspect of a case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from refsim.core.counted import counted
from refsim.core.meanings import DtypeName, OperatorName
from refsim.core.result import Command, Result, Text, shape_text
from refsim.ops.base.arg import Kind
from refsim.ops.base.binding import BoundCase
from refsim.ops.base.case import as_text


@dataclass(frozen=True)
class CaseArgument:
    """An argument of a case."""

    name: Annotated[str, "Name of the argument."]
    shape: Annotated[Sequence[int], "The sizes, outermost dim first."]


@dataclass(frozen=True)
class CaseTensor(CaseArgument):
    """An input or the output of a case."""

    layout: Annotated[str, "Short name of the layout."]
    bytes: Annotated[int, "Size in bytes, with padding."]


@dataclass(frozen=True)
class CaseConstant(CaseArgument):
    """A weight, or what else is known before the run."""

    dtype: DtypeName


@dataclass(frozen=True)
class CaseData:
    """From what the data is drawn."""

    seed: Annotated[int, "Seed of the data."]
    style: Annotated[str, "Kind of the data."]
    poison: Annotated[bool, "Whether padding of the inputs holds random bytes."]


@dataclass(frozen=True)
class CaseCall:
    """What a case calls."""

    operator: OperatorName
    configuration: Annotated[str, "Shapes, layouts and parameters in one line."]
    tensors: Annotated[Sequence[CaseTensor], "The inputs and the output."]
    constants: Annotated[Sequence[CaseConstant], "Weights and what else is known before the run."]
    parameters: Annotated[Mapping[str, str], "Parameters by name."]
    data: Annotated[CaseData, "From what the data is drawn."]


@dataclass(frozen=True)
class ShownCase(Result):
    """A case, and what it calls."""

    file: Annotated[str, "The case, as it was named."]
    call: Annotated[CaseCall, "What it calls."]

    @classmethod
    def of(cls, name: str, bound: BoundCase) -> ShownCase:
        call, case = bound.call, bound.case
        held = {arg.name: getattr(call.params, arg.name, None) for arg in call.op.of_kind(Kind.PARAM)}
        return cls(
            name,
            CaseCall(
                call.op.name,
                case.configuration,
                [CaseTensor(n, d.shape, d.layout.short_name, d.nbytes) for n, d in call.tensors.items()],
                [CaseConstant(n, a.shape, str(a.dtype)) for n, a in call.consts.items() if a is not None],
                {key: as_text(value) for key, value in held.items() if value is not None},
                CaseData(case.seed, case.style, case.poison),
            ),
        )

    def text(self) -> Text:
        call = self.call
        yield f"{self.file}: {call.operator}"
        for one in call.tensors:
            yield f"  {one.name}: {shape_text(one.shape)} {one.layout}, {counted(one.bytes, 'byte')}"
        for const in call.constants:
            yield f"  {const.name}: {shape_text(const.shape)} {const.dtype}"
        yield from (f"  {key}: {value}" for key, value in call.parameters.items())
        yield f"  data: {', '.join(f'{key} {value}' for key, value in vars(call.data).items())}"
        yield Command(f"run it: refsim replay {self.file}")
