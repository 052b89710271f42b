"""The program inside an exposed file: as it was before its values became outputs.

Values and operators were only appended, so taking away the outputs, and every fill, copy and conversion that nobody
reads any more, gives back the operators of the source in their order. Memory objects stay as the exposed file has them.
"""

from __future__ import annotations

from dataclasses import replace

from refsim.core.counted import counted
from refsim.core.errors import FormatError
from refsim.device.expose import DEQUANTIZE
from refsim.device.manifest import Manifest
from refsim.exec.model import Model, built
from refsim.formats.pte.read import Pte, read_pte
from refsim.formats.pte.schema import DELEGATE_SEGMENT, DelegateCall, Plan
from refsim.formats.pte.write import write_pte
from refsim.formats.vkgraph.edit import CLONE, FULL
from refsim.formats.vkgraph.schema import VkGraph
from refsim.formats.vkgraph.write import write_blob
from refsim.graph.values import flat
from refsim.ops.base.target import Target

_APPENDED = (FULL, CLONE, DEQUANTIZE)


def source(pte: Pte, manifest: Manifest, target: Target | None = None) -> Model:
    """The model that was exposed, ready to run."""
    added: dict[int, int] = {}
    for row in manifest.outputs[manifest.own :]:
        delegate = int(str(row.value).removeprefix("delegate").partition("_")[0])
        added[delegate] = added.get(delegate, 0) + 1
    plan = pte.plan()
    if len(plan.chains) != 1:
        raise FormatError(pte.where, "not an exposed program", got=counted(len(plan.chains), "chain"), need=1)
    segments: list[memoryview | bytes] = list(pte.segments)
    for number, blob in pte.blobs(plan):
        data = plan.delegates[number].processed
        if data is not None and number in added:
            if data.location != DELEGATE_SEGMENT:
                raise FormatError(
                    f"{pte.where}: delegate {number}", "not in a segment", need="an exposed program"
                )
            graph = without(blob.graph, added[number])
            segments[data.index] = write_blob(graph, blob.constants.raw, pte.where)
    plans = tuple(_plan(p, manifest.own, added) if p is plan else p for p in pte.program.plans)
    return built(read_pte(write_pte(replace(pte.program, plans=plans), segments), pte.where), target)


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


def _plan(plan: Plan, own: int, added: dict[int, int]) -> Plan:
    steps = tuple(
        replace(step, args=step.args[: len(step.args) - added.get(step.delegate_index, 0)])
        if isinstance(step, DelegateCall)
        else step
        for step in plan.chains[0].instructions
    )
    return replace(plan, outputs=plan.outputs[:own], chains=(replace(plan.chains[0], instructions=steps),))
