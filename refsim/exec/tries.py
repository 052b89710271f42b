"""Many edits of one module, and what their bytes are compared with."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Tries:
    """``code`` is the module ``shader`` with all edits; a row of ``choices`` at its last binding chooses one (uint32).

    An output is right if, where ``compared`` is true, its bytes are those of one of ``wanted`` (uint8).
    """

    shader: str
    code: bytes
    choices: np.ndarray = field(repr=False)
    compared: np.ndarray = field(repr=False)
    wanted: tuple[np.ndarray, ...] = field(repr=False)
