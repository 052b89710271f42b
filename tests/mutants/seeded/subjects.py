"""Which operators a bug is seeded for, from what they say about themselves: a new one is chosen without being named."""

from __future__ import annotations

from collections.abc import Iterable

from mutants.tree import CHECKOUT
from refsim.ops.base.arg import Kind
from refsim.ops.base.binding import bind
from refsim.ops.base.spec import OpSpec
from refsim.ops.base.traits import WINDOWED, Family


def routes(ops: Iterable[OpSpec]) -> tuple[OpSpec, ...]:
    """One operator for each way to compute an output from several values: a family, an epilogue, a direction.

    Those that only take part of what another of the same way takes, a single tap or a single row, stand back.
    """
    several = [op for op in ops if op.epilogue is not None or len(op.of_kind(Kind.INPUT)) > 1]
    several.sort(key=lambda op: op.one_tap or op.one_row)
    found: dict[object, OpSpec] = {}
    for op in several:
        found.setdefault((op.family, op.epilogue, op.transposed), op)
    return tuple(found.values())


def epilogues(ops: Iterable[OpSpec]) -> tuple[OpSpec, ...]:
    """One route for each family that has only one epilogue: a family with two has those of others."""
    by_family: dict[Family, list[OpSpec]] = {}
    for op in routes(ops):
        by_family.setdefault(op.family, []).append(op)
    return tuple(found[0] for found in by_family.values() if len({op.epilogue for op in found}) == 1)


def windows(ops: Iterable[OpSpec]) -> tuple[OpSpec, ...]:
    """The routes whose window may reach beyond the image."""
    return tuple(op for op in routes(ops) if op.family in WINDOWED)


def elementwise(ops: Iterable[OpSpec]) -> tuple[OpSpec, ...]:
    """Every operator whose kernel writes its padding itself, word by word."""
    return tuple(op for op in ops if op.family is Family.ELEMENTWISE)


def short(op: OpSpec) -> str:
    """The operator in a mutant's id."""
    return op.name.removeprefix("q8ta_").removeprefix("conv2d_")


def first_kernel(op: OpSpec) -> str:
    """The kernel that reads an operator's input."""
    case = op.cases.example
    return bind(case).call.dispatches()[0].launch.shader


def occurs(file: str, anchor: str) -> bool:
    """Whether a bug can be seeded there: a kernel may be written in another way."""
    path = CHECKOUT / file
    return path.is_file() and path.read_text().count(anchor) == 1
