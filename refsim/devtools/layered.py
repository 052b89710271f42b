"""Places for the nodes of a graph that is drawn from top to bottom: rows, columns, and tracks for long edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Tracks beside the columns for edges that pass rows. Where more are needed, the others share the last one.
MOST_TRACKS = 40


@dataclass(frozen=True)
class Edge:
    """From a node to one below it. ``track`` counts from 0 beside the columns; None for an edge to the next row."""

    source: str
    target: str
    track: int | None


@dataclass(frozen=True)
class Placed:
    """(row, column) by node, and the edges. A row holds nodes that do not depend on each other."""

    places: Mapping[str, tuple[int, int]]
    edges: Sequence[Edge]
    rows: int
    columns: int
    tracks: int


def placed(sources: Mapping[str, Sequence[str]]) -> Placed:
    """Place nodes, given with their sources in the order of execution.

    A node stands in the row below the lowest of its sources, if it can below the first of them. What is no earlier
    node is no source.
    """
    places: dict[str, tuple[int, int]] = {}
    used: list[set[int]] = []
    free: list[int] = []  # of each row: no column before this one is free
    spans: list[tuple[str, str]] = []
    for node, given in sources.items():
        known = [source for source in dict.fromkeys(given) if source in places]
        row = max((places[source][0] + 1 for source in known), default=0)
        if row == len(used):
            used.append(set())
            free.append(0)
        column = next((c for _, c in map(places.__getitem__, known) if c not in used[row]), None)
        if column is None:
            while free[row] in used[row]:
                free[row] += 1
            column = free[row]
        used[row].add(column)
        places[node] = row, column
        spans += [(source, node) for source in known]
    edges, tracks = _tracks(places, spans)
    columns = max((column + 1 for _, column in places.values()), default=0)
    return Placed(places, edges, len(used), columns, tracks)


def _tracks(
    places: Mapping[str, tuple[int, int]], spans: Sequence[tuple[str, str]]
) -> tuple[list[Edge], int]:
    """Each long edge in the innermost track that is free along all of its rows."""
    ends: list[int] = []  # of each track: the row where its last edge ends
    edges = []
    for source, target in sorted(spans, key=lambda span: (places[span[0]][0], places[span[1]][0])):
        begin, end = places[source][0], places[target][0]
        track = None
        if end > begin + 1:
            track = next((t for t, last in enumerate(ends) if last <= begin), min(len(ends), MOST_TRACKS - 1))
            ends[track : track + 1] = [max([end, *ends[track : track + 1]])]
        edges.append(Edge(source, target, track))
    return edges, len(ends)
