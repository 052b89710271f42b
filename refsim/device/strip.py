"""The program inside an exposed file: as it was before its values became outputs.

Values and operators were only appended, so taking away the outputs, and every fill, copy and conversion that nobody
reads any more, gives back the operators of the source in their order. Memory objects stay as the exposed file has them.

Two facts prove that an exposed file computes what its source does (`verify`). Without what was appended, the program is
the source: its instructions, operators, values and constants. And each value that one of these operators reads, or that
is an output, is what was last written to its memory. As a third, a run of that program gives the same bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from refsim.core.counted import counted
from refsim.core.errors import FormatError, GraphError
from refsim.device.expose import DEQUANTIZE, Exposed
from refsim.device.manifest import Manifest
from refsim.exec.model import Model, built
from refsim.formats.pte.read import Pte, read_pte
from refsim.formats.pte.schema import DELEGATE_SEGMENT, DelegateCall, Plan
from refsim.formats.pte.write import write_pte
from refsim.formats.vkgraph.edit import CLONE, FULL
from refsim.formats.vkgraph.read import Blob
from refsim.formats.vkgraph.schema import OperatorCall, VkGraph, VkTensor
from refsim.formats.vkgraph.write import write_blob
from refsim.graph.values import flat
from refsim.ops.base.target import Target

_APPENDED = (FULL, CLONE, DEQUANTIZE)


def source(pte: Pte, manifest: Manifest, target: Target | None = None) -> Model:
    """The model that was exposed, ready to run."""
    added, plan = _added(manifest), pte.plan()
    if len(plan.chains) != 1:
        raise FormatError(pte.where, "not an exposed program", got=counted(len(plan.chains), "chain"), need=1)
    segments: list[memoryview | bytes] = list(pte.segments)
    for number, blob in pte.blobs(plan):
        data = plan.delegates[number].processed
        if data is not None and added[number]:
            if data.location != DELEGATE_SEGMENT:
                place = f"{pte.where}: delegate {number}"
                raise FormatError(place, "not in a segment", need="an exposed program")
            graph = without(blob.graph, added[number])
            segments[data.index] = write_blob(graph, blob.constants.raw, pte.where)
    plans = tuple(_plan(p, manifest.own, added) if p is plan else p for p in pte.program.plans)
    return built(read_pte(write_pte(replace(pte.program, plans=plans), segments), pte.where), target)


def _added(manifest: Manifest) -> Counter[int]:
    """How many outputs each delegate got."""
    values = (str(row.value) for row in manifest.outputs[manifest.own :])
    return Counter(int(value.removeprefix("delegate").partition("_")[0]) for value in values)


def without(graph: VkGraph, count: int) -> VkGraph:
    """A graph without its last ``count`` outputs and what was appended for them."""
    outputs = graph.output_ids[: len(graph.output_ids) - count]
    chain = list(graph.chain)
    while True:
        read = {value for call in chain for value in flat(graph, call.args[:-1])} | set(outputs)
        kept = [
            call
            for call in chain
            if call.name not in _APPENDED or not read.isdisjoint(flat(graph, call.args[-1:]))
        ]
        if len(kept) == len(chain):
            return replace(graph, chain=tuple(chain), output_ids=outputs)
        chain = kept


def _plan(plan: Plan, own: int, added: Mapping[int, int]) -> Plan:
    steps = tuple(
        replace(step, args=step.args[: len(step.args) - added.get(step.delegate_index, 0)])
        if isinstance(step, DelegateCall)
        else step
        for step in plan.chains[0].instructions
    )
    return replace(plan, outputs=plan.outputs[:own], chains=(replace(plan.chains[0], instructions=steps),))


SEED = 0


@dataclass(frozen=True)
class Unchanged:
    """What was compared: operators, values and outputs of the source, and the values handed out beside them."""

    operators: Annotated[int, "Operators that are as they were."]
    values: Annotated[int, "Values that are as they were."]
    outputs: Annotated[int, "Outputs with the same bits."]
    handed: Annotated[int, "Values that are handed out."]


def verify(model: Model, file: Exposed) -> Unchanged:
    """What is the same in a file as in the ``model`` that was exposed; GraphError for what is not."""
    where, own, added = file.manifest.file, file.manifest.own, _added(file.manifest)
    pte = read_pte(file.data, where)
    assert model.container is not None and model.plan is not None
    plan, rest = model.plan, _plan(pte.plan(), own, added)
    _same(
        where, "the program", _program(plan), _program(replace(rest, values=rest.values[: len(plan.values)]))
    )
    after = dict(pte.blobs(pte.plan()))
    operators = values = 0
    for number, before in model.container.blobs(plan):
        place = f"{where}: delegate {number}"
        kept = without(after[number].graph, added[number])
        _same(place, "operators", _operators(before.graph.chain), _operators(kept.chain))
        _same(place, "its border", _border(before.graph), _border(kept))
        _same(place, "values", _values(before, before), _values(after[number], before))
        _check_memory(place, after[number].graph, before.graph)
        operators, values = operators + len(kept.chain), values + len(before.graph.values)
    inputs = model.random_inputs(SEED)
    target = next((graph.target for graph in model.graphs.values()), None)
    runs = model.run(inputs), source(pte, file.manifest, target).run(inputs)
    for number, (ours, theirs) in enumerate(zip(*runs, strict=True)):
        _same(where, f"out{number}", ours.tobytes(), theirs.tobytes())
    return Unchanged(operators, values, own, len(file.manifest.outputs) - own)


def _same(where: str, what: str, source: object, found: object) -> None:
    if source != found:
        raise GraphError(where, f"{what} changed when values were exposed", need="those of the source")


def _program(plan: Plan) -> tuple[Any, ...]:
    return plan.inputs, plan.outputs, plan.values, plan.chains[0].instructions


def _operators(chain: Iterable[OperatorCall]) -> list[tuple[str, tuple[int, ...]]]:
    return [(call.name, call.args) for call in chain]


def _border(graph: VkGraph) -> tuple[Any, ...]:
    return graph.input_ids, graph.output_ids, graph.storage_type_override, graph.memory_layout_override


def _values(blob: Blob, source: Blob) -> tuple[Any, ...]:
    """The values that the source has, wherever they lie, and its constants."""
    rows = blob.graph.values[: len(source.graph.values)]
    placed = [replace(row, mem_obj_id=-1) if isinstance(row, VkTensor) else row for row in rows]
    return placed, [bytes(blob.constants[number]) for number in range(len(source.constants))]


def _check_memory(where: str, graph: VkGraph, source: VkGraph) -> None:
    """GraphError if an operator or an output of the source reads memory that another value was written to since."""
    theirs, last = set(_operators(source.chain)), dict[int, int]()

    def objects(ids: Iterable[int]) -> Iterable[tuple[int, int]]:
        for number in flat(graph, ids):
            row = graph.values[number]
            if isinstance(row, VkTensor) and row.mem_obj_id >= 0:
                yield number, row.mem_obj_id

    def read(ids: Iterable[int], what: str) -> None:
        for number, place in objects(ids):
            if last.get(place, number) != number:
                raise GraphError(
                    f"{where}: {what}",
                    "reads memory that was written again",
                    got=f"value {last[place]} there",
                    need=f"value {number}",
                )

    last.update((place, number) for number, place in objects(graph.input_ids))
    for call in graph.chain:
        if (call.name, call.args) in theirs:
            read(call.args[:-1], f"node {call.node_id} {call.name}")
        last.update((place, number) for number, place in objects(call.args[-1:]))
    read(source.output_ids, "its outputs")
