"""Pipelines of modules that another build made. Each has buffers of its own, so that equal dispatches share it.

The buffers lie between guard words. Kompute records no barrier between dispatches, so each dispatch is a sequence.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from refsim.core.buffer import FILL, GUARD_WORDS, PackedBuffer
from refsim.core.counted import counted
from refsim.core.errors import GuardError
from refsim.core.layout import Layout
from refsim.ops.base.host import tensor
from refsim.ops.base.module_call import Bind, ModuleDispatch
from refsim.spirv.rewrite import Rewritten
from refsim_gpu.kompute import Device
from refsim_gpu.module_folder import Loaded, ModuleFolder
from refsim_gpu.pipelines import GUARD_WORD

#: Bytes of the buffers of all pipelines that are kept for the next call.
MOST_KEPT = 1 << 28
FILL_WORD = np.uint32(0x01010101 * FILL)


class Pipeline:
    """One dispatch over buffers of its own: content is written, the kernel runs, what it may write is read back."""

    def __init__(
        self,
        device: Device,
        loaded: Loaded,
        rewritten: Rewritten,
        dispatch: ModuleDispatch,
        where: str,
        extra: Sequence[np.ndarray] = (),
    ):
        """``extra`` are the words at further bindings, which are read back as well."""
        self.device, self.where, self.stamp, self.local = device, where, loaded.stamp, dispatch.local
        declared = {binding.number: binding for binding in loaded.interface.bindings}
        launched = dispatch.own is not None and dispatch.own.launched
        self.fill = 0 if launched else FILL_WORD  # refsim's kernels leave words of padding as they are
        self.fronts = fronts_of(rewritten, dispatch)
        self.counts = [bind.count for bind in dispatch.binds]
        self.tensors = [
            device.tensor(np.full(front + count + GUARD_WORDS, GUARD_WORD, np.uint32))
            for front, count in zip(self.fronts, self.counts, strict=True)
        ]
        self.extra = [device.tensor(words) for words in extra]
        self.written = [
            number for number in range(len(self.tensors)) if number in declared and declared[number].writable
        ]
        algorithm = device.algorithm(
            rewritten.code,
            [*self.tensors, *self.extra],
            dispatch.grid,
            spec(dispatch, loaded, rewritten),
            np.frombuffer(dispatch.push, "<u4").tolist(),
            local=dispatch.local,
            where=where,
        )
        kp = device.kp
        self.sequence = device.recorded(
            kp.OpTensorSyncDevice([*self.tensors, *self.extra]),
            device.dispatch(algorithm),
            kp.OpTensorSyncLocal([*(self.tensors[number] for number in self.written), *self.extra]),
        )

    @property
    def nbytes(self) -> int:
        return sum(4 * (front + count) for front, count in zip(self.fronts, self.counts, strict=True))

    def run(self, contents: Sequence[np.ndarray | None], binds: Sequence[Bind]) -> dict[int, np.ndarray]:
        """Dispatch over these words (None: an output, filled); what the bindings that it writes then hold.

        GuardError if a word outside an output was written, DeviceError if the device was lost.
        """
        for number, content in enumerate(contents):
            memory, front = self.tensors[number].data(), self.fronts[number]
            memory[:] = GUARD_WORD
            inner = memory[front : front + self.counts[number]]
            inner[:] = self.fill if content is None else 0
            if content is not None:
                inner[: content.size] = content
        self.device.run(self.sequence, where=self.where)
        found = {}
        for number in self.written:
            words = np.array(self.tensors[number].data(), np.uint32)
            front, count = self.fronts[number], self.counts[number]
            self._check(binds[number], words, front, count, contents[number])
            found[number] = words[front : front + count]
        return found

    def _check(
        self, bind: Bind, words: np.ndarray, front: int, count: int, content: np.ndarray | None
    ) -> None:
        """GuardError if guard words changed, or any word of what is an input."""
        whole = np.full(words.size, GUARD_WORD, np.uint32)
        whole[front : front + count] = 0
        if content is None:
            whole[front : front + count] = words[front : front + count]
        else:
            whole[front : front + content.size] = content
        broken = np.flatnonzero(whole != words)
        if broken.size:
            at = int(broken[0]) - front
            place = "before" if at < 0 else "behind" if at >= count else "to its input, which is"
            size = f"{bind.desc}" if bind.desc is not None else counted(count, "word")
            what = f"wrote {place} the buffer of {bind.what}, {size}"
            error = GuardError(self.where, what, got=f"a write to word {at}")
            if content is None and bind.desc is not None and bind.desc.words <= count:
                error.buffer = PackedBuffer(bind.desc)  # so that what lies inside can be compared
                error.buffer.words[:] = words[front : front + bind.desc.words].view(np.int32)
            raise error


def fronts_of(rewritten: Rewritten, dispatch: ModuleDispatch) -> list[int]:
    """Words in front of each buffer's content: a block's own, and guards where an array without a length is shifted."""
    arrays = {one.number: GUARD_WORDS + one.nbytes // 4 for one in rewritten.bindings if one.stride}
    return [arrays.get(number, 0) for number in range(len(dispatch.binds))]


def given(
    step: ModuleDispatch, inputs: Mapping[str, PackedBuffer], buffers: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The words of the tensors that a step reads, by buffer: of the call's inputs, or of what steps before it wrote."""
    return {
        bind.buffer: _content(bind, inputs[bind.buffer]) if bind.buffer in inputs else buffers[bind.buffer]
        for bind in step.binds
        if bind.buffer and not bind.writes
    }


def _content(bind: Bind, buffer: PackedBuffer) -> np.ndarray:
    """The words of a tensor as it lies in what is bound: a buffer, in another layout perhaps, or an image."""
    assert bind.desc is not None
    if bind.storage == "buffer":
        return _laid(buffer, bind.desc.layout).words
    return tensor.to_texels(buffer.unpack(), bind.desc)


def _laid(buffer: PackedBuffer, layout: Layout) -> PackedBuffer:
    """The elements in a layout: the buffer itself, if that is its own."""
    own = buffer.desc.layout == layout
    return buffer if own else PackedBuffer.pack(buffer.unpack(), layout, dtype=buffer.desc.dtype)


def contents(dispatch: ModuleDispatch, buffers: Mapping[str, np.ndarray]) -> list[np.ndarray | None]:
    """The words of each binding, of ``buffers`` by name where they are no constants; None for what is written."""
    found: list[np.ndarray | None] = []
    for bind in dispatch.binds:
        given = bind.words if bind.words is not None else buffers.get(bind.buffer)
        found.append(None if bind.writes or given is None else given.view(np.uint32).reshape(-1))
    return found


def spec(dispatch: ModuleDispatch, loaded: Loaded, rewritten: Rewritten) -> list[int]:
    """The specialization words from id 0 on: the host's, then the extents of images; defaults between them."""
    given = dict(dispatch.spec_words)
    for number, ids in rewritten.extent_ids.items():
        given |= dict(zip(ids, dispatch.binds[number].extent, strict=False))
    defaults = loaded.interface.spec_ids
    return [given.get(number, defaults.get(number, 0)) for number in range(max(given, default=-1) + 1)]


def key_of(dispatch: ModuleDispatch, loaded: Loaded) -> tuple[Any, ...]:
    """What a pipeline is made of: dispatches with equal keys can share one. The words of the buffers are no part."""
    shapes = tuple((bind.count, bind.extent, bind.writes) for bind in dispatch.binds)
    numbers = (dispatch.push, dispatch.spec, dispatch.grid, dispatch.local)
    return (dispatch.shader, loaded.stamp, shapes, *numbers)


class ModulePipelines:
    """The pipelines of a folder's modules on a device, the least recently used of which make room for others."""

    def __init__(self, device: Device, folder: ModuleFolder, most: int = MOST_KEPT) -> None:
        self.device, self.folder, self.most = device, folder, most
        self._kept: OrderedDict[tuple[Any, ...], Pipeline] = OrderedDict()

    def close(self) -> None:
        self._kept.clear()

    def check(self, dispatch: ModuleDispatch) -> None:
        """Raise what is wrong with the module of a dispatch, without dispatching it."""
        self.folder.rewritten(dispatch)

    def run(self, dispatch: ModuleDispatch, buffers: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The words of the buffers that a dispatch writes, by name; ``buffers`` are those that it reads."""
        found = self.pipeline(dispatch).run(contents(dispatch, buffers), dispatch.binds)
        return {bind.buffer: found[number] for number, bind in enumerate(dispatch.binds) if bind.writes}

    def pipeline(self, dispatch: ModuleDispatch) -> Pipeline:
        """The pipeline of a dispatch, kept or new."""
        loaded, rewritten = self.folder.rewritten(dispatch)
        key = key_of(dispatch, loaded)
        known = self._kept.pop(key, None)
        if known is None:
            known = Pipeline(self.device, loaded, rewritten, dispatch, str(self.folder.file(dispatch.shader)))
        self._kept[key] = known
        while len(self._kept) > 1 and sum(one.nbytes for one in self._kept.values()) > self.most:
            self._kept.popitem(last=False)
        return known
