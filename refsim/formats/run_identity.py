"""Which run buffers are of: digests of the file and of its inputs, which dumps carry in their sidecars."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refsim.formats.file import read_file
from refsim.formats.typed_json import Count, Sha256, typed

#: Where a sidecar says it: ``"run": {"file": SHA-256, "inputs": SHA-256}``.
KEY = "run"
DIGESTS = ("file", "inputs")


@dataclass(frozen=True)
class RunIdentity:
    """SHA-256 of the file and of the inputs, in hexadecimal; None where that is not known.

    ``random``: the seed that the inputs were drawn from, if they were.
    """

    file: Sha256 | None = None
    inputs: Sha256 | None = None
    random: Count | None = None

    def as_json(self) -> dict[str, Any]:
        return {name: said for name, said in vars(self).items() if said is not None}

    def differs(self, other: RunIdentity) -> str | None:
        """``file`` or ``inputs``: what both know and know differently; None if there is no such thing."""
        for name in DIGESTS:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is not None and theirs is not None and mine != theirs:
                return name
        return None


def other_text(what: str) -> str:
    """What `RunIdentity.differs` found, in words: ``of another file``, ``of other inputs``."""
    return "of another file" if what == "file" else "of other inputs"


def identity(
    path: str | os.PathLike[str], inputs: Sequence[np.ndarray], random: int | None = None
) -> RunIdentity:
    """The identity of a run of this file on these inputs; FormatError if the file cannot be read.

    ``random``: the seed that they were drawn from.
    """
    return RunIdentity(hashlib.sha256(read_file(path)).hexdigest(), inputs_digest(inputs), random)


def inputs_digest(inputs: Sequence[np.ndarray]) -> str:
    """SHA-256 over dtype, shape and bytes of each array, in order."""
    digest = hashlib.sha256()
    for array in inputs:
        digest.update(f"{array.dtype.str} {list(array.shape)};".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def from_sidecar(content: Mapping[str, Any], where: str) -> RunIdentity:
    """What a sidecar says of its run; FormatError if that is no identity."""
    return typed(RunIdentity, content.get(KEY, {}), f"{where}: {KEY}")
