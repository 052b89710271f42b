"""Which cases of the corpus go into programs for a device: of every operator and every combination of layouts.

Only operators that a serialized graph can name and that read or write packed int8 are chosen. Within an operator the
cases are spread over the corpus, so that sizes, data styles, zero points, activations and biases all occur. Beside them
stand the cases that have shown a seeded bug before, and a few large ones, with several workgroups along each axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from math import prod

from refsim.core import choices
from refsim.core.errors import ParameterError
from refsim.core.layout import layout
from refsim.golden.rules import RULES, TELLING, case, case_name
from refsim.ops.base.arg import Kind
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import OpSpec

#: How many cases of an operator are taken, and for how many bytes of tensors and constants.
CASES, BYTES = 170, 640_000
SMALL_BYTES, LARGE_BYTES = 6_000, 160_000
LARGE_CASES = 6
# neither shares a factor with the number of slots, so that all are reached, and by each combination in another order
_STEP, _TURN = 37, 7


class Size(Enum):
    """Which cases are meant: those whose data is small, the large ones, or both."""

    SMALL = "small"
    LARGE = "large"
    ALL = "all"


@dataclass(frozen=True)
class NumberedCase:
    """A case of the corpus with its number."""

    case: Case
    number: int

    @property
    def name(self) -> str:
        return case_name(self.case.op, self.number)


def exportable() -> tuple[str, ...]:
    """The operators with a packed int8 tensor that a serialized graph can name and that have one output."""
    return tuple(
        sorted(name for name, op in OPS.items() if op.serialized and not op.siblings and _packed(op))
    )


def _packed(op: OpSpec) -> bool:
    tensors = (*op.of_kind(Kind.INPUT), op.output)
    plain = any(arg.plain for arg in tensors)  # graphs keep these in no packed layout
    return not plain and any(row.packed_int8 for arg in tensors for row in arg.layouts)


def choose(
    operators: Sequence[str] = (), layouts: Sequence[str] = (), size: Size = Size.ALL
) -> Iterator[NumberedCase]:
    """The cases to export, by operator and number; all operators if none is named.

    ``layouts``: only cases in which a tensor has one of these. ParameterError for an operator that cannot be exported,
    LayoutError for an unknown layout.
    """
    known = exportable()
    if unknown := [name for name in operators if name not in known]:
        raise ParameterError(
            "golden export",
            "not an operator of a graph with packed int8 (refsim golden export --help lists all)",
            got=unknown[0],
            need=choices.need(unknown[0], known),
        )
    wanted = {str(layout(name)) for name in layouts}
    for op in operators or known:
        for number in sorted(_numbers(op)):
            one = case(op, number)
            used = _layouts(one)
            if wanted and not wanted & used:
                continue
            if size is not Size.ALL and (nbytes_of(bind(one)) > SMALL_BYTES) is (size is Size.SMALL):
                continue
            yield NumberedCase(one, number)


def layouts_of(operators: Sequence[str]) -> list[str]:
    """The layouts that tensors of these operators have, in all cases that are exported."""
    return sorted(
        {name for op in operators for number in _numbers(op) for name in _layouts(case(op, number))}
    )


def _layouts(one: Case) -> set[str]:
    return {one.out_layout, *(row for _, row in one.inputs.values())}


@cache
def _numbers(op: str) -> frozenset[int]:
    """The numbers that are chosen of an operator: telling ones, then a spread within the limits."""
    found = set(TELLING[op])
    combinations, count = len(OPS[op].layouts), RULES[op].spread
    slots = count // combinations
    total = large = 0
    for place in range(slots):
        for combination in range(combinations):
            number = (5 + _STEP * place + _TURN * combination) % slots * combinations + combination
            if len(found) >= CASES:
                return frozenset(found)
            one = case(op, number)
            elements = sum(
                prod(shape) for shape, _ in one.inputs.values()
            )  # a quick look, before they are drawn
            if number in found or elements > LARGE_BYTES:
                continue
            nbytes = nbytes_of(bind(one))
            is_large = nbytes > SMALL_BYTES
            if nbytes > LARGE_BYTES or (is_large and large == LARGE_CASES) or total + nbytes > BYTES:
                continue
            total += nbytes
            large += is_large
            found.add(number)
    return frozenset(found)


def nbytes_of(bound: BoundCase) -> int:
    """Bytes of a case in a file and in its outputs: inputs, constants, output."""
    consts = [bound.call.consts[arg.name] for arg in bound.call.op.of_kind(Kind.CONST)]
    stored = sum(buffer.desc.nbytes for buffer in bound.inputs.values())
    return stored + sum(value.nbytes for value in consts if value is not None) + bound.call.out.nbytes
