"""The description of a folder of modules, as somebody edits it."""

from __future__ import annotations

from refsim.formats import kernels


class EditedFile:
    """The file ``refsim.toml`` of a folder of modules, or such a file itself, as somebody edits it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._known = self._last = self._look()

    def changed(self) -> bool:
        """Whether it holds other bytes than when this was true last, or is new or gone; does not wait.

        Bytes count once they are found twice: an editor may write them in several pieces.
        """
        before, self._last = self._last, self._look()
        if self._last == self._known or self._last != before:
            return False
        self._known = self._last
        return True

    def _look(self) -> bytes | None:
        _, file = kernels.find(self.path)
        if file is None:
            return None
        try:
            with open(file, "rb") as opened:
                return opened.read(kernels.MAX_BYTES + 1)
        except OSError:  # somebody replaces it
            return None
