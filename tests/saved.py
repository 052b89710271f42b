"""Files as tests need them: one that has another byte, the outputs of a run, and all that a folder holds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np


def flip(path: Path | str, byte: int = 0, mask: int = 1) -> Path:
    """Invert bits of one byte of a file."""
    path = Path(path)
    raw = bytearray(path.read_bytes())
    raw[byte] ^= mask
    path.write_bytes(raw)
    return path


def arrays(path: Path | str, held: Iterable[np.ndarray], name: str = "out") -> Path:
    """Save arrays as a run's outputs are named: out0, out1, ..."""
    np.savez(path, **{f"{name}{number}": array for number, array in enumerate(held)})
    return Path(path)


def with_a_wrong_byte(source: Path, output: str, path: Path) -> Path:
    """A copy of saved outputs in which the first byte of one is another."""
    held = dict(np.load(source))
    held[output] = held[output].copy()
    held[output].view(np.uint8).reshape(-1)[0] ^= 0x7F
    np.savez(path, **held)
    return path


def contents(folder: Path) -> dict[Path, bytes]:
    """Every file below a folder."""
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
