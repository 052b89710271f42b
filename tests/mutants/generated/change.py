"""A change of one place in a source, as data: what a generator of mutants finds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

from mutants.mutant import Edit

#: Kinds of changes, and what they do.
KINDS = {
    "operator": "another operator of the same kind: + for -, * for +, << for >>, & for |",
    "compare": "a comparison that includes the bound or no longer does, or is the opposite",
    "constant": "a number off by one, 0, negated, doubled or halved",
    "condition": "a condition negated, or a part of it dropped",
    "index": "a name exchanged for that of another dim, axis or tensor",
    "arguments": "two neighbouring arguments exchanged",
    "type": "another type, signedness or direction of rounding",
    "order": "floats added in another order, or two statements exchanged",
    "removed": "a statement removed",
    "barrier": "a barrier removed",
}


@dataclass(frozen=True)
class Change:
    """Bytes ``begin`` to ``end`` of a file replaced.

    ``scope`` is the function around them, ``line`` counts from 1. ``source`` is the whole text of the file.
    ``statement`` is the source of the statement that holds the place: its names say what the change is about.
    """

    file: str
    source: str
    begin: int
    end: int
    replacement: str
    kind: str
    scope: str
    statement: str

    @property
    def original(self) -> str:
        return self.source[self.begin : self.end]

    @property
    def line(self) -> int:
        return self.source.count("\n", 0, self.begin) + 1

    @property
    def changed(self) -> str:
        """The text of the whole file with the change."""
        return self.source[: self.begin] + self.replacement + self.source[self.end :]

    @cached_property
    def edit(self) -> Edit:
        """The change as whole lines, with as many around them as make the anchor unique."""
        first, last = self.source.rfind("\n", 0, self.begin) + 1, _line_end(self.source, self.end)
        while self.source.count(self.source[first:last]) > 1:
            if first:
                first = self.source.rfind("\n", 0, first - 1) + 1
            else:
                last = _line_end(self.source, last)
        before, after = self.source[first : self.begin], self.source[self.end : last]
        return Edit(self.file, self.source[first:last], before + self.replacement + after)

    @cached_property
    def id(self) -> str:
        """Stays the same as long as the lines do that the edit quotes."""
        told = (self.edit.file, self.edit.anchor, self.edit.replacement)
        stem = self.file.rpartition("/")[2].partition(".")[0]
        return f"{stem}-{self.kind}-{sha256(repr(told).encode()).hexdigest()[:8]}"

    def __str__(self) -> str:
        before, after = (" ".join(text.split()) for text in (self.original, self.replacement))
        return f"{self.file}:{self.line}: {self.kind}: `{_short(before)}` becomes `{_short(after)}`"


def _line_end(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found + 1


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
