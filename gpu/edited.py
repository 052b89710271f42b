"""Runs one dispatch of a call again and again, each time with another edit of its module (`Tries`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from refsim.core.buffer import GUARD_WORDS, PackedBuffer
from refsim.core.errors import GuardError
from refsim.exec.executor import Tries
from refsim.ops.base.module_call import ModuleDispatch
from refsim.spirv.module import Module
from refsim.spirv.reflect import interface
from refsim.spirv.rewrite import for_kompute
from refsim_gpu.module_pipelines import ModulePipelines, Pipeline, contents, given


def right(
    pipelines: ModulePipelines,
    steps: Sequence[ModuleDispatch],
    inputs: Mapping[str, PackedBuffer],
    tries: Tries,
    taken: Callable[[np.ndarray], np.ndarray],
    out: str = "out",
) -> list[int]:
    """The choices, by number, with which the buffer ``out`` has the bytes that are wanted.

    ``taken`` gives the output's bytes by the words that were written. The steps in front of the edited module run once.
    Raises what running a call raises, but for writes outside of buffers: an edit that does this is wrong.
    """
    at = next(number for number, step in enumerate(steps) if step.shader == tries.shader)
    buffers: dict[str, np.ndarray] = {}
    for step in steps[:at]:
        buffers |= pipelines.run(step, given(step, inputs, buffers))
    step, rest = steps[at], steps[at + 1 :]
    module = Module.parse(tries.code, step.shader)
    declared = replace(pipelines.folder.load(step.shader), interface=interface(module))
    rewritten = for_kompute(module, len(step.spec_words), GUARD_WORDS)
    pipeline = Pipeline(pipelines.device, declared, rewritten, step, step.shader, (tries.choices[0],))
    words = contents(step, given(step, inputs, buffers))

    def is_right(choice: np.ndarray) -> bool:
        pipeline.extra[0].data()[:] = choice
        try:
            made = pipeline.run(words, step.binds)
            after = buffers | {step.binds[place].buffer: out for place, out in made.items()}
            for further in rest:
                after |= pipelines.run(further, given(further, inputs, after))
        except GuardError:
            return False
        raw = taken(after[out])
        return any(np.array_equal(raw[tries.compared], one[tries.compared]) for one in tries.wanted)

    return [number for number, choice in enumerate(tries.choices) if is_right(choice)]
