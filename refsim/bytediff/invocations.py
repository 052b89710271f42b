"""Who writes what: the coordinates of each cell of a buffer, and the GPU invocation that writes a word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

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


def work_items(launch: Launch) -> np.ndarray:
    """The work item (x, y, z) that writes each word of its output: int64 (3, words)."""
    words = np.arange(launch.out.words, dtype=np.int64)
    return np.stack([np.broadcast_to(along, words.shape) for along in _work_item(launch, words)])


def writer(launch: Launch, word: int) -> Writer:
    """Who writes one word of the launch's output."""
    return named(launch, _work_item(launch, np.int64(word)))


def named(launch: Launch, work_item: Sequence[Any]) -> Writer:
    """The workgroup and the invocation of a work item."""
    item = _triple(work_item)
    group, invocation = launch.invocation(item)
    return Writer(item, _triple(group), _triple(invocation))


def _work_item(launch: Launch, words: np.ndarray | np.int64) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    out = launch.out
    w, h, c, n = index.coord(out.meta, 0, out.hashed, words * (4 if out.is_int8 else 1))
    return kernel_of(launch.shader).work_item(launch, words, w, h, c, n)


def _triple(values: object) -> Triple:
    x, y, z = (int(value) for value in values)  # type: ignore[attr-defined]
    return x, y, z
