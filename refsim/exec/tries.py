"""Many edits of one module, and what their bytes are compared with."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Tries:
    """``code`` is the module ``shader`` with all edits; the word at its last binding chooses one of ``numbers``.

    An output is right if, where ``compared`` is true, its bytes are those of one of ``wanted`` (uint8).
    """

    shader: str
    code: bytes
    numbers: tuple[int, ...]
    compared: np.ndarray = field(repr=False)
    wanted: tuple[np.ndarray, ...] = field(repr=False)
