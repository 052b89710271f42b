"""How far what a runtime recorded of its delegate calls is from the right bytes.

An ETDump has the inputs and outputs of every delegate call. refsim runs the delegate on those inputs, so nothing that
went wrong before the call counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from refsim.core import choices
from refsim.core.errors import FormatError, ShapeError
from refsim.core.meanings import DelegateNumber, DtypeName
from refsim.devtools.etdump_file import EtdumpRecording
from refsim.exec.executor import Executor, run_graph
from refsim.exec.factory import executor_named
from refsim.exec.model import Model
from refsim.formats.dumps import value_name
from refsim.formats.pte.schema import DelegateCall
from refsim.graph.graph import Graph, Node
from refsim.ops.base.traits import Family


@dataclass(frozen=True)
class Gap:
    """One output of one call of a delegate.

    ``differing`` of ``elements`` have other bits. ``largest`` is the largest difference, in real units; ``steps`` the
    same in quantization steps where the output was dequantized or is int8. None where a difference is no finite number,
    or, for ``steps``, where no step is known. ``first`` is the index of the first element that differs.
    """

    run: Annotated[int, "Number of the run in the ETDump."]
    instruction: Annotated[int, "Number of the instruction in the program."]
    delegate: DelegateNumber
    node: Annotated[int | None, "Number of the node that makes it; null for an input that is handed through."]
    value: Annotated[str, "The output."]
    shape: Annotated[tuple[int, ...], "Its sizes."]
    dtype: DtypeName
    elements: Annotated[int, "How many elements it has."]
    differing: Annotated[int, "How many of them have other bits."]
    steps: Annotated[int | None, "The largest difference in quantization steps; null where no step is known."]
    largest: Annotated[float | None, "The largest difference in real units; null if it is no finite number."]
    first: Annotated[tuple[int, ...] | None, "Index of the first element that differs; null if none does."]


def delegate_calls(model: Model) -> dict[int, DelegateCall]:
    """The calls of Vulkan delegates, by number of the instruction. FormatError for a bare delegate."""
    if model.plan is None:
        raise FormatError(model.path, "a bare delegate, which no runtime calls", need="a .pte")
    steps = [step for chain in model.plan.chains for step in chain.instructions]
    return {
        at: step for at, step in enumerate(steps)
        if isinstance(step, DelegateCall) and step.delegate_index in model.graphs
    }  # fmt: skip


def gaps(model: Model, recording: EtdumpRecording, executor: str = "cpu") -> list[Gap]:
    """A row for each output of each delegate call that was recorded, in the order of runs and instructions.

    Raises FormatError if the recording is of another program.
    """
    runner = executor_named(executor)
    calls = delegate_calls(model)
    rows: list[Gap] = []
    for number, run in enumerate(recording.executions()):
        held = recording.arguments(run)
        for at, call in calls.items():
            if at in held:
                place = f"{recording.where}: instruction {at}"
                rows += [
                    gap for gap, _ in gaps_of(model, call.delegate_index, held[at], runner, place, number, at)
                ]
    return rows


def gaps_of(
    model: Model,
    delegate: int,
    arguments: Sequence[np.ndarray | None],
    runner: Executor,
    place: str,
    run: int = 0,
    instruction: int = 0,
) -> list[tuple[Gap, np.ndarray]]:
    """The rows of one call of a delegate, and the right outputs; ``arguments``: its inputs and outputs, as recorded."""
    graph, arguments = _at(model, delegate, arguments)
    wanted = [graph.tensors[value] for value in (*graph.inputs, *graph.outputs)]
    shapes = [None if array is None else array.shape for array in arguments]
    if len(arguments) != len(wanted) or shapes != [tensor.shape for tensor in wanted]:
        raise FormatError(
            place, "not the arguments of this delegate", got=choices.first(shapes),
            need=f"{choices.first([tensor.shape for tensor in wanted])}, of delegate {delegate} of {model.path}",
        )  # fmt: skip
    arrays = [np.asarray(array) for array in arguments]
    count = len(graph.inputs)
    given = []
    for array, tensor in zip(arrays[:count], wanted, strict=False):
        if array.dtype.kind != tensor.dtype.kind:
            raise ShapeError(place, "an input of another dtype", got=array.dtype, need=tensor.dtype)
        given.append(np.ascontiguousarray(array))
    results = run_graph(graph, given, runner, delegate)
    made = {value: node for node in graph.nodes for value in node.outputs}
    found = []
    for value, right, actual in zip(graph.outputs, results, arrays[count:], strict=True):
        right = np.asarray(right)
        row = _compared(right, actual, _step(graph, made.get(value), value), place)
        node = None if value not in made else made[value].number
        name = value_name(delegate, value)
        about = (run, instruction, delegate, node, name, right.shape, str(right.dtype), right.size)
        found.append((Gap(*about, *row), right))
    return found


def _at(
    model: Model, delegate: int, arguments: Sequence[np.ndarray | None]
) -> tuple[Graph, Sequence[np.ndarray | None]]:
    """A delegate at the shapes of the inputs that it had, and its arguments without the SymInts."""
    graph, blob = model.graphs[delegate], model.blobs.get(delegate)
    if not model.is_dynamic or blob is None:
        return graph, arguments
    count = len(blob.graph.input_ids)
    given = [array for array in arguments[:count] if array is not None]
    if len(given) != count:
        return graph, arguments
    graph, kept = model.delegate_at(delegate, given)
    return graph, [*(given[place] for place in kept), *arguments[count:]]


def _step(graph: Graph, node: Node | None, value: int) -> float | None:
    """The quantization step of a value: that of an int8 value is 1."""
    if graph.tensors[value].dtype == "int8":
        return 1.0
    if node is None or node.call is None or node.call.op.family is not Family.DEQUANTIZE:
        return None
    return float(node.call.params.scale)


def _compared(
    right: np.ndarray, actual: np.ndarray, step: float | None, place: str
) -> tuple[int, int | None, float | None, tuple[int, ...] | None]:
    """(elements whose bits differ, steps, largest difference, first index)."""
    if right.dtype.kind in "iu" and actual.dtype.kind == right.dtype.kind:
        right = right.astype(actual.dtype)  # a delegate holds 64-bit integers in 32 bits
    if actual.dtype != right.dtype:
        raise ShapeError(place, "an output of another dtype", got=actual.dtype, need=right.dtype)
    bits = np.dtype(f"u{right.dtype.itemsize}")
    apart = np.ascontiguousarray(right).view(bits) != np.ascontiguousarray(actual).view(bits)
    count = int(np.count_nonzero(apart))
    if not count:
        return 0, None if step is None else 0, 0.0, None
    with np.errstate(all="ignore"):
        largest = float(np.max(np.abs(right.astype(np.float64) - actual.astype(np.float64))))
    finite = bool(np.isfinite(largest))
    steps = round(largest / step) if finite and step else None
    first = tuple(int(i) for i in np.argwhere(apart)[0])
    return count, steps, largest if finite else None, first
