"""Who writes what: the coordinates of each cell of a buffer, and the GPU invocation that writes a word."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from refsim.core import index
from refsim.core.launch import Launch, Triple
from refsim.core.tensor import TensorDesc
from refsim.ops.base.module_call import WrittenOutput
from refsim.ops.base.registry import kernel_of
from refsim.ops.base.spec import Call

Coordinates = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Geometry:
    """How a dispatch was launched, and the work item that writes each word of its output: int64 (3, words).

    For kernels that others launch: ``launch`` says their grid and workgroup.
    """

    launch: Launch
    items: np.ndarray

    @classmethod
    def of(cls, call: Call, last: WrittenOutput) -> Geometry:
        """How a host launches the module that writes a call's output."""
        x, y, z = (-(-size // local) for size, local in zip(last.global_size, last.local, strict=True))
        steps = call.dispatches()
        launch = replace(
            steps[-1].launch if steps else Launch(last.shader, call.out, (), (), last.global_size),
            global_size=last.global_size,
            local=last.local,
            tile=(1, 1, 1),
            grid=(x, y, z),
        )
        return cls(launch, last.items)


@dataclass(frozen=True)
class Writer:
    """The work item that writes a word; the workgroup, and the invocation in it."""

    work_item: Triple
    workgroup: Annotated[Triple, "Its workgroup."]
    invocation: Annotated[Triple, "Its place in that."]


def coordinates(desc: TensorDesc) -> Coordinates:
    """(n, c, h, w) of every cell of a buffer, padding included: int64 arrays, in physical order."""
    places = np.arange(desc.buffer_numel, dtype=np.int64)
    w, h, c, n = (np.broadcast_to(a, places.shape) for a in index.coord(desc.meta, 0, desc.hashed, places))
    return n, c, h, w


def work_items(launch: Launch, words: np.ndarray | None = None) -> np.ndarray:
    """The work item (x, y, z) that writes each word of its output, or each of these: int64 (3, words)."""
    out = launch.out
    words = np.arange(out.words, dtype=np.int64) if words is None else words
    w, h, c, n = index.coord(out.meta, 0, out.hashed, words * (4 if out.is_int8 else 1))
    item = kernel_of(launch.shader).work_item(launch, words, w, h, c, n)
    return np.stack([np.broadcast_to(along, words.shape) for along in item])


def writers(launch: Launch, items: np.ndarray) -> list[Writer]:
    """The workgroups and invocations of work items: int64 (3, items)."""
    parts = (list(items), *launch.invocation(list(items)))
    triples = (map(tuple, np.stack(part, 1).tolist()) for part in parts)
    return [Writer(*who) for who in zip(*triples, strict=True)]
