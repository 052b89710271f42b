"""One file on two runtimes: which values are others on the second one, and why.

Values are compared as tensors: runtimes lay them out in their own ways. A value that a known defect leaves unwritten is
taken as another one; operators behind it are computed on what should have been written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from refsim import aten
from refsim.core.buffer import PackedBuffer
from refsim.core.counted import counted
from refsim.core.plain import Column
from refsim.core.result import Comparison, Table, Text
from refsim.device.opened import Opened, OpenedFile
from refsim.exec.executor import Executor
from refsim.exec.factory import executor_named
from refsim.exec.model import Model
from refsim.exec.trace import Traced, trace
from refsim.formats.dumps import value_name
from refsim.graph.describe import NodeOutput
from refsim.graph.interpreter import logical, run_node, stored
from refsim.ops.flat.base import FlatMeaning

INPUTS = "its inputs are others"


def _reasons(why: Sequence[str]) -> str:
    """The reasons in a word each; sentences stand below the table."""
    return ", ".join(dict.fromkeys(text.partition(":")[0] for text in why))


@dataclass(frozen=True)
class Across(NodeOutput):
    """A value on two runtimes."""

    elements: Annotated[int, "Its elements.", Column(drop=1)]
    different: Annotated[int, "Elements that are others in the run.", Column()]
    alone: Annotated[
        int, "Elements that are others where the operator has the first runtime's inputs.", Column(drop=3)
    ]
    most: Annotated[float, "The largest distance between two.", Column(drop=2, show="{:.3g}".format)]
    why: Annotated[tuple[str, ...], "The reasons that are known.", Column(show=_reasons)]


def across(
    first: Model, second: Model, inputs: Sequence[np.ndarray], executor: Executor, names: tuple[str, str]
) -> list[Across]:
    """A row for each value that an operator writes, in the order of execution; ``names`` are those of the runtimes."""
    runs: list[dict[tuple[int, int], Traced]] = []
    for model in (first, second):
        kept: dict[tuple[int, int], Traced] = {}
        trace(model, inputs, executor, lambda t, kept=kept: kept.update({(t.delegate, t.node.number): t}))  # type: ignore[misc]
        runs.append(kept)
    mine, other = runs
    return [
        row
        for key, traced in mine.items()
        if key in other
        for row in _rows((traced, other[key]), executor, names)
    ]


def _rows(pair: tuple[Traced, Traced], executor: Executor, names: tuple[str, str]) -> Iterator[Across]:
    """Where an operator has other sizes on the second runtime, what both have is compared, and the rest differs."""
    a, b = pair
    read = {value: logical(a.graph, a.read, value) for value in a.read}
    resized = any(
        a.graph.tensors[value].shape != b.graph.tensors[value].shape for value in (*read, *a.node.outputs)
    )
    again = {} if resized else _on(b, read, executor)
    strayed = not resized and any(
        _differing(array, logical(b.graph, b.read, value)).any()
        for value, array in read.items()
        if value in b.read
    )
    for value in a.node.outputs:
        left, right = (_written(t, value) for t in pair)
        both: Any = (..., *map(slice, map(min, left.shape, right.shape)))
        size, alone = max(left.size, right.size), 0
        if not resized:
            alone = int(_differing(left, np.ma.masked_array(again[value], np.ma.getmaskarray(right))).sum())
        apart = int(_differing(left[both], right[both]).sum()) + size - left[both].size
        why = _not_resized(pair, names) if resized else _why(pair, names) if alone else ()
        yield Across(
            a.delegate, a.node.number, a.node.operator, value_name(a.delegate, value), size, apart, alone,
            _most(left[both], right[both]), (*why, *([INPUTS] if strayed and apart else [])),
        )  # fmt: skip


def _not_resized(pair: tuple[Traced, Traced], names: tuple[str, str]) -> Sequence[str]:
    notes = {name: t.graph.resize(t.node) for name, t in zip(names, pair, strict=True)}
    return [f"{name}: {row.note}" for name, row in notes.items() if row is not None] or [INPUTS]


def _why(pair: tuple[Traced, Traced], names: tuple[str, str]) -> Sequence[str]:
    """What makes an operator give something else on the same inputs."""
    noted = [f"{name}: {t.node.upstream}" for name, t in zip(names, pair, strict=True) if t.node.upstream]
    text = "" if noted else next(filter(None, map(_otherwise, pair)), "") or _other_kernels(*pair)
    return noted or [f"{names[1]}: {text}"] * bool(text)


def _otherwise(traced: Traced) -> str:
    """In which order, or with which inverse, an operator computes that has a meaning of its own on a runtime."""
    meaning = traced.node.meaning
    if isinstance(meaning, FlatMeaning):
        return meaning.flat.otherwise
    row = aten.find(traced.node.name, str(traced.node)).row if traced.node.is_float else None
    return "" if row is None or row.flat is None else "it adds up in another order"


def _other_kernels(a: Traced, b: Traced) -> str:
    """The kernels that the second runtime picks, where the first picks others."""
    first, second = (
        () if t.node.prepared is None else tuple(step.launch.shader for step in t.node.prepared.dispatches)
        for t in (a, b)
    )
    return "" if first == second else f"it picks {', '.join(second)}, and not {', '.join(first)}"


def _on(traced: Traced, arrays: Mapping[int, np.ndarray], executor: Executor) -> dict[int, np.ndarray]:
    """What an operator writes for other inputs."""
    graph, node = traced.graph, traced.node
    values: dict[int, PackedBuffer | np.ndarray] = {
        value: data for value in node.reads if (data := graph.tensors[value].data) is not None
    }
    values |= {
        value: stored(graph, value, array, f"{graph.where}: {node}") for value, array in arrays.items()
    }
    found = run_node(graph, node, values, executor)
    return {value: logical(graph, found, value) for value in found}


def _written(traced: Traced, value: int) -> np.ndarray:
    """A value as the runtime's kernel leaves it: masked where it writes nothing."""
    name = value_name(traced.delegate, value)
    held: np.ndarray = logical(traced.graph, {value: traced.outputs[name]}, value)
    if traced.bound is None:
        return held
    arrays = {name: buffer.unpack() for name, buffer in traced.bound.inputs.items()}
    for defect in traced.bound.call.defects:
        if defect.values is not None:
            found = np.ma.masked_array(defect.values(traced.bound.call, arrays)).reshape(held.shape)
            held = np.ma.masked_array(found, np.ma.getmaskarray(held) | np.ma.getmaskarray(found))
    return held


def _differing(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where two arrays have other bits, or only one of them has an element."""
    mine, other = (np.ascontiguousarray(np.ma.getdata(array)) for array in (a, b))
    bits = f"u{mine.dtype.itemsize}"
    gone = np.ma.getmaskarray(a), np.ma.getmaskarray(b)
    found: np.ndarray = (gone[0] != gone[1]) | ((mine.view(bits) != other.view(bits)) & ~gone[0])
    return found


def _most(a: np.ndarray, b: np.ndarray) -> float:
    both = ~(np.ma.getmaskarray(a) | np.ma.getmaskarray(b))
    with np.errstate(invalid="ignore", over="ignore"):
        far = np.abs(np.ma.getdata(a).astype(np.float64) - np.ma.getdata(b).astype(np.float64))[both]
    return float(np.nanmax(far, initial=0.0))


@dataclass(frozen=True, kw_only=True)
class RuntimesCompared(OpenedFile, Comparison):
    """With two runtimes: which values are others on the second one."""

    executors: Annotated[Sequence[str], "The executor that ran both."]
    runtimes: Annotated[Sequence[str], "The runtimes."]
    values: Annotated[Sequence[Across], "The values, in the order of execution."]
    outputs: Annotated[Sequence[str], "Outputs of delegates that are others."]
    first: Annotated[str | None, "The first value that is another."]

    def text(self) -> Text:
        yield Table.of(Across, self.values)
        differ = sum(bool(row.different) for row in self.values)
        yield f"{counted(len(self.values), 'value')} on {' and '.join(self.runtimes)}: {differ} differ"
        told = (text for row in self.values if row.alone for text in row.why if ":" in text)
        yield from (f"why {line}" for line in dict.fromkeys(told))
        yield f"outputs of delegates that differ: {', '.join(self.outputs) or 'none'}"


def compare_runtimes(
    file: str, first: Opened, second: Opened, given: Sequence[np.ndarray], executor: str
) -> RuntimesCompared:
    """Each value with the elements that are others on the second runtime, and why."""
    releases = (first.runtime, second.runtime)
    rows = across(first.model, second.model, given, executor_named(executor), releases)
    apart = [row.value for row in rows if row.different]
    graphs = first.model.graphs.items()
    outputs = {f"delegate{number}_v{value}" for number, graph in graphs for value in graph.outputs}
    return RuntimesCompared(
        file=file, aimed=first, executors=[executor], runtimes=list(releases), values=rows,
        outputs=sorted(value for value in apart if value in outputs), first=next(iter(apart), None), same=not apart,
    )  # fmt: skip
