"""What a verb returns: a value, from which its JSON, its schema and its text follow; and what such a text consists of.

Rooms make these values. The command line prints them (`refsim.cli.kit.text`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypeAlias

from refsim.core import choices
from refsim.core.meanings import OwnName
from refsim.core.plain import FLAT, Column, JsonKey, keys
from refsim.core.status import DIFFERENT, SAME

#: Rows that the text of a verb shows of a list; `--json` lists all.
MOST_SHOWN = 20


class Command(str):
    """A line that ends in a command to be pasted."""


class Styled(NamedTuple):
    """A line, and how a terminal shows it, as for `click.style`."""

    line: str
    style: Mapping[str, Any]


class Fitted(NamedTuple):
    """Lines that depend on the width that there is; None: on none."""

    lines: Callable[[int | None], Iterable[Styled]]


class Verbatim(str):
    """Text that is neither folded nor escaped."""


class Table(NamedTuple):
    """A table by the rule of `refsim.core.table`; ``drop``: its columns in the order in which they are left out."""

    columns: Sequence[str]
    rows: Iterable[Sequence[object]]
    drop: Sequence[str] = ()

    @classmethod
    def of(cls, kind: type, rows: Iterable[object]) -> Table:
        """The table of some values: a column for each key of their class that is annotated with one, in order."""
        shown = [(path, key) for path, key in _columns(kind) if key.column is not None]
        heads = [key.column.head or key.name for _, key in shown if key.column is not None]
        left = sorted(
            (key.column.drop, head) for (_, key), head in zip(shown, heads, strict=True) if key.column
        )
        cells = [[_cell(row, path, key) for path, key in shown] for row in rows]
        return cls(heads, cells, [head for drop, head in left if drop])


def _columns(kind: type, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], JsonKey]]:
    for key in keys(kind):
        if key.meaning == FLAT:
            yield from _columns(key.type, (*path, key.name))
        else:
            yield path, key


def _cell(row: object, path: Sequence[str], key: JsonKey) -> object:
    for name in path:
        row = getattr(row, name)
    value = getattr(row, key.name)
    return value if key.column is None or key.column.show is None else key.column.show(value)


#: What a verb says, line by line; an empty line separates.
Part: TypeAlias = "str | Styled | Table | Fitted"
Text: TypeAlias = Iterator[Part]


class Result:
    """A frozen dataclass. Its fields with a meaning are the keys of the JSON object (`refsim.core.plain`)."""

    @property
    def status(self) -> int:
        """The exit status, asked for last. IncompleteError where nothing differs, but too little was compared."""
        return SAME

    def text(self) -> Text:
        """The sentences and tables for people."""
        raise NotImplementedError


Same: TypeAlias = Annotated[
    bool, "Whether everything that was compared is the same, and enough was compared."
]


@dataclass(frozen=True, kw_only=True)
class Comparison(Result):
    """A result that says whether all is the same."""

    same: Same

    @property
    def status(self) -> int:
        return SAME if self.same else DIFFERENT


@dataclass(frozen=True)
class FileSize:
    """A file that was written."""

    file: Annotated[OwnName, Column()]
    bytes: Annotated[int, "Its size.", Column()]


def rest(count: int, what: str = "") -> Iterator[str]:
    """How many of ``count`` rows come after the first `MOST_SHOWN`, if any do; ``what`` begins the line."""
    if count > MOST_SHOWN:
        yield what + choices.more(count - MOST_SHOWN, choices.IN_JSON)


def shape_text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
