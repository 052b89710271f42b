"""The buffers of a run on an executor, in the place of those that were dumped on a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from refsim.core.buffer import PackedBuffer
from refsim.core.errors import RawBufferError
from refsim.core.tensor import TensorDesc
from refsim.exec.executor import Executor
from refsim.exec.model import Model
from refsim.exec.trace import Traced, trace


@dataclass(frozen=True)
class Ran:
    """Values by name; see `refsim.device.bisect.Buffers`."""

    entries: Mapping[str, PackedBuffer]

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def unfit(self, name: str, desc: TensorDesc) -> str:
        """Nothing: a run on an executor has the model's own tensors."""
        return ""

    def beside(self, name: str, buffer: PackedBuffer) -> np.ndarray:
        """The bytes of a value, which must be the tensor that ``buffer`` is."""
        held = self.entries[name]
        if held.desc != buffer.desc:
            raise RawBufferError(name, "another tensor", got=held.desc, need=buffer.desc)
        return held.raw


def run_on(model: Model, inputs: Sequence[np.ndarray], executor: Executor) -> Ran:
    """Run a model on an executor, and keep every packed and float buffer of its delegates."""
    found: dict[str, PackedBuffer] = {}

    def visit(traced: Traced) -> None:
        found.update((name, held) for name, held in traced.outputs.items() if isinstance(held, PackedBuffer))

    trace(model, inputs, executor, visit)
    return Ran(found)
