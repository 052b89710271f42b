"""Pairs of edits that a person makes at once: of the row and of the column, or of what stands there twice."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeVar

from refsim.bytediff.search.rewrite import Numbered

E = TypeVar("E", bound=Numbered)

#: A name of a row, and of a column: what is done to the one is done to the other.
_MIRRORED = re.compile(r"(?<![A-Za-z0-9])(?:([iok]?)[hw]|[HWij]|rows?|columns?)(?![A-Za-z0-9])")


def _mirrored(node: ast.AST | None) -> str:
    """A node as text that is the same for a row and for a column."""
    text = "" if node is None else re.sub(r"__[vfe]\d+", "", ast.unparse(node))
    return _MIRRORED.sub(lambda found: f"{found[1] or ''}@", text)


def twins(edits: Sequence[E]) -> Iterator[tuple[E, E]]:
    """Pairs of edits that do the same at two places: to the row and to the column, or to what stands there twice.

    Pairs of the same two places are neighbours, so that their numbers are.
    """
    groups = dict[tuple[str, str, str], list[E]]()
    texts = {node: _mirrored(node) for node in {edit.old for edit in edits}}
    often = Counter(texts.values())
    for edit in edits:
        if often[texts[edit.old]] == 2:
            groups.setdefault((edit.made.kind, texts[edit.old], _mirrored(edit.made.new)), []).append(edit)
    pairs = [(row[0], row[1]) for row in groups.values() if len(row) == 2 and row[0].old is not row[1].old]
    yield from sorted(pairs, key=lambda pair: pair[0].number)
