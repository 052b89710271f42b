"""Runs of several shapes in one process of a runtime, and what is wrong in each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from refsim.core.errors import GraphError, RefsimError
from refsim.exec.executor import Executor
from refsim.exec.model import Model
from refsim.exec.one_process import OneProcess

#: What memory holds at first in a second process, to see which elements depend on it: 66, and 48.56 as a float.
_OTHER_FILL = 0x42


@dataclass(frozen=True)
class StepOfSequence:
    """One run of a sequence: outputs as the process gives them, what the program means, and whether the run would have
    given the same in a process of its own. ``stopped``: why it gives none. ``never``: of each output, the elements that
    depend on memory into which no run wrote; they are those of memory that is zeros at first."""

    outputs: list[np.ndarray]
    meant: list[np.ndarray]
    as_alone: bool
    stopped: str = ""
    never: Sequence[np.ndarray] = ()

    def wrong(self, output: int) -> int:
        """Elements that differ where the program means one."""
        found, need = self.outputs[output], self.meant[output]
        return int(np.count_nonzero(_apart(found[tuple(map(slice, need.shape))], need)))

    def stale(self, output: int) -> int:
        """Elements beside those that the program means."""
        return int(self.outputs[output].size - self.meant[output].size)

    @property
    def right(self) -> bool:
        count = len(self.outputs)
        return not self.stopped and not any(self.wrong(k) or self.stale(k) for k in range(count))


def sequence(
    model: Model, many: Sequence[Sequence[np.ndarray]], executor: Executor
) -> Iterator[StepOfSequence]:
    """Runs of a model with these inputs, one after another in one process. UnsupportedError as `OneProcess.outputs`."""
    process, other = OneProcess(model, executor), OneProcess(model, executor, _OTHER_FILL)
    for inputs in many:
        meant = model.at(inputs).as_meant(executor).run(inputs)
        try:
            found = process.outputs(inputs)
        except GraphError as error:
            if not process.stopped:
                raise
            yield StepOfSequence([], meant, _stops(model, inputs, executor), str(error))
            continue
        try:
            never = [_apart(a, b) for a, b in zip(found, other.outputs(inputs), strict=True)]
        except RefsimError:  # such memory is nothing that an operator takes, as an index
            never = [np.ones(a.shape, bool) for a in found]
        alone = OneProcess(model, executor).outputs(inputs)
        same = all(a.tobytes() == b.tobytes() for a, b in zip(found, alone, strict=True))
        yield StepOfSequence(found, meant, same, never=never)


def _apart(found: np.ndarray, need: np.ndarray) -> np.ndarray:
    """Where two arrays have other bits."""
    bits = f"V{need.dtype.itemsize}"
    apart: np.ndarray = np.ascontiguousarray(found).view(bits) != np.ascontiguousarray(need).view(bits)
    return apart


def _stops(model: Model, inputs: Sequence[np.ndarray], executor: Executor) -> bool:
    try:
        OneProcess(model, executor).outputs(inputs)
    except GraphError:
        return True
    return False
