"""What no line of a kernel says, as edits: of the words that it is launched with, and of the words that it reads.

The kernel stays the true one. `launched` has the edits of push and specialization words, `loaded` those of buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refsim.bytediff.search.plain import int32

#: (the words of a buffer, which of them, how many there are) -> what a wrong kernel finds there. The words are int32
#: or more bits of them; which of them is one number, or an array of these.
Read = Callable[[Any, Any, int], Any]


@dataclass(frozen=True, eq=False)
class DeviceEdit:
    """A class, the edit in words, and what is otherwise: push and specialization words by name, buffers by argument.

    ``rounded``: the grid is rounded down to whole workgroups. It holds for all dispatches of a call that have these
    names, or for the one numbered ``only``.
    """

    name: str
    detail: str
    push: Mapping[str, int] = field(default_factory=dict)
    spec: Mapping[str, int] = field(default_factory=dict)
    read: Mapping[str, Read] = field(default_factory=dict)
    only: int | None = None
    rounded: bool = False

    def holds(self, number: int) -> bool:
        """Whether it is an edit of the dispatch with this number."""
        return self.only is None or self.only == number

    @property
    def moves(self) -> bool:
        """Whether it may change the place of what is written."""
        return any(name.startswith("OUT") for name in (*self.push, *self.spec))


class Loaded:
    """The words of a buffer as a wrong kernel finds them, each when it is read."""

    def __init__(self, words: Any, read: Read) -> None:
        self.words, self.read, self.size = words, read, words.size

    def __getitem__(self, at: Any) -> Any:
        if not 0 <= at < self.size:
            return self.words[at]
        return int32(int(self.read(self.words, at, self.size)))


def loaded(words: np.ndarray, read: Read) -> np.ndarray:
    """All words of a buffer (int32) as a wrong kernel finds them."""
    behind = np.append(words.astype(np.int64), np.zeros(4, np.int64))
    found = np.asarray(read(behind, np.arange(words.size), words.size))
    return np.broadcast_to((found & 0xFFFFFFFF).astype(np.uint32).view(np.int32), words.shape)


def real(words: Any) -> np.ndarray:
    """The binary32 numbers whose bits these words hold."""
    return np.asarray(np.asarray(words, np.int64) & 0xFFFFFFFF, np.uint32).view(np.float32)


def bits(values: Any) -> Any:
    """The words that hold these numbers as binary32."""
    return np.asarray(values, np.float32).view(np.int32).astype(np.int64)
