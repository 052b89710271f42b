"""Tables and sentences as lines of text that fit a width; the only place that knows how they narrow.

The rule for a table, from the widest form to the narrowest:

1. Columns are as wide as their content. Without a width this is the only form.
2. Text and headings fold at spaces, down to ``LEAST`` characters or their longest word. The widest column gives first.
3. Columns are left out, in the order that the table gives with ``drop``. A last line names them, and the width that
   shows all.
4. If the columns that must stay do not fit either, their text folds further, down to ``TIGHT`` characters, and their
   headings down to their longest word.
5. If that does not fit either, each row becomes one line per column that has content. A last line names the width of a
   table.

Nothing is cut off: a word that is wider than the width stays whole. Only words of more than ``LONG`` characters, such
as paths, fold inside: after ``/`` that does not begin the path, after ``,`` or ``;``, or after the dots of a name.
Words of headings fold there, and after ``:``, from more than ``TIGHT`` characters on: figures below the name of an
executor need little room. Columns of figures never fold.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

GAP = 2
LEAST, TIGHT = 24, 12
LONG = 24
INDENT = 2  # of the lines that continue a sentence, beyond its own

#: Given the whole text of a cell (None for a heading) and a part of it, the part as it is printed.
Paint = Callable[[str | None, str], str]

#: Where a long word folds: in a path or a list; where that is not enough, in a dotted name.
_HEAD_FOLDS = (re.compile(r"(?<=.[/,;:])(?=[^/,;:])"),)
_FOLDS = (re.compile(r"(?<=.[/,;])(?=[^/,;])"), re.compile(r"(?<=\w\.)(?=[A-Za-z_])"))
#: A word of a shell command, or an option and its value; what stands in quotes belongs together.
_WORD = r"""(?:[^\s'"]|'[^']*'|"[^"]*"|['"])+"""
_SHELL_WORD = re.compile(rf"-\S+ (?!-){_WORD}|{_WORD}")


def length(text: str) -> int:
    """How many columns of a terminal the text takes; letters of East Asia take two."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def fold(text: str, width: int, heading: bool = False) -> list[str]:
    """The text in lines of at most ``width`` columns, where its words allow that; an empty text is one empty line.

    ``heading``: it stands above a column, so its words fold earlier.
    """
    if length(text) <= width:
        return [text]
    lines: list[str] = []
    line = ""
    for word in text.split():
        for number, piece in enumerate(_pieces(word, heading) if length(word) > width else [word]):
            space = " " if line and not number else ""
            if line and length(line) + len(space) + length(piece) > width:
                lines.append(line)
                line, space = "", ""
            line += space + piece
    return [*lines, line]


def sentence(text: str, width: int | None) -> list[str]:
    """A line of prose folded at spaces. The lines that continue it are indented further than the first."""
    if width is None or length(text) <= width:
        return [text]
    own = " " * (len(text) - len(text.lstrip()))
    first, *_ = fold(text.strip(), width - len(own))
    rest = text.strip()[len(first) :].strip()
    below = own + " " * INDENT
    return [own + first, *(below + line for line in fold(rest, width - len(below)) if line)]


def command(text: str, width: int | None, program: str = "refsim") -> list[str]:
    """A line that ends in a command of ``program``, folded so that the command can still be pasted into a shell.

    The command gets lines of its own; those that go on end in a backslash. What stands before it folds as a sentence.
    """
    if width is None or length(text) <= width:
        return [text]
    found = re.search(rf"\b{re.escape(program)} ", text)
    if found is None:
        return sentence(text, width)
    start = found.start()
    lines = sentence(text[:start].rstrip(), width) if text[:start].strip() else []
    own = " " * (len(text) - len(text.lstrip()) + (INDENT if lines else 0))
    line = own
    for word in _SHELL_WORD.findall(text[start:]):
        if line.strip() and length(line) + 1 + length(word) + len(" \\") > width:
            lines.append(f"{line} \\")
            line = own + " " * INDENT
        line += word if not line.strip() else f" {word}"
    return [*lines, line]


def lines(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int | None = None,
    drop: Sequence[str] = (),
    right: Collection[str] = (),
    paint: Paint = lambda whole, part: part,
) -> Iterator[str]:
    """The lines of a table by the rule above.

    ``drop`` names columns in the order in which they are left out; ``right``: those of figures, which are flush right.
    """
    every = [_Column(name, [row[at] for row in rows], name in right) for at, name in enumerate(columns)]
    kept = list(every)
    if width is not None:
        for name in drop:
            if _total([column.least for column in kept]) <= width:
                break
            kept = [column for column in kept if column.name != name]
        if _total([column.least for column in kept]) > width:
            for column in kept:
                column.least = column.folded_to(TIGHT)
        if _total([column.least for column in kept]) > width:
            yield from _records(every, len(rows), width, paint)
            if len(rows) > 1:
                least = _total([column.least for column in kept])
                yield from sentence(f"a width of {least} shows a table", width)
            return
    widths = _widths(kept, width)
    for at in range(-1, len(rows)):
        cells = [
            fold(column.name, size, heading=True) if at < 0 else fold(column.cells[at], size)
            for column, size in zip(kept, widths, strict=True)
        ]
        for part in range(max(map(len, cells), default=0)):
            text = ""
            for column, size, cell in zip(kept, widths, cells, strict=True):
                piece = cell[part] if part < len(cell) else ""
                pad = " " * (size - length(piece))
                painted = paint(None if at < 0 else column.cells[at], piece) if piece else ""
                text += (pad + painted if column.right else painted + pad) + " " * GAP
            yield text.rstrip()
    if len(kept) < len(every):
        gone = ", ".join(column.name for column in every if column not in kept)
        least = _total([column.least for column in every])
        yield from sentence(f"not shown: {gone}; a width of {least} shows all", width)


@dataclass(eq=False)
class _Column:
    """A column: its full width and the least that it folds to."""

    name: str
    cells: list[str]
    right: bool

    def __post_init__(self) -> None:
        self.full = max(map(length, (self.name, *self.cells)))
        self.least = self.folded_to(LEAST)

    def folded_to(self, least: int) -> int:
        """The width to which the column folds, if text may fold down to ``least``."""
        head = _longest(self.name, heading=True)
        if self.right:
            return max(head, *map(length, self.cells), 0)
        full = self.full if least == LEAST else max(map(length, self.cells), default=0)
        return max(head, min(full, least), *map(_longest, self.cells))


def _pieces(word: str, heading: bool = False) -> list[str]:
    """The parts of a word between which it may fold; a short word has one."""
    parts, long = [word], TIGHT if heading else LONG
    for place in _HEAD_FOLDS if heading else _FOLDS:
        parts = [piece for part in parts for piece in (place.split(part) if length(part) > long else [part])]
    return parts


def _longest(text: str, heading: bool = False) -> int:
    """The widest part of a text that does not fold."""
    return max((length(piece) for word in text.split() for piece in _pieces(word, heading)), default=0)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _widths(columns: Sequence[_Column], width: int | None) -> list[int]:
    """The full widths; the widest that can gives a column as long as they do not fit."""
    widths = [column.full for column in columns]
    while width is not None and _total(widths) > width:
        at = max((n for n, column in enumerate(columns) if widths[n] > column.least), key=widths.__getitem__)
        widths[at] -= 1
    return widths


def _records(columns: Sequence[_Column], count: int, width: int, paint: Paint) -> Iterator[str]:
    """One line per column and row, with an empty line between the rows; content that is still too wide goes below."""
    head = max(length(column.name) for column in columns)
    for at in range(count):
        if at:
            yield ""
        for column in columns:
            if not column.cells[at]:
                continue
            name = column.name + " " * (head - length(column.name) + GAP)
            parts = fold(column.cells[at], max(width - len(name), 1))
            for number, part in enumerate(parts):
                start = name if not number else " " * len(name)
                shown = paint(None, start) if not number else start
                yield (shown + paint(column.cells[at], part)).rstrip()
