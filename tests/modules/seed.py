"""A seeded bug: an edit of a piece of text that occurs once in one source."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from refsim.core.errors import FormatError


@dataclass(frozen=True)
class Seed:
    """Where a bug is, the operator that it shows in, and the names of the causes that are true of it."""

    id: str
    op: str
    file: str
    anchor: str
    replacement: str
    causes: tuple[str, ...]

    def sown(self, sources: Path, folder: Path) -> Path:
        """A copy of the sources with the bug; FormatError if the text to be replaced does not occur exactly once."""
        shutil.copytree(sources, folder, dirs_exist_ok=True)
        text = (folder / self.file).read_text()
        if text.count(self.anchor) != 1:
            raise FormatError(
                self.id, "its text is not in the source once", got=text.count(self.anchor), need=self.file
            )
        (folder / self.file).write_text(text.replace(self.anchor, self.replacement))
        return folder
