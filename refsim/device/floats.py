"""Float operators of a device's run: each output beside the right one, and beside that of its own inputs.

Where every device must give the same bits (`refsim.graph.interpreter.same_bits`), others are wrong. Where the device's
own divisions and functions come in, its bits are its own, within the bounds that Vulkan sets
(`refsim.aten.within`). Of an operator for which nobody has said these as numbers, nothing is judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from refsim import aten
from refsim.aten import within
from refsim.bytediff import Report, diff
from refsim.bytediff.evidence import cells
from refsim.bytediff.findings import Allowed
from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.core.qmath import PROFILES, Profile
from refsim.device.dumped import GIVEN, Buffers, Row, Strayed, dumped
from refsim.exec.trace import Traced
from refsim.formats.dumps import value_name
from refsim.graph.graph import Graph, Node
from refsim.graph.interpreter import arguments, results, same_bits, stored

Values = Mapping[int, PackedBuffer | np.ndarray]

#: What allows bits of a device's own, in the place of a profile: within bounds, or for want of any.
OWN = "its own functions"
UNBOUNDED = "its own functions, no bound known"


def rows(
    graph: Graph,
    traced: Traced,
    recorded: Buffers,
    strayed: Strayed,
    diverged: bool,
    options: Mapping[str, Any],
) -> Iterator[Row]:
    """A row for each float output of a float operator that was dumped; ``options`` are those of `diff`."""
    node = traced.node
    for value in node.outputs:
        name = value_name(traced.delegate, value)
        right = traced.outputs[name]
        if not isinstance(right, PackedBuffer) or name not in recorded or recorded.unfit(name, right.desc):
            continue
        title = f"{name} {right.desc}, node {node.number} {node.operator}"
        chosen = options.get("profile")
        told = {key: options[key] for key in ("limit",) if key in options}

        def report(values: Values, title: str, expected: PackedBuffer, explain: bool) -> Report:
            dumped = _comparable(recorded.beside(name, expected), expected)  # noqa: B023
            found = diff(expected, dumped, title=title, explain=explain, **told)  # noqa: B023
            return _judged(graph, traced, values, value, found, chosen)  # noqa: B023

        handed = dumped_values(graph, traced, recorded, strayed)
        run = report(traced.read, title, right, not diverged)
        alone, given = None, False
        if handed is not None:
            given = any(n in handed and value_name(traced.delegate, n) not in recorded for n in node.reads)
            told_by = f"{title}, computed from {GIVEN if given else 'its dumped inputs'}"
            again = gives(graph, traced, handed, value, None) if diverged else right
            alone = report(handed, told_by, again, True)
        row = Row.of(traced, name, run, alone, diverged, is_int8=right.desc.is_int8, given=given)
        yield replace(row, cause=node.upstream or "") if row.wrong else row


def follow(graph: Graph, traced: Traced, recorded: Buffers, strayed: Strayed) -> None:
    """Keep what an operator must have given on the device where it was not dumped, such as a bool."""
    named = {value: value_name(traced.delegate, value) for value in traced.node.outputs}
    left = [value for value, name in named.items() if name not in recorded]
    handed = dumped_values(graph, traced, recorded, strayed) if left else None
    if handed is not None:
        found = _results(graph, traced, handed)
        where = f"{graph.where}: {traced.node}"
        strayed.known.update({named[v]: stored(graph, v, found[v], where) for v in left if v in found})


def _results(graph: Graph, traced: Traced, values: Values) -> dict[int, np.ndarray]:
    return results(graph, traced.node, {**_constants(graph, traced.node), **values})


def _constants(graph: Graph, node: Node) -> dict[int, np.ndarray]:
    return {n: data for n in node.reads if (data := graph.tensors[n].data) is not None}


def gives(graph: Graph, traced: Traced, values: Values, value: int, profile: Profile | None) -> PackedBuffer:
    """What an operator gives for these values, under a profile or that of the graph."""
    if profile is not None:
        graph = replace(graph, target=replace(graph.target, profile=profile))
    held = stored(graph, value, _results(graph, traced, values)[value], f"{graph.where}: {traced.node}")
    assert isinstance(held, PackedBuffer)
    return held


def dumped_values(
    graph: Graph, traced: Traced, recorded: Buffers, strayed: Strayed | None = None
) -> Values | None:
    """What an operator read on the device; None if an input was not dumped and may have strayed."""
    found: dict[int, PackedBuffer | np.ndarray] = {}
    for value, held in traced.read.items():
        name = value_name(traced.delegate, value)
        if isinstance(held, PackedBuffer) and name in recorded and not recorded.unfit(name, held.desc):
            found[value] = dumped(recorded, name, held)
        elif strayed is not None and name in strayed:
            if name not in strayed.known:
                return None
            found[value] = strayed.known[name]
        elif graph.tensors[value].data is None:
            found[value] = held
    return found


def right(
    graph: Graph, traced: Traced, recorded: Buffers, name: str, profile: Profile | None
) -> PackedBuffer | None:
    """What an operator gives in this run for the inputs that were dumped, if the device has that."""
    values = dumped_values(graph, traced, recorded)
    value = next(n for n in traced.node.outputs if value_name(traced.delegate, n) == name)
    assert values is not None
    expected = gives(graph, traced, values, value, None)
    found = diff(expected, _comparable(recorded.beside(name, expected), expected), explain=False)
    return expected if _judged(graph, traced, values, value, found, profile).same else None


def _judged(
    graph: Graph, traced: Traced, values: Values, value: int, found: Report, chosen: Profile | None
) -> Report:
    """The report with the profiles that explain it; the device's own functions stand for one, where they may."""
    if not found.differing:
        return found
    ev, legal = found.evidence, dict[str, Allowed]()
    for profile in PROFILES.values() if chosen is None else (chosen,):
        same = cells(gives(graph, traced, values, value, profile)) == ev.got
        explained, against = (
            int(np.count_nonzero(one)) for one in (same & ev.differing, ~same & ~ev.differing)
        )
        legal[profile.name] = Allowed(explained, against)
    own = _own(graph, traced, values, value, ev.expected.unpack(), ev.actual.unpack())
    if own:
        legal[own] = Allowed(found.differing, 0)
    return replace(found, legal=legal, profile=own or (None if chosen is None else chosen.name))


def _own(
    graph: Graph, traced: Traced, values: Values, value: int, expected: np.ndarray, actual: np.ndarray
) -> str | None:
    """What allows the device these bits, if anything but a profile does."""
    node = traced.node
    if same_bits(node):
        return None
    row = aten.find(node.name, str(node)).row
    if row is None or row.within is None or value != node.outputs[0]:
        return UNBOUNDED
    given = arguments(graph, node, {**_constants(graph, node), **values})
    return OWN if within.allows(row.within, expected, actual, *given).all() else None


def _comparable(dumped: np.ndarray, expected: PackedBuffer) -> np.ndarray:
    """The device's bytes without what is nobody's duty: padding, and which NaN a NaN is."""
    found = np.where(expected.kinds() == ByteKind.VALUE, dumped, expected.raw)
    if expected.desc.dtype == "float32":
        mine, right = found.view(np.float32), expected.raw.view(np.float32)
        both = np.isnan(mine) & np.isnan(right)
        mine.view(np.int32)[both] = right.view(np.int32)[both]
    return found
