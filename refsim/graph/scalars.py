"""Store each scalar of a file with the type that a runtime reads which does not look at types.

ET-VK's runtime reads integers and doubles alike, so that a mended file gives the same bits there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from refsim.core.errors import GraphError
from refsim.core.meanings import DelegateNumber, OperatorName
from refsim.core.plain import Column
from refsim.formats.literals import Double, Int
from refsim.formats.pte.read import Pte, kind_of, read_pte, unknown
from refsim.formats.pte.schema import DELEGATE_SEGMENT
from refsim.formats.pte.write import write_pte
from refsim.formats.vkgraph.read import Blob, read_blob
from refsim.formats.vkgraph.schema import Value, VkGraph
from refsim.formats.vkgraph.write import write_blob
from refsim.ops.flat.call import FLAT

#: Letter of a signature -> the value that it wants.
_KINDS: dict[str, type[Double] | type[Int]] = {"d": Double, "i": Int}


@dataclass(frozen=True)
class Mended:
    """A scalar that was stored anew: an argument of a call in the chain of a delegate."""

    delegate: Annotated[DelegateNumber, Column(drop=1)]
    step: Annotated[int, "Place of the call in the delegate's chain.", Column()]
    operator: Annotated[OperatorName, Column()]
    argument: Annotated[str, "Name of the argument.", Column()]
    was: Annotated[str, "The scalar as it was stored.", Column()]
    now: Annotated[str, "The scalar as it is stored now.", Column()]


def mended(data: bytes | memoryview, name: str) -> tuple[bytes, list[Mended]]:
    """A .pte or a delegate blob whose scalars have their own types, and which were stored anew.

    Raises FormatError or LimitError for a file that cannot be read, GraphError for one with fields that would be lost.
    """
    kind = kind_of(data)
    if kind == "blob":
        return _blob(read_blob(data, name), name, 0)
    if kind != "pte":
        raise unknown(data, name)
    return _program(read_pte(data, name))


def _program(pte: Pte) -> tuple[bytes, list[Mended]]:
    segments: list[memoryview | bytes] = list(pte.segments)
    found: list[Mended] = []
    for plan in pte.program.plans:
        for number, blob in pte.blobs(plan):
            made, rows = _blob(blob, f"{pte.where}: delegate {number}", number)
            place = plan.delegates[number].processed
            if rows and (place is None or place.location != DELEGATE_SEGMENT):
                raise GraphError(f"{pte.where}: delegate {number}", "not in a segment")
            if rows and place is not None:
                segments[place.index] = made
                found += rows
    return write_pte(pte.program, segments), found


def _blob(blob: Blob, where: str, number: int) -> tuple[bytes, list[Mended]]:
    if lost := blob.unread(where):
        raise GraphError(where, "has fields that would be lost in another file", got=", ".join(lost))
    graph, rows = _graph(blob.graph, number)
    return write_blob(graph, blob.constants.raw, where), rows


def _graph(graph: VkGraph, number: int) -> tuple[VkGraph, list[Mended]]:
    values: list[Value] = list(graph.values)
    made: dict[tuple[type, float], int] = {}
    found: list[Mended] = []
    chain = []
    for step, call in enumerate(graph.chain):
        args = list(call.args)
        row = FLAT.get(call.name)
        for at, (name, kind) in enumerate(row.takes[: len(args) - 1] if row is not None else ()):
            held, wanted = values[args[at]], _KINDS.get(kind)
            if wanted is None or not isinstance(held, Int | Double) or isinstance(held, wanted):
                continue
            if held.value != int(held.value):
                continue  # no integer: nothing can stand for it
            now = wanted(float(held.value)) if wanted is Double else wanted(int(held.value))
            key = (wanted, held.value)
            if key not in made:
                made[key] = len(values)
                values.append(now)
            args[at] = made[key]
            found.append(Mended(number, step, call.name, name, repr(held.value), repr(now.value)))
        chain.append(replace(call, args=tuple(args)))
    return replace(graph, values=tuple(values), chain=tuple(chain)), found
