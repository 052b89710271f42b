"""What a verb returns: a value, from which its JSON, its schema and its text follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from refsim.cli.kit.text import Text
from refsim.core.status import DIFFERENT, SAME


class Result:
    """A frozen dataclass. Its fields with a meaning are the keys of the JSON object (`refsim.core.plain`)."""

    @property
    def status(self) -> int:
        """The exit status, asked for last. IncompleteError where nothing differs, but too little was compared."""
        return SAME

    def text(self) -> Text:
        """The sentences and tables for people."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Comparison(Result):
    """A result that says whether all is the same."""

    same: Annotated[bool, "Whether everything that was compared is the same, and enough was compared."]

    @property
    def status(self) -> int:
        return SAME if self.same else DIFFERENT


@dataclass(frozen=True)
class FileSize:
    """A file that was written."""

    file: Annotated[str, "Its name."]
    bytes: Annotated[int, "Its size."]
