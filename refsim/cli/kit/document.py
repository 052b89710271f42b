"""The one JSON object that a command prints with --json, whether it succeeds or fails.

docs/json.md describes it, and `refsim schema` prints its JSON Schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import click

from refsim.core import strict_json
from refsim.core.errors import RefsimError
from refsim.core.plain import plain

#: Grows when a key of any verb changes its meaning or goes away; not when one is added.
SCHEMA = 1
OPTION = "--json"


@dataclass(frozen=True)
class Made:
    """An option whose value is a path that the verb makes: its names, and the option with which it must be there."""

    names: tuple[str, ...]
    folder: bool
    unless: str


@dataclass(frozen=True)
class DocumentError:
    """Why a command failed. What is null is not known, as where an error is not one of refsim's own."""

    type: Annotated[
        str, "The kind of error: a class of refsim.core.errors, UsageError, MemoryError or Defect."
    ]
    message: Annotated[str, "The whole line."]
    where: Annotated[str | None, "The operator or file."] = None
    what: Annotated[str | None, "What is wrong."] = None
    got: Annotated[str | None, "What was found."] = None
    need: Annotated[str | None, "What is allowed."] = None
    hints: Annotated[Sequence[str], "Whole commands that may have been meant."] = ()


@dataclass
class Document:
    """What the command has to say; it is printed when its exit status is known.

    ``verb`` is the verb of the command line, with its subverb; ``given`` are all its words. ``made``: path -> the
    option that names it, of paths that the verb makes. ``wrote``: the files and folders that the verb wrote.
    ``closing``: the lines about them at the end of its text. ``wanted``: the command line has --json, so that an error
    is JSON too. ``content`` is what the verb gave; a verb may fail afterwards, when too little was compared.
    """

    verb: str | None = None
    given: tuple[str, ...] = ()
    wanted: bool = False
    content: dict[str, Any] | None = None
    error: DocumentError | None = None
    made: dict[str, Made] = field(default_factory=dict)
    wrote: list[str] = field(default_factory=list)
    closing: list[str] = field(default_factory=list)

    def fail(self, kind: str, message: str, error: BaseException | None = None) -> None:
        """Keep an error: its kind, and its parts if it is one of refsim's."""
        if isinstance(error, RefsimError):
            got, need = (None if part is None else str(part) for part in (error.got, error.need))
            self.error = DocumentError(kind, message, error.where, error.what, got, need, error.hints)
        else:
            self.error = DocumentError(kind, message)

    def print(self, status: int) -> None:
        """Print the object, if there is anything to print."""
        failed = self.error if self.wanted else None
        if self.content is None and failed is None:
            return
        head = {"verb": self.verb, "schema": SCHEMA, "status": status}
        wrote = {"wrote": self.wrote} if self.wrote else {}
        content = head | (self.content or {}) | wrote | ({} if failed is None else {"error": plain(failed)})
        click.echo(strict_json.dumps(content, indent=1))


def as_line(verb: str, status: int, content: dict[str, Any]) -> str:
    """One of several objects of a command that goes on, in one line."""
    return strict_json.dumps({"verb": verb, "schema": SCHEMA, "status": status, **content})
