"""The search for the smallest program on which a test still fails: first operators, then memory, sizes and channels.

Operators are taken away by delta debugging (Zeller and Hildebrandt, 2002), after the shortest beginning that fails, and
the shortest end of that. What is kept at any time was seen to fail.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from refsim.core.errors import RefsimError
from refsim.device.reduce.parts import Part, parts, program_of
from refsim.device.reduce.smaller import Maker, smaller, static
from refsim.exec.model import built
from refsim.formats.pte.read import Pte, read_pte
from refsim.formats.vkgraph.read import Blob
from refsim.formats.vkgraph.schema import VkTensor
from refsim.graph.memory import with_objects

#: Whether a program still fails. It may raise `Over`.
Test = Callable[[bytes], bool]


class Over(Exception):
    """The time of a search is over."""


@dataclass(frozen=True)
class Reduced:
    """The smallest program that was found, and what it took. ``data`` is None where no smaller one fails.

    ``operators``: before and now. ``tried``: how many programs the test saw. ``ended``: nothing smaller is left to try,
    else the time was over, or somebody stopped it. ``shares``: tensors share memory, and without that it does not fail.
    """

    data: bytes | None
    operators: tuple[int, int]
    tried: int
    ended: bool
    shares: bool = False


@dataclass
class _Search:
    """What was tried, and the smallest program so far."""

    where: str
    fails: Test
    end: float
    smallest: Callable[[bytes], None]
    data: bytes | None = None
    tried: int = 0

    def __post_init__(self) -> None:
        self._seen: set[bytes] = set()

    def program(self, source: Pte) -> Pte:
        """The smallest so far."""
        return source if self.data is None else read_pte(self.data, self.where)

    def take(self, make: Maker) -> bool:
        """Try a program, and keep it if it fails. One that cannot be made, or not loaded, does not count."""
        try:
            data = make()
            digest = hashlib.sha256(data).digest()
            if digest in self._seen:
                return False
            self._seen.add(digest)
            built(read_pte(data, self.where), runs=False)
        except RefsimError:
            return False
        if time.monotonic() > self.end:
            raise Over
        self.tried += 1
        if not self.fails(data):
            return False
        self.data = data
        self.smallest(data)
        return True


def reduce(
    pte: Pte,
    fails: Test,
    end: float,
    smallest: Callable[[bytes], None] = lambda data: None,
) -> Reduced:
    """The smallest program found on which ``fails`` is true, as it must be of the program itself.

    ``end``: the time of `time.monotonic` at which the search stops. ``smallest`` is given each smaller program as it is
    found. GraphError for a program that cannot be cut.
    """
    every = parts(pte)
    search = _Search(pte.where, fails, end, smallest)
    shares = False
    try:
        kept = _fewest(every, lambda kept: search.take(partial(program_of, pte, kept)))
        search.take(partial(program_of, pte, kept, True))
        shares = _plainer(search, pte)
        while any(search.take(make) for make in smaller(search.program(pte))):
            pass  # until none fails
        ended = True
    except (Over, KeyboardInterrupt):
        ended = False
    now = len(every) if search.data is None else len(parts(read_pte(search.data, pte.where)))
    return Reduced(search.data, (len(every), now), search.tried, ended, shares)


def _fewest(every: Sequence[Part], fails: Callable[[Sequence[Part]], bool]) -> list[Part]:
    """The operators that are left when none of them can be left out."""
    kept = list(every)
    fails(kept)  # the whole program, written anew
    kept = kept[: _least(len(kept), lambda count: fails(kept[:count]))]
    kept = kept[len(kept) - _least(len(kept), lambda count: fails(kept[len(kept) - count :])) :]
    pieces = 2
    while len(kept) > 1:
        size = -(-len(kept) // pieces)
        chunks = [kept[at : at + size] for at in range(0, len(kept), size)]
        rests = [[part for part in kept if part not in chunk] for chunk in chunks]
        options = [*chunks, *rests] if len(chunks) > 2 else chunks
        found = next((option for option in options if fails(option)), None)
        if found is not None:
            kept, pieces = found, 2 if found in chunks else max(pieces - 1, 2)
        elif pieces >= len(kept):
            break
        else:
            pieces = min(2 * pieces, len(kept))
    return kept


def _least(count: int, fails: Callable[[int], bool]) -> int:
    """The least number that fails, where larger ones do; by halves."""
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(middle) else (middle, high)
    return high


def _plainer(search: _Search, source: Pte) -> bool:
    """The program without dynamic dims and without shared memory, if it fails so; whether memory stays shared."""
    search.take(partial(static, search.program(source)))
    pte = search.program(source)
    blobs = dict(pte.blobs(pte.plan()))
    if not any(map(_shares, blobs.values())):
        return False
    apart = {n: replace(blob, graph=with_objects(blob.graph, {})) for n, blob in blobs.items()}
    return not search.take(partial(program_of, replace(pte, held=apart), parts(pte)))


def _shares(blob: Blob) -> bool:
    """Whether two tensors of a delegate have one memory object."""
    held = [v.mem_obj_id for v in blob.graph.values if isinstance(v, VkTensor) and v.mem_obj_id >= 0]
    return len(set(held)) < len(held)
