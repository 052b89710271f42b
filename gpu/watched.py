"""One dispatch in an instrumented pipeline, over memory whose foreign parts are chosen, in an order that is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from refsim.core.buffer import GUARD_WORDS, ByteKind, byte_kinds
from refsim.core.launch import Triple
from refsim.exec.finding import Invocation
from refsim.ops.base.module_call import Bind, ModuleDispatch
from refsim.spirv.instrument import PARAMETERS, Instrumented, RunChoice, instrumented
from refsim.spirv.module import Module
from refsim.spirv.writers import RECORD
from refsim_gpu.module_pipelines import FILL_WORD, GUARD_WORD, ModulePipelines, Pipeline, fronts_of

#: Kinds of foreign memory.
BEFORE, BEHIND, PRIOR, PADDING, SHARED, VARIABLES = range(6)


class Source(NamedTuple):
    """Memory whose content must make no difference: of one binding, or (-1) the kernel's own."""

    kind: int
    number: int = -1


@dataclass(frozen=True, eq=False)
class Run:
    """What one run wrote: the words of each output by binding, and each record, a row of four for each word."""

    outputs: dict[int, np.ndarray]
    records: dict[int, np.ndarray]


class Watched:
    """One dispatch in an instrumented pipeline, which counts in how many runs it ran."""

    def __init__(self, pipelines: ModulePipelines, dispatch: ModuleDispatch) -> None:
        loaded, rewritten = pipelines.folder.rewritten(dispatch)
        where = str(pipelines.folder.file(dispatch.shader))
        self.stamp, self.dispatch = loaded.stamp, dispatch
        whole = Module.parse(rewritten.code, where)
        self.made: Instrumented = instrumented(whole, rewritten.bindings, len(dispatch.binds))
        self.records = sorted(self.made.records, key=lambda number: self.made.records[number])
        front = fronts_of(rewritten, dispatch)
        sizes = [front[n] + dispatch.binds[n].count + GUARD_WORDS for n in self.records]
        extra = [np.zeros(PARAMETERS, np.uint32), *(np.zeros(RECORD * (n + 1), np.uint32) for n in sizes)]
        code = rewritten._replace(code=self.made.code)
        self.pipeline = Pipeline(pipelines.device, loaded, code, dispatch, where, extra)
        self.fronts = self.pipeline.fronts

    def run(
        self, contents: Sequence[np.ndarray | None], variants: Mapping[Source, int], choice: RunChoice
    ) -> Run:
        """Dispatch over these words, with another variant of each source that is named, in the order of ``choice``."""
        pipeline, binds = self.pipeline, self.dispatch.binds
        for number, (bind, content) in enumerate(zip(binds, contents, strict=True)):
            memory = pipeline.tensors[number].data()
            memory[:] = _memory(memory.size, self.fronts[number], bind, content, number, variants)
        choice = choice._replace(
            shared=_word(variants.get(Source(SHARED), 0)), variables=_word(variants.get(Source(VARIABLES), 0))
        )
        parameters, *records = pipeline.extra
        parameters.data()[:] = np.array(choice.words(self.dispatch.local, self.dispatch.grid), np.uint32)
        for record in records:
            record.data()[:] = 0
        pipeline.device.run(pipeline.sequence, where=pipeline.where)
        outputs = {}
        for number, bind in enumerate(binds):
            if bind.writes:
                front = self.fronts[number]
                outputs[number] = np.array(
                    pipeline.tensors[number].data()[front : front + bind.count], np.uint32
                )
        rows = {
            number: np.array(record.data(), np.uint32).reshape(-1, RECORD)
            for number, record in zip(self.records, records, strict=True)
        }
        return Run(outputs, rows)

    def worker(self, number: int) -> Invocation:
        """The invocation with a number out of a record."""
        local, grid = self.dispatch.local, self.dispatch.grid
        group, inner = divmod(int(number) - 1, local[0] * local[1] * local[2])
        return Invocation(_place(group, grid), _place(inner, local))


def _place(number: int, sizes: Triple) -> Triple:
    rest, x = divmod(number, sizes[0])
    z, y = divmod(rest, sizes[1])
    return (x, y, z)


def _word(variant: int) -> int:
    """What memory that nobody filled holds: numbers of both signs, and as floats large ones of both signs."""
    return (0, 0x5A3C_C3A5, 0xA5C3_3C5A)[variant]


def _noise(source: Source, variant: int, size: int) -> np.ndarray:
    """Random words; those of variant 2 have every bit otherwise than those of variant 1."""
    rng = np.random.default_rng([source.kind, source.number + 1])
    words = rng.integers(0, 1 << 32, size, np.uint32)
    return words if variant == 1 else ~words


def _memory(
    size: int, front: int, bind: Bind, content: np.ndarray | None, number: int, variants: Mapping[Source, int]
) -> np.ndarray:
    """The words of a binding with its guards."""
    words = np.full(size, GUARD_WORD, np.uint32)
    inner = words[front : front + bind.count]
    inner[:] = FILL_WORD if content is None else 0
    used = bind.count
    if content is None:
        if variant := variants.get(Source(PRIOR, number)):
            inner[:] = _noise(Source(PRIOR, number), variant, inner.size)
    else:
        used = content.size
        inner[:used] = content
        if variant := variants.get(Source(PADDING, number)):
            padding = padding_of(bind)
            assert padding is not None
            noise = _noise(Source(PADDING, number), variant, used).view(np.uint8)
            raw = inner[:used].view(np.uint8)
            raw[: padding.size][padding] = noise[: padding.size][padding]
    if variant := variants.get(Source(BEFORE, number)):
        words[:front] = _noise(Source(BEFORE, number), variant, front)
    if variant := variants.get(Source(BEHIND, number)):
        words[front + used :] = _noise(Source(BEHIND, number), variant, size - front - used)
    return words


def padding_of(bind: Bind) -> np.ndarray | None:
    """Which bytes of a tensor are padding; None if it has none, or is no tensor."""
    if bind.desc is None or bind.extent or not bind.desc.is_int8:
        return None
    found = byte_kinds(bind.desc) != ByteKind.VALUE
    return found if found.any() else None
