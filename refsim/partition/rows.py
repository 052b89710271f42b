"""The rows of what `refsim lower` says: operators that were fused and checked, changes of layouts, delegates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from refsim.core.meanings import DelegateNumber, Elements, OperatorName


@dataclass(frozen=True)
class FusedOperator:
    """A quantized operator, fused of nodes of torch.

    Where nothing quantizes its result, ``quantize`` is the last of ``replaced``.
    """

    operator: OperatorName
    node: Annotated[str, "Its name in the program."]
    anchor: Annotated[str, "The node that it is about."]
    replaced: Annotated[Sequence[str], "The nodes that it replaces."]
    quantize: Annotated[str, "The node that quantizes its output."]
    dequantizes: Annotated[Sequence[str], "The nodes that dequantize its inputs."]
    notes: Annotated[Sequence[str], "What there is to say about it."] = ()
    sources: Annotated[Sequence[str], "The nodes whose values it reads."] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """Every node that is gone, once."""
        return tuple(dict.fromkeys((*self.replaced, self.quantize)))

    def cells(self) -> tuple[object, ...]:
        return (self.node, self.operator, "; ".join((" ".join(self.parts), *self.notes)))


@dataclass(frozen=True)
class LayoutChange:
    """A value that an operator needs in another layout."""

    source: Annotated[str, "The value's name."]
    before: Annotated[str, "Its layout."]
    after: Annotated[str, "The layout that is needed."]
    forced_by: Annotated[str, "The node that needs it."]
    operator: Annotated[str, "Name of that operator."]
    argument: Annotated[int, "Which argument of it the value is."]
    clone: Annotated[str, "The clone that is put between."]
    reused: Annotated[bool, "Whether another operator needed that clone already."]


@dataclass(frozen=True)
class DelegateReport:
    """A delegate of the lowered program."""

    delegate: DelegateNumber
    inputs: Annotated[Sequence[str], "Names of its inputs."]
    outputs: Annotated[Sequence[str], "Names of its outputs."]
    fused: Annotated[Sequence[FusedOperator], "Its quantized operators."]
    clones: Annotated[Sequence[LayoutChange], "What is needed in another layout."]
    statistics: Annotated[Mapping[str, int], "Counts: operators, dispatches, transitions, clones, bytes."]


@dataclass(frozen=True)
class CheckedOperator:
    """An operator beside the nodes of torch that it replaces."""

    delegate: DelegateNumber
    node: Annotated[str, "Its name in the program."]
    operator: OperatorName
    elements: Elements
    steps: Annotated[Mapping[str, int], "Elements by distance in quantization steps."]
    worst: Annotated[int, "The most steps."]
    allowed: Annotated[int, "How many steps are allowed."]
    by_draw: Annotated[Mapping[str, int], "The most steps by kind of input."]

    @property
    def wrong(self) -> bool:
        return self.worst > self.allowed

    def cells(self) -> tuple[object, ...]:
        none, one = self.steps.get("0", 0), self.steps.get("1", 0)
        counts = (self.elements, none, one, self.elements - none - one, self.worst)
        return (self.delegate, self.node, self.operator, *counts)
