"""Weights as a folder's own modules pack them: compared with what refsim packs, and bound where a kernel reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from refsim.core.counted import counted
from refsim.core.errors import PackingError
from refsim.exec.executor import Tries
from refsim.ops.base.module_call import Bind, Host, ModuleDispatch, packing_dispatches
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
        words = pipelines.run(packer, {})[to.buffer]
        if error := _otherwise(right, words, packer, str(pipelines.folder.file(packer.shader))):
            wrong = wrong or error
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


def _otherwise(bind: Bind, words: np.ndarray, packer: ModuleDispatch, where: str) -> PackingError | None:
    """The error that names the first texel, if these are other words than refsim binds."""
    assert bind.words is not None
    wrong = np.flatnonzero(words[: bind.words.size] != bind.words)
    if not wrong.size:
        return None
    first = int(wrong[0])
    y, x = divmod(first // 4, packer.global_size[0])
    count = f"{len(np.unique(wrong // 4))} of {counted(bind.words.size // 4, 'texel')}"
    return PackingError(
        where,
        f"packs the constant {bind.what} otherwise, in {count}; the first is texel ({x}, {y}), word {first % 4}",
        got=f"{int(words[first]):#010x}",
        need=f"{int(bind.words[first]):#010x}",
    )
