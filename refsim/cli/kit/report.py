"""What the verbs that compare buffers share: the page of a report, and raw files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from refsim.bytediff.html import render
from refsim.bytediff.report import holds_elements
from refsim.cli.kit.given import hints
from refsim.cli.kit.text import not_written, remark, wrote
from refsim.core import atomic_write
from refsim.core.buffer import PackedBuffer, naming
from refsim.core.counted import counted
from refsim.core.errors import FormatError, RawBufferError
from refsim.core.layout import FOREIGN, INT8_LAYOUTS, Layout
from refsim.core.tensor import TensorDesc
from refsim.device import single_output
from refsim.formats.file import read_file
from refsim.golden.told import ToldReport


def write_html(told: ToldReport, path: str | None, remarks: Sequence[str] = ()) -> None:
    """Write the page of a report, if it was asked for and there is something to show, and say which."""
    if path is not None and told.report is not None and told.report.differing:
        atomic_write.write(path, render(told.report, remarks=[*told.texts(), *remarks]).encode())
        wrote(path)
    elif path is not None:
        not_written(path, "there is no difference to show")


def raw_files(paths: Sequence[str]) -> dict[str, np.ndarray]:
    """The bytes of files, uint8."""
    return {path: np.frombuffer(bytes(read_file(path)), np.uint8) for path in paths}


def raw_buffer(path: str, shape: Sequence[int], layout: Layout) -> np.ndarray:
    """The bytes of a file that holds such a tensor, uint8; RawBufferError, which names it, if it is of another size.

    An array of its elements (int8) is given as it is, and a remark says that its padding is not compared.
    The file may also be the outputs of a run, as `refsim.device.single_output` takes them. FormatError for a folder,
    which names a buffer in it.
    """
    desc = TensorDesc(tuple(shape), layout)
    if Path(path).is_dir():
        held = sorted(file for file in Path(path).glob("*.bin") if file.stat().st_size == desc.nbytes)
        raise FormatError(path, "a folder", need=f"one raw buffer{f', such as {held[0]}' if held else ''}")
    try:
        raw, chosen = single_output.read(path, desc)
        elements = holds_elements(raw, desc)
        with naming(path):
            if not elements:
                PackedBuffer.from_raw(raw, tuple(shape), layout)
    except RawBufferError as error:
        need = f"{error.need}{_as_large(path, desc)}"
        raise RawBufferError(
            error.where, error.what, got=error.got, need=need, hints=[*error.hints, *hints(path)]
        ) from error
    if chosen:
        remark(f"{path}: {chosen} was compared, the only one in it that is such a buffer")
    if elements:
        remark(f"{path}: an array holds no padding; its {counted(desc.numel, 'element')} were compared")
    return raw


def _as_large(path: str, desc: TensorDesc) -> str:
    """Which other layouts of the tensor have as many bytes as a file."""
    rows = [row for row in (*INT8_LAYOUTS, *FOREIGN) if desc.is_int8 and os.path.isfile(path)]
    size = os.path.getsize(path) if rows else 0
    fitting = [str(row) for row in rows if row != desc.layout and TensorDesc(desc.shape, row).nbytes == size]
    have = f"of this shape have {counted(size, 'byte')}: --actual-layout"
    return f"; {' and '.join(fitting)} {have}" if fitting else ""
