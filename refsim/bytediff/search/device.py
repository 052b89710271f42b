"""What no line of a kernel says, as edits: of the words that it is launched with, and of the words that it reads.

The kernel stays the true one. `launched` has the edits of push and specialization words, `loaded` those of buffers,
`weights` those of weights, and `host` those of the functions that make them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import product
from typing import Any, TypeVar

import numpy as np

from refsim.bytediff.search.plain import int32
from refsim.bytediff.search.words import Place
from refsim.core.buffer import with_outside
from refsim.core.launch import Triple

#: (the words of a buffer, which of them, how many there are) -> what a wrong kernel finds there. The words are int32
#: or more bits of them; which of them is one number, or an array of these.
Read = Callable[[Any, Any, int], Any]
#: A class, words, and what a wrong kernel finds.
Told = Iterator[tuple[str, str, Read]]
Fit = TypeVar("Fit")
#: Push words that no kernel computes an index from, by how their names end.
_NUMBERS = re.compile("(ZP|SCALE|INV|ALPHA)$")


@dataclass(frozen=True, eq=False)
class DeviceEdit:
    """A class, the edit in words, and what is otherwise: push and specialization words by name, buffers by argument.

    ``reached``: fewer work items run, (z, y, x) of them. It holds for all dispatches of a call that have these names,
    or for the one numbered ``only``. ``place``: the line of the host that has the edit, if one has.
    """

    name: str
    detail: str
    push: Mapping[str, int] = field(default_factory=dict)
    spec: Mapping[str, int] = field(default_factory=dict)
    read: Mapping[str, Read] = field(default_factory=dict)
    only: int | None = None
    reached: Triple | None = None
    place: Place | None = None

    @property
    def fewer(self) -> bool:
        """Whether some work items do not run."""
        return self.reached is not None

    def holds(self, number: int) -> bool:
        """Whether it is an edit of the dispatch with this number."""
        return self.only is None or self.only == number

    @property
    def keeps_indices(self) -> bool:
        """Whether kernels index as they did: nothing but zero points, scales and what buffers hold is otherwise."""
        return not self.spec and all(_NUMBERS.search(name) for name in self.push)

    @property
    def moves(self) -> bool:
        """Whether it may change the place of what is written."""
        return any(name.startswith("OUT") for name in (*self.push, *self.spec))


class Loaded:
    """The words of a buffer as a wrong kernel finds them, each when it is read."""

    def __init__(self, words: Any, read: Read) -> None:
        self.words, self.read, self.length, self.size = words, read, words.length, words.size

    def __getitem__(self, at: Any) -> Any:
        if not 0 <= at < self.length:
            return self.words[at]
        return int32(int(self.read(self.words, at, self.length)))


def loaded(words: np.ndarray, read: Read, guards: int = 0) -> np.ndarray:
    """All words of a buffer (int32) as a wrong kernel finds them; ``guards`` lie around it."""
    around = with_outside(words, guards).astype(np.int64)
    found = np.asarray(read(around, np.arange(words.size), words.size))
    return np.broadcast_to((found & 0xFFFFFFFF).astype(np.uint32).view(np.int32), words.shape)


def of_reals(other: Callable[..., Any], *words: Any) -> Any:
    """The word of the binary32 number that a function makes of those of other words."""
    bits = (np.asarray(word, np.int64) & 0xFFFFFFFF for word in words)
    numbers = (np.asarray(word, np.uint32).view(np.float32) for word in bits)
    with np.errstate(all="ignore"):
        return np.asarray(other(*numbers), np.float32).view(np.int32).astype(np.int64)


#: What a wrong kernel takes a whole number for, and a float: in words -> the number that it has.
INTEGERS: dict[str, Callable[[Any], Any]] = {
    "one too large": lambda number: number + 1,
    "one too small": lambda number: number - 1,
    "doubled": lambda number: 2 * number,
    "negated": lambda number: -number,
}
REALS: dict[str, Callable[[Any], Any]] = {
    "doubled": lambda number: 2 * number,
    "halved": lambda number: number / 2,
    "negated": lambda number: -number,
    "taken as 1": np.ones_like,
    "applied twice": lambda number: number * number,
    "taken as its inverse": lambda number: 1 / number,
}


def first_fit(rows: Iterable[tuple[str, Fit]], name: str) -> Fit:
    """What the first row says whose pattern a name has."""
    return next(found for pattern, found in rows if re.search(pattern, name))


def valued(other: Callable[[Any], Any]) -> Read:
    """Each word as another one, which is made of it alone."""
    return lambda words, at, size: other(words[at])


def placed(place: Callable[[Any], Any]) -> Read:
    """The word of another place, which a place leads to."""
    return lambda words, at, size: words[place(at)]


def placed_by(said: str, place: Callable[..., Any], *numbers: Iterable[int]) -> dict[str, Read]:
    """In words, the word of another place: one for each choice of the numbers that lead there."""
    return {said.format(*chosen): placed(partial(place, *chosen)) for chosen in product(*numbers)}


def rolled(by: int) -> Read:
    """The word so many places away."""
    return lambda words, at, size: words[at + by]


def gathered(made: Callable[[], np.ndarray]) -> Read:
    """The word of the place that an array names for each word, in its order; -1 names none: 0 is found."""
    places = cache(made)  # when it is first read

    def read(words: Any, at: Any, size: int) -> Any:
        place = places().flat[at]
        return words[place] * (place >= 0)

    return read


def masked(bits: Callable[[Any], Any]) -> Read:
    """Those bits of a word that its place has: -1 has all."""
    return lambda words, at, size: words[at] & bits(at)


def _of_bytes(place: Callable[[Any, int], tuple[Any, Any]]) -> Read:
    """A word of other bytes: of each of its four the place says which word has it, and which byte it is there."""

    def read(words: Any, at: Any, size: int) -> Any:
        found = 0
        for lane in range(4):
            word, byte = place(at, lane)
            found = found | (words[word] >> 8 * byte & 255) << 8 * lane
        return found

    return read


#: (class, in words, what is found): a word's bytes in another order, or words of a block.
IN_WORDS: tuple[tuple[str, str, Read], ...] = (
    ("lanes rotated", "words rotated by 1", _of_bytes(lambda at, lane: (at, (lane - 1) % 4))),
    ("lanes rotated", "words rotated by 2", _of_bytes(lambda at, lane: (at, (lane - 2) % 4))),
    ("lanes rotated", "words rotated by 3", _of_bytes(lambda at, lane: (at, (lane - 3) % 4))),
    ("byte order", "bytes reversed", _of_bytes(lambda at, lane: (at, 3 - lane))),
    ("byte order", "bytes in pairs exchanged", _of_bytes(lambda at, lane: (at, lane ^ 1))),
    ("unsigned lanes", "the sign bit of each byte flipped", valued(lambda word: word ^ 0x80808080)),
    ("block transposed", "4 x 4 blocks transposed", _of_bytes(lambda at, lane: (at // 4 * 4 + lane, at % 4))),
    ("block transposed", "the first word of each block of 4 repeated", placed(lambda at: at // 4 * 4)),
)


def first(count: int, read: Read) -> Read:
    """So many words as they are found otherwise, and those behind them as they are."""

    def found(words: Any, at: Any, size: int) -> Any:
        if isinstance(at, np.ndarray):
            return np.where(at < count, read(words, np.minimum(at, count - 1), count), np.asarray(words)[at])
        return read(words, at, count) if at < count else words[at]

    return found


def words_of(other: np.ndarray) -> Read:
    """The words of another buffer, and its own behind them."""
    held = other.astype(np.int64)
    return first(len(held), lambda words, at, size: held[at])
