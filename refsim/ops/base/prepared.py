"""A call that is ready to run many times."""

from __future__ import annotations

import numpy as np

from refsim.core.buffer import surrounded
from refsim.ops.base.spec import Call


class Prepared:
    """A call with its dispatches, computed once. Constants are laid out when a kernel first asks for them, and kept."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.dispatches = call.dispatches()
        self._words: dict[str, np.ndarray] = {}

    @property
    def constants(self) -> tuple[str, ...]:
        """Names of the constants that the dispatches read."""
        return tuple(
            dict.fromkeys(n for step in self.dispatches for n in step.inputs if n in self.call.consts)
        )

    def words(self, name: str) -> np.ndarray:
        """The words of a constant, the same array every time."""
        if name not in self._words:
            self._words[name] = surrounded(self.laid_out(name))
        return self._words[name]

    def laid_out(self, name: str) -> np.ndarray:
        """The words of a constant, as the dispatches read them, in a new array."""
        return self.call.words(name)
