"""Which modules are refsim's own, by how they are called: no build of upstream's, and no port, is called like that."""

from __future__ import annotations

from refsim.core.buffer import GUARD_WORDS
from refsim.core.push import MAX_PUSH_WORDS
from refsim.spirv.reflect import STORAGE_BUFFER, Interface


def is_own(declared: Interface) -> bool:
    """Whether every buffer of a module begins with refsim's guard words, and its push block has all of refsim's."""
    return (
        declared.push_bytes == 4 * MAX_PUSH_WORDS
        and bool(declared.bindings)
        and all(one.kind == STORAGE_BUFFER and one.nbytes == 4 * GUARD_WORDS for one in declared.bindings)
    )
