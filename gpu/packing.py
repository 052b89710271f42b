"""Weights as a folder's own modules pack them: compared with what refsim packs, and bound where a kernel reads them.

A module that packs otherwise is asked what it does: its weights are numbered, and packed again. So each byte that it
writes tells which element it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import prod

import numpy as np

from refsim.core.counted import counted
from refsim.core.errors import PackingError
from refsim.exec.executor import Tries
from refsim.formats.module_folder import SUFFIX
from refsim.ops.base.module_call import Bind, Host, ModuleDispatch, dispatches, packing_dispatches
from refsim.ops.base.spec import Call
from refsim_gpu import edited
from refsim_gpu.module_pipelines import ModulePipelines


@dataclass(frozen=True)
class Plan:
    """What is dispatched for a call. ``wrong``: one of the folder's own modules packs weights otherwise than refsim."""

    steps: Sequence[ModuleDispatch]
    wrong: PackingError | None = None


def planned(pipelines: ModulePipelines, call: Call, host: Host, steps: Sequence[ModuleDispatch]) -> Plan:
    """The dispatches of a call, with weights as the host's own modules pack them, if it has such modules."""
    wrong, packed = None, dict[str, np.ndarray]()
    for packer in packing_dispatches(call, host):
        pipelines.check(packer)
        to, right = packer.binds[0], _constant(steps, packer.binds[0].what)
        assert right.words is not None
        words = pipelines.run(packer, {})[to.buffer][: right.words.size]
        if not np.array_equal(words, right.words):
            wrong = wrong or _otherwise(pipelines, call, host, packer, words, right.words)
            if to.storage == right.storage:
                packed[to.what] = words
    if packed:
        steps = [replace(step, binds=tuple(_bound(bind, packed) for bind in step.binds)) for step in steps]
    return Plan(steps, wrong)


def right_edits(
    pipelines: ModulePipelines, packer: ModuleDispatch, steps: Sequence[ModuleDispatch], tries: Tries
) -> list[int]:
    """The choices, by number, with which a packing module gives the words that refsim packs."""
    to = packer.binds[0]
    words = _constant(steps, to.what).words
    assert words is not None
    wanted = replace(tries, compared=np.ones(words.nbytes, bool), wanted=(words.view(np.uint8),))
    return edited.right(
        pipelines, [packer], {}, wanted, lambda made: made[: words.size].view(np.uint8), to.buffer
    )


def _constant(steps: Sequence[ModuleDispatch], what: str) -> Bind:
    """Where a constant is bound, as refsim packs it."""
    return next(bind for step in steps for bind in step.binds if bind.what == what and bind.words is not None)


def _bound(bind: Bind, packed: dict[str, np.ndarray]) -> Bind:
    return replace(bind, words=packed.get(bind.what, bind.words))


# --- what a module does that packs otherwise --------------------------------------------------------------


def _otherwise(
    pipelines: ModulePipelines,
    call: Call,
    host: Host,
    packer: ModuleDispatch,
    words: np.ndarray,
    right: np.ndarray,
) -> PackingError:
    """The error that names the first byte that differs, and the element that is there in place of another one."""
    made, wanted = words.view(np.uint8), right.view(np.uint8)
    wrong = np.flatnonzero(made != wanted)
    first, elements = int(wrong[0]), _Elements.of(call, packer)
    held, needed = elements.asked(pipelines, call, host, packer)
    said = (
        f"packs {elements} otherwise, in {len(np.unique(wrong // 16))} of {counted(right.size // 4, 'texel')}"
    )
    if (order := elements.order(held, needed)) is not None:
        said += f", as if its dims lay in the order {order}"
    y, x = divmod(first // 16, packer.global_size[0])
    return PackingError(
        f"{packer.shader}{SUFFIX}",
        f"{said}; the first is texel ({x}, {y}), word {first // 4 % 4}, byte {first % 4}",
        got=elements.named(int(held[first]), int(made[first])),
        need=f"{elements.named(int(needed[first]), int(wanted[first]))} ({elements.dims})",
    )


@dataclass(frozen=True)
class _Elements:
    """The elements of a weight, numbered from 1 as they lie; rows may be longer than they have elements.

    ``numbers`` are those of the elements by index, ``dims`` says what the index is.
    """

    what: str
    numbers: np.ndarray
    dims: str

    @classmethod
    def of(cls, call: Call, packer: ModuleDispatch) -> _Elements:
        what = packer.binds[0].what
        value, sizes = _value(call, what), np.frombuffer(packer.push, "<i4")[4:]
        shape = tuple(map(int, sizes)) if len(sizes) > 2 else value.shape
        rows = np.arange(1, value.size + 1).reshape(len(value), -1)
        return cls(what, rows[: shape[0], : prod(shape[1:])].reshape(shape), _DIMS[len(shape)])

    def __str__(self) -> str:
        return f"{self.what} {list(self.numbers.shape)}"

    def named(self, number: int, byte: int) -> str:
        """The index of an element; a byte that is none."""
        found = np.argwhere(self.numbers == number)
        return str(found[0].tolist()) if len(found) else f"{byte:#04x}"

    def asked(
        self, pipelines: ModulePipelines, call: Call, host: Host, packer: ModuleDispatch
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which element each byte holds, and which it should; 0 is padding.

        Each run packs one byte of every number, the first one none: kernels of unsigned bytes have 128 for 0.
        """
        value, runs = _value(call, self.what), []
        numbers = np.arange(1, value.size + 1).reshape(value.shape)
        for digit in (numbers * 0, numbers, numbers >> 8, numbers >> 16):
            bytes_ = (digit & 255).astype(np.uint8).view(np.int8)
            numbered = replace(call, consts={**call.consts, self.what: bytes_})
            right = _constant(dispatches(numbered, host), self.what).words
            assert right is not None
            again = next(one for one in packing_dispatches(numbered, host) if one.shader == packer.shader)
            made = pipelines.run(again, {})[again.binds[0].buffer][: right.size]
            runs.append(np.stack([made.view(np.uint8), right.view(np.uint8)]).astype(np.int64))
        none, *digits = runs
        held, needed = sum((digit ^ none[1]) << 8 * k for k, digit in enumerate(digits))
        return held, needed

    def order(self, held: np.ndarray, needed: np.ndarray) -> str | None:
        """The order of the dims in which the elements would have to lie, if that explains every byte."""
        shape, there = self.numbers.shape, np.zeros(int(self.numbers.max()) + 1, np.int64)
        for order in permutations(range(len(shape))):
            lying = self.numbers.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))
            there[self.numbers.reshape(-1)] = lying.reshape(-1)
            if np.array_equal(held, there[needed]):
                return ", ".join(map(str, order))
        return None


#: What the index of an element is, by its length.
_DIMS = {
    4: "output channel, kernel row, kernel column, input channel", 3: "kernel row, kernel column, channel", 2: "row, K",
}  # fmt: skip


def _value(call: Call, what: str) -> np.ndarray:
    value = call.consts[what]
    assert value is not None
    return value
