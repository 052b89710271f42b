"""Looks at what modules do beside their bytes: foreign words that they read, words with two writers, order of work.

A dispatch runs again and again over memory of other content, and in other orders, in one pipeline that records who
writes (`refsim.spirv.instrument`). The words that it writes must be the same each time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from refsim.core.buffer import ByteKind, PackedBuffer, byte_kinds, offsets
from refsim.core.counted import counted
from refsim.core.errors import LimitError
from refsim.exec.finding import (
    FOREIGN,
    NOT_SEEN,
    ORDER,
    OUTSIDE,
    SAME_TWICE,
    TWICE,
    UNFILLED,
    UNSTABLE,
    Invocation,
    KernelFinding,
)  # fmt: skip
from refsim.ops.base.host import tensor
from refsim.ops.base.module_call import ModuleDispatch
from refsim.ops.base.spec import Call
from refsim.spirv.instrument import RunChoice
from refsim.spirv.order import LOCAL, LOCAL_INDEX, WORKGROUP, built_ins
from refsim.spirv.types import Types
from refsim.spirv.writers import DIFFER, LAST, OTHER
from refsim_gpu.module_pipelines import ModulePipelines, Pipeline, contents, given, key_of
from refsim_gpu.watched import (
    BEFORE,
    BEHIND,
    PADDING,
    PRIOR,
    SHARED,
    VARIABLES,
    Run,
    Source,
    Watched,
    padding_of,
)  # fmt: skip

#: Pipelines that are kept. Each has a record four times as large as what it writes.
MOST_KEPT = 24
#: How often the same run must give the same bytes before anything is said of what they depend on.
STEADY = 3
_SAID = {
    BEFORE: "words in front of {}", BEHIND: "words behind {}", PRIOR: "what was in {} before",
    PADDING: "the padding of {}", SHARED: "shared memory that nobody has written",
    VARIABLES: "variables without a value",
}  # fmt: skip


class Sanitizer:
    """Looks at dispatches of a folder's modules, one after another."""

    def __init__(self, pipelines: ModulePipelines) -> None:
        self.pipelines = pipelines
        self._kept: OrderedDict[object, Watched] = OrderedDict()

    def run(
        self,
        call: Call,
        steps: Sequence[ModuleDispatch],
        inputs: Mapping[str, PackedBuffer],
        repeats: int = 0,
    ) -> list[KernelFinding]:
        """What the dispatches of a call do and must not do; nothing twice. Raises DeviceError."""
        found: list[KernelFinding] = []
        buffers: dict[str, np.ndarray] = {}
        for step in steps:
            words = contents(step, given(step, inputs, buffers))
            look = _Look(self._watched(step), words, call)
            found += look.findings()
            found += [
                KernelFinding(NOT_SEEN, step.shader, f"has {why}") for why in look.watched.made.uncounted
            ]
            if not any(one.kind == OUTSIDE for one in found):  # the plain module would be stopped for it
                found += self._other_size(look)
                found += self._repeated(look, repeats)
            buffers |= {step.binds[number].buffer: out for number, out in look.base.outputs.items()}
        return list(dict.fromkeys(found))

    def _watched(self, step: ModuleDispatch) -> Watched:
        key = key_of(step, self.pipelines.folder.load(step.shader))
        known = self._kept.pop(key, None) or Watched(self.pipelines, step)
        self._kept[key] = known
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        known.dispatch = step
        return known

    def _other_size(self, look: _Look) -> Iterator[KernelFinding]:
        """Half a workgroup where the kernel's numbers do not depend on it: then nothing may."""
        step = look.watched.dispatch
        loaded = self.pipelines.folder.load(step.shader)
        largest = max(range(3), key=lambda axis: step.local[axis])
        numbers = set(built_ins(Types(loaded.module)).values())
        if (
            step.local[largest] == 1
            or look.watched.made.shared
            or look.watched.made.subgroups
            or numbers & {LOCAL, LOCAL_INDEX, WORKGROUP}
            or loaded.interface.local_size_ids != (0, 1, 2)
        ):
            return
        x, y, z = (size // (1 + (axis == largest)) for axis, size in enumerate(step.local))
        other = replace(step, local=(x, y, z))
        try:
            pipeline = Pipeline(
                self.pipelines.device, *self.pipelines.folder.rewritten(other), other, look.where
            )
        except LimitError:  # more workgroups than the device takes
            return
        outputs = pipeline.run(look.contents, other.binds)
        what = f"writes other bytes in workgroups of {other.local} than of {step.local}"
        yield from look.compared(outputs, ORDER, what, look.defined)

    def _repeated(self, look: _Look, repeats: int) -> Iterator[KernelFinding]:
        """The plain module, again and again; the first run that differs from the first."""
        first: dict[int, np.ndarray] | None = None
        pipeline = self.pipelines.pipeline(look.watched.dispatch)
        for number in range(max(1, repeats)):
            outputs = pipeline.run(look.contents, look.watched.dispatch.binds)
            if first is None:
                first = outputs
                what = "writes other bytes when it is watched; it depends on time, or on memory of its own"
                found = list(look.compared(outputs, UNSTABLE, what, look.defined))
            else:
                what = f"writes other bytes in run {number + 1} than in run 1"
                found = list(look.compared(outputs, UNSTABLE, what, look.defined, first))
            if found:
                yield from found
                return


class _Look:
    """One dispatch over one content, looked at."""

    def __init__(self, watched: Watched, contents: Sequence[np.ndarray | None], call: Call) -> None:
        self.watched, self.contents, self.call = watched, contents, call
        self.shader, self.where = watched.dispatch.shader, watched.pipeline.where
        self.base = watched.run(contents, {}, RunChoice())
        self.written = {number: self._written(self.base, number) for number in self.base.outputs}
        self.defined = {n: self._bytes(n, self.written[n], False) for n in self.base.outputs}
        self.values = {n: self._bytes(n, self.written[n], True) for n in self.base.outputs}

    def _written(self, run: Run, number: int) -> np.ndarray:
        """Which words of an output were written."""
        count, front = self.watched.dispatch.binds[number].count, self.watched.fronts[number]
        record = run.records.get(number)
        return np.zeros(count, bool) if record is None else record[front : front + count, LAST] != 0

    def _bytes(self, number: int, written: np.ndarray, values: bool) -> np.ndarray:
        """Which bytes of an output may depend on nothing foreign: what is defined, or the elements alone."""
        bind = self.watched.dispatch.binds[number]
        known = np.zeros(4 * bind.count, bool)
        desc = bind.desc
        if desc is None:
            known[:] = True
        elif bind.extent:
            known[:] = np.repeat(tensor.to_texels(np.ones(desc.shape, np.float32), desc).reshape(-1) != 0, 4)
        elif (
            bind.buffer == "out"
            and (desc.layout, desc.nbytes) == (self.call.out.layout, self.call.out.nbytes)
            and not values
        ):
            known[: desc.nbytes] = self.call.device_defined()
        else:
            known[: desc.nbytes] = byte_kinds(desc) == ByteKind.VALUE
        return known & np.repeat(written, 4)

    def findings(self) -> list[KernelFinding]:
        """What is wrong; writes outside of outputs hide all else."""
        found = list(self.outside())
        if found:
            return found
        depends = [*self.foreign(), *self.order()]
        if depends and (unsteady := self.unsteady()):
            depends = unsteady
        return [*self.twice(), *depends]

    def unsteady(self) -> list[KernelFinding]:
        """Whether the same run, again, gives other bytes: then what it depends on cannot be told."""
        what = "writes other bytes when it runs again over the same memory"
        for _ in range(STEADY):
            run = self.watched.run(self.contents, {}, RunChoice())
            found = list(self.compared(run.outputs, UNSTABLE, what, self.defined))
            if found:
                return found
        return []

    # --- who wrote -----------------------------------------------------------------------------------------

    def outside(self) -> Iterator[KernelFinding]:
        """Writes outside of outputs."""
        for number, record in self.base.records.items():
            bind, front = self.watched.dispatch.binds[number], self.watched.fronts[number]
            wrong = record[:, LAST] != 0
            if bind.writes:
                wrong[front : front + bind.count] = False
            places = np.flatnonzero(wrong)
            if not places.size:
                continue
            row, beyond = int(places[0]), int(places[0]) == len(record) - 1
            word = row - front
            size = f"{bind.desc}" if bind.desc is not None else counted(bind.count, "word")
            place = (
                "far outside"
                if beyond
                else "before"
                if word < 0
                else "behind"
                if word >= bind.count
                else "to"
            )
            yield KernelFinding(
                OUTSIDE, self.shader, f"writes {place} the buffer of {bind.what}, {size}", number, bind.what,
                None if beyond else word, places.size, None, (self.watched.worker(record[row, LAST]),),
            )  # fmt: skip

    def twice(self) -> Iterator[KernelFinding]:
        """Words that two invocations wrote: with different bits, or with the same."""
        for number in self.base.outputs:
            record = self.base.records.get(number)
            if record is None:
                continue
            front, count = self.watched.fronts[number], self.watched.dispatch.binds[number].count
            inner = record[front : front + count]
            for kind, rows, what in (
                (
                    TWICE,
                    (inner[:, OTHER] != 0) & (inner[:, DIFFER] != 0),
                    "stores different bits twice in a word",
                ),
                (SAME_TWICE, (inner[:, OTHER] != 0) & (inner[:, DIFFER] == 0), "stores a word twice"),
            ):
                places = np.flatnonzero(rows)
                if places.size:
                    workers = [self.watched.worker(inner[places[0], field]) for field in (OTHER, LAST)]
                    yield self._at(kind, what, number, int(places[0]), places.size, tuple(workers))

    # --- what it depends on --------------------------------------------------------------------------------

    def sources(self) -> Iterator[Source]:
        for number, bind in enumerate(self.watched.dispatch.binds):
            if self.watched.fronts[number]:
                yield Source(BEFORE, number)
            yield Source(BEHIND, number)
            if bind.writes:
                yield Source(PRIOR, number)
            elif padding_of(bind) is not None and self.contents[number] is not None:
                yield Source(PADDING, number)
        if self.watched.made.shared:
            yield Source(SHARED)
        if self.watched.made.variables:
            yield Source(VARIABLES)

    def foreign(self) -> Iterator[KernelFinding]:
        """All foreign memory is changed at once; if the outputs change, one source after another."""
        found = list(self.sources())
        for padding, mask in ((False, self.defined), (True, self.values)):
            group = [source for source in found if (source.kind == PADDING) is padding]
            if group and self._depends(group, mask):
                blamed = [source for source in group if self._depends([source], mask)]
                for source in blamed or group[:1]:
                    yield from self._blamed(source if blamed else None, group, mask)

    def _depends(self, sources: Iterable[Source], mask: Mapping[int, np.ndarray]) -> bool:
        return next(self._changed(sources, mask, ""), None) is not None

    def _changed(
        self, sources: Iterable[Source], mask: Mapping[int, np.ndarray], what: str, kind: str = FOREIGN
    ) -> Iterator[KernelFinding]:
        group = list(sources)
        for variant in (1, 2):
            run = self.watched.run(self.contents, dict.fromkeys(group, variant), RunChoice())
            yield from self.compared(run.outputs, kind, what, mask)

    def _blamed(
        self, source: Source | None, group: Sequence[Source], mask: Mapping[int, np.ndarray]
    ) -> Iterator[KernelFinding]:
        if source is None:
            yield from list(self._changed(group, mask, "depends on foreign words of several buffers"))[:1]
            return
        kind = UNFILLED if source.kind in (SHARED, VARIABLES) else FOREIGN
        bind = self.watched.dispatch.binds[source.number] if source.number >= 0 else None
        name = "" if bind is None else f"binding {source.number} ({bind.what})"
        said = _SAID[source.kind].format(name)
        yield from list(self._changed([source], mask, f"reads {said}", kind))[:1]

    def order(self) -> Iterator[KernelFinding]:
        """Other orders of workgroups, and of invocations in a workgroup."""
        step = self.watched.dispatch
        groups = step.grid[0] * step.grid[1] * step.grid[2]
        workers = step.local[0] * step.local[1] * step.local[2]
        orders = []
        if groups > 1:
            orders += [("workgroups run from last to first", RunChoice(reverse=True))]
            orders += [("workgroups begin in the middle", RunChoice(rotate=groups // 2))]
        if workers > 1 and not self.watched.made.subgroups:
            orders += [("invocations of a workgroup run from last to first", RunChoice(reverse_local=True))]
            orders += [
                ("invocations of a workgroup begin in the middle", RunChoice(rotate_local=workers // 2))
            ]
        for said, choice in orders:
            run = self.watched.run(self.contents, {}, choice)
            found = list(self.compared(run.outputs, ORDER, f"writes other bytes when {said}", self.defined))
            if found:
                yield found[0]
                return

    def compared(
        self, outputs: Mapping[int, np.ndarray], kind: str, what: str, mask: Mapping[int, np.ndarray],
        first: Mapping[int, np.ndarray] | None = None,
    ) -> Iterator[KernelFinding]:  # fmt: skip
        """The first output that differs from ``first`` (or from the base) in bytes of ``mask``."""
        for number, base in (first or self.base.outputs).items():
            if number not in mask:
                continue
            differ = (outputs[number].view(np.uint8) != base.view(np.uint8)) & mask[number]
            places = np.flatnonzero(differ)
            if places.size:
                words = np.unique(places // 4)
                record = self.base.records.get(number)
                row = None if record is None else record[self.watched.fronts[number] + int(words[0])]
                workers = () if row is None or not row[LAST] else (self.watched.worker(row[LAST]),)
                yield self._at(kind, what, number, int(words[0]), words.size, workers, int(places[0]))
                return

    def _at(
        self, kind: str, what: str, number: int, word: int, count: int, workers: tuple[Invocation, ...],
        byte: int = -1,
    ) -> KernelFinding:  # fmt: skip
        """A finding at a word of an output, with the first element in it (or at the byte)."""
        bind = self.watched.dispatch.binds[number]
        element = None
        desc = bind.desc
        if desc is not None and not bind.extent:
            size = desc.nbytes // max(1, desc.buffer_numel)
            first, stop = (byte, byte + 1) if byte >= 0 else (4 * word, 4 * word + 4)
            places = np.argwhere(
                (offsets(desc) * size >= first // size * size) & (offsets(desc) * size < stop)
            )
            element = tuple(int(at) for at in places[0]) if len(places) else None
        return KernelFinding(kind, self.shader, what, number, bind.what, word, count, element, workers)
