"""A program's graph as one self-contained page: a picture, coloured by layout and verdict, and a table of its nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from refsim.core.errors import FormatError
from refsim.core.html import rendered
from refsim.devtools.layered import Placed, placed
from refsim.devtools.model_explorer import graph_of
from refsim.exec.model import Model
from refsim.formats.reading import json_file
from refsim.graph.origin import Origins

VERDICT = "verdict"
COLUMNS = ("value", "operator", VERDICT, "shape", "layout", "transition", "bytes", "kernels")
PALETTE = 8  # colours of layouts that the template has; more layouts share them
WIDTH, GAP, TRACK = 228, 34, 12  # pixels: of a box, between boxes, between the tracks of long edges
LINE, MARGIN = 16, 12  # pixels: of a line of text in a box, around the picture
LETTERS = 29  # that fit into a line of a box; the table has all of them


@dataclass(frozen=True)
class Box:
    """One node: where it is drawn, its lines of text, its row of the table, and its classes in the style sheet."""

    number: int
    x: int
    y: int
    lines: tuple[str, ...]
    cells: tuple[str, ...]
    colour: str
    change: str
    verdict: str


def read_verdicts(path: str) -> dict[str, str]:
    """Verdict by value name, as ``triage --json`` or ``bisect --json`` printed them. FormatError for other files."""
    need = "the JSON of triage or bisect"
    content = json_file(path, need)
    nodes = content.get("nodes") if isinstance(content, dict) else None
    if not isinstance(nodes, list) or not nodes:
        raise FormatError(path, "has no list of nodes", need=need)
    found = {}
    for number, node in enumerate(nodes):
        pair = (node.get("value"), node.get(VERDICT)) if isinstance(node, dict) else (None, None)
        if not (isinstance(pair[0], str) and isinstance(pair[1], str)):
            raise FormatError(path, f"node {number} has no value and verdict", need=need)
        found[pair[0]] = pair[1]
    return found


def page(model: Model, made: Origins, changes: Mapping[str, str], verdicts_from: str | None) -> str:
    """The page of a program. ``changes``: the transition that an operator makes, by the name of its output.

    FormatError if the verdicts are of values that the program does not have. MissingDependencyError without jinja2.
    """
    nodes = graph_of(model, made)["nodes"]
    verdicts = {} if verdicts_from is None else read_verdicts(verdicts_from)
    names = {node["id"] for node in nodes}
    foreign = [name for name in verdicts if name not in names]
    if foreign and verdicts_from is not None:
        raise FormatError(verdicts_from, "is of another program", got=foreign[0], need="a value of this one")
    place = placed({node["id"]: [edge["sourceNodeId"] for edge in node["incomingEdges"]] for node in nodes})
    layouts: dict[str, int] = {}
    height = LINE * (4 if verdicts else 3) + 8
    boxes = [_box(at, node, place, height, layouts, changes, verdicts) for at, node in enumerate(nodes)]
    return rendered(
        "html page",
        "refsim.devtools",
        "graph.html",
        file=model.path,
        boxes=boxes,
        edges=list(_paths(place, height)),
        columns=[name for name in COLUMNS if verdicts or name != VERDICT],
        layouts=[(name, f"k{at % PALETTE}") for name, at in layouts.items()],
        counts={kind: list(verdicts.values()).count(kind) for kind in dict.fromkeys(verdicts.values())},
        changes=len(changes),
        box=(WIDTH, height),
        line=LINE,
        width=2 * MARGIN + place.columns * (WIDTH + GAP) + place.tracks * TRACK,
        height=2 * MARGIN + place.rows * (height + GAP) - GAP,
    )


def _box(
    number: int,
    node: Mapping[str, Any],
    place: Placed,
    height: int,
    layouts: dict[str, int],
    changes: Mapping[str, str],
    verdicts: Mapping[str, str],
) -> Box:
    out = _facts(node["outputsMetadata"][0]["attrs"]) if node["outputsMetadata"] else {}
    about = _facts(node["attrs"])
    name, change = node["id"], changes.get(node["id"], "")
    kept = out.get("layout", "-")
    kept = out.get("dtype", "") if kept == "-" else kept  # outside of delegates nothing has a layout
    verdict = verdicts.get(name, "")
    colour = f"k{layouts.setdefault(kept, len(layouts)) % PALETTE}" if kept else "plain"
    ordinal = f"{about['node']} " if "node" in about else ""
    lines = [ordinal + node["label"], f"{out.get('shape', '')} {kept}".strip(), change, verdict]
    cells = (
        name, node["label"], verdict, out.get("shape", ""), kept, change, out.get("bytes", ""),
        about.get("kernels", ""),
    )  # fmt: skip
    row, column = place.places[name]
    return Box(
        number, MARGIN + column * (WIDTH + GAP), MARGIN + row * (height + GAP),
        tuple(text if len(text) <= LETTERS else text[: LETTERS - 1] + "…" for text in lines if text),
        cells if verdicts else (*cells[:2], *cells[3:]), colour, change, verdict.replace(" ", "-"),
    )  # fmt: skip


def _facts(pairs: list[dict[str, str]]) -> dict[str, str]:
    return {pair["key"]: pair["value"] for pair in pairs}


def _paths(place: Placed, height: int) -> Iterator[str]:
    """The edges as paths of SVG; a long one goes around the boxes in its track."""
    for edge in place.edges:
        (row, column), (end, other) = place.places[edge.source], place.places[edge.target]
        x, y = MARGIN + column * (WIDTH + GAP) + WIDTH // 2, MARGIN + row * (height + GAP) + height
        to_x, to_y = MARGIN + other * (WIDTH + GAP) + WIDTH // 2, MARGIN + end * (height + GAP)
        if edge.track is None:
            yield f"M{x} {y} C{x} {y + GAP // 2} {to_x} {to_y - GAP // 2} {to_x} {to_y}"
        else:
            aside = MARGIN + place.columns * (WIDTH + GAP) - GAP // 2 + edge.track * TRACK
            x, to_x, level = x + 40, to_x + 40, 8 + 3 * (edge.track % 4)
            yield f"M{x} {y} V{y + level} H{aside} V{to_y - level} H{to_x} V{to_y}"
