"""The executor that has no kernels: each call is what its operator's `define` says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from refsim.core.buffer import PackedBuffer
from refsim.core.launch import Launch
from refsim.exec.executor import Executor
from refsim.ops.base.prepared import Prepared


class Definition(Executor):
    """Computes calls as their operators define them. It runs whole calls only, because a launch has no definition."""

    name = "define"

    def run(self, launch: Launch, inputs: Sequence[np.ndarray]) -> PackedBuffer:
        raise NotImplementedError("a definition has no launches")

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        return prepared.call.expected(inputs)
