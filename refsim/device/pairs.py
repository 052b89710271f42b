"""Two names of which each has got what the other wants, and when two buffers hold the same."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping

from refsim.core.buffer import PackedBuffer

#: How two exchanged buffers are told.
GOT = "{} where {} should be, and the other way round"


def pair(want: Mapping[str, Hashable], got: Mapping[str, Hashable]) -> tuple[str, str] | None:
    """The first two names of which each has got what the other wants; None without any. Keys are those of `key`."""
    holders = {held: name for name, held in got.items()}
    for name, wanted in want.items():
        other = holders.get(wanted)
        if other is not None and other != name and want[other] == got[name] != wanted:
            return name, other
    return None


def key(buffer: PackedBuffer) -> tuple[object, bytes]:
    """What two buffers have in common that hold the same elements of the same tensor."""
    return buffer.desc, hashlib.sha256(buffer.elements().tobytes()).digest()
