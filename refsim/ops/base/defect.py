"""What upstream's kernel of an operator is known to do wrong, where executors here do what the operator means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Defect:
    """One defect: a name, a sentence for people, and the values that it leaves.

    ``applies(call)``: whether a call shows it. ``values(call, arrays)``: the output with the defect, masked (numpy.ma)
    where no invocation writes; what stands there is chance. None where upstream's runtime refuses the call.
    ``textures``: only tensors in textures show it, those in buffers do not.
    """

    name: str
    note: str
    applies: Callable[[Any], bool]
    values: Callable[[Any, Mapping[str, np.ndarray]], np.ndarray] | None = None
    textures: bool = False
