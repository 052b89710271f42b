"""The diffs of what a mutated copy made: of the wrong cases of the corpus, and of the first wrong value of a chain."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from mutants import graphs
from mutants.tree import CHECKOUT
from refsim.bytediff import Report, diff
from refsim.core.buffer import GUARD_WORDS, PackedBuffer
from refsim.core.layout import WIDTH_PACKED
from refsim.core.qmath import PROFILES
from refsim.exec.trace import bound_of
from refsim.golden.chain import defined
from refsim.golden.rules import case as case_of
from refsim.golden.store import Corpus
from refsim.graph.interpreter import logical, stored
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.target import Target


def bound(name: str, profile: str) -> BoundCase:
    """A case of the corpus on a device of a profile; "" is the canonical one."""
    op, _, place = name.partition("/")
    return bind(case_of(op, int(place)), Target(PROFILES[profile]) if profile else None)


def of_chain(folder: Path, name: str) -> Report | None:
    """The diff of the first wrong value of a chain with what its operator makes of the right ones, if one is."""
    entry = next(entry for entry in Corpus(CHECKOUT / "golden").chains() if entry.name == name)
    graph, data = entry.chain.graph(name), entry.chain.data()
    values = {0: data, **defined(graph, data)[1]}
    for node in graph.nodes:
        for value in node.outputs:
            path, right = folder / f"value-{value}.npy", logical(graph, values, value)
            made = np.load(path) if path.exists() else right
            if np.array_equal(made, right):
                continue
            by = path.with_suffix(".by").read_text() if path.with_suffix(".by").exists() else ""
            title, held = f"value {value} of node {node.number}, {node.name}", values[value]
            title += f", computed by {by}" if by else ""
            if node.call is None or not isinstance(held, PackedBuffer):
                return diff(_packed(right), _packed(made), title=title, limit=1)
            inputs = {arg: values[at] for arg, at in node.inputs.items()}
            packed = {
                arg: each if isinstance(each, PackedBuffer) else stored(graph, node.inputs[arg], each, name)
                for arg, each in inputs.items()
            }
            call = bound_of(node.call, packed)  # type: ignore[arg-type]
            return diff(held, graphs.elements(held, made), call=call, title=title, limit=1)
    return None


def of_cases(folder: Path, names: Sequence[str], profile: str) -> Iterator[tuple[Report, float]]:
    """The diffs of the wrong cases, and the seconds that each took.

    The first is in ``out``, the others are in ``out-1`` and so on.
    """
    found: list[Report] = []
    for number, name in enumerate(names):
        made = bound(name, profile)
        expected = made.call.expected(made.inputs)
        actual = PackedBuffer(expected.desc)
        raw = (folder / (f"out-{number}" if number else "out")).read_bytes()
        actual.raw[:] = np.frombuffer(raw, np.uint8)
        if not np.array_equal(expected.raw, actual.raw):
            begin = time.perf_counter()
            report = diff(expected, actual, call=made, limit=1, like=found, guards=GUARD_WORDS)
            found.append(report)
            yield report, time.perf_counter() - begin


def _packed(array: np.ndarray) -> PackedBuffer:
    """A float value of a graph, in C order."""
    return PackedBuffer.pack(np.ascontiguousarray(array, np.float32), WIDTH_PACKED)
