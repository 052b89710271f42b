"""One buffer out of what a run saved: a raw file, an .npy, an .npz of which one array fits, or BASE of BASE-0.bin."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from refsim.bytediff.report import holds_elements
from refsim.core import choices
from refsim.core.buffer import PackedBuffer, as_laid
from refsim.core.counted import counted
from refsim.core.errors import FormatError, RawBufferError
from refsim.core.tensor import TensorDesc
from refsim.device.outputs import numbered
from refsim.formats import npz
from refsim.formats.file import read_file
from refsim.formats.reading import archive

#: For help texts and errors.
FORMS = "a raw buffer, an .npy, an .npz with one array that fits, or BASE of executor_runner's BASE-0.bin"


def read(path: str | os.PathLike[str], desc: TensorDesc) -> tuple[np.ndarray, str]:
    """The bytes of the buffer, uint8, and which of several arrays or files they are; empty if there is only one.

    They are as the file has them: the size of a raw file is not checked. An int8 array of the tensor's own shape holds
    elements, and no padding; it is given as it is, if no array holds all bytes.

    Other arrays are words (int32) or bytes of an int8 buffer, of one dim or of those of its layout, or the elements of
    a float one.
    RawBufferError or FormatError says what a file holds that has not exactly one such array.
    """
    name = os.fspath(path)
    if not os.path.exists(name):
        files = numbered(Path(name).parent, re.escape(Path(name).name) + "-")
        if files:
            return _of_files(name, files, desc)
    if os.path.isfile(name) and zipfile.is_zipfile(name):
        with archive(name, "a readable array file") as opened:
            members = npz.members_of(opened)
            if members:
                arrays = {one: npz.member_array(opened, f"{one}.npy", f"{name}: {one}") for one in members}
                return _only(name, arrays, desc)
    data = bytes(read_file(name))
    if data.startswith(npz.MAGIC):
        return _only(name, {"": npz.read_npy(name)}, desc)
    return np.frombuffer(data, np.uint8), ""


def _of_files(name: str, files: Sequence[str], desc: TensorDesc) -> tuple[np.ndarray, str]:
    """The file of the right size; a single one is taken as it is, and its size is judged by who reads it."""
    fitting = [file for file in files if os.path.getsize(file) == desc.nbytes]
    if len(files) > 1 and len(fitting) != 1:
        got = choices.listed([f"{file} of {os.path.getsize(file)}" for file in files])
        raise FormatError(
            name, "not one output of this buffer", got=got, need=f"one of {counted(desc.nbytes, 'byte')}"
        )
    file = (fitting or files)[0]
    return np.frombuffer(bytes(read_file(file)), np.uint8), file if len(files) > 1 else ""


def _only(name: str, arrays: Mapping[str, np.ndarray], desc: TensorDesc) -> tuple[np.ndarray, str]:
    """The bytes of the array that can be this buffer."""
    tried = {key: _bytes(array, desc) for key, array in arrays.items()}
    fitting = [(found, key) for key, found in tried.items() if found is not None]
    fitting = fitting or [(array, key) for key, array in arrays.items() if holds_elements(array, desc)]
    if len(fitting) == 1:
        return fitting[0] if len(arrays) > 1 else (fitting[0][0], "")
    got = choices.listed([f"{key} {one.dtype} {list(one.shape)}".strip() for key, one in arrays.items()])
    words = f"int32 [{desc.nbytes // 4}], its words, or int8 [{desc.nbytes}], its bytes"
    elements = f"{desc.dtype} {list(desc.shape)}"
    need = f"{words}, or {elements}, its elements" if desc.is_int8 else elements
    what = "several arrays may be this buffer" if fitting else "no array of this buffer"
    raise RawBufferError(name, what, got=got, need=f"one {need}: {desc}")


def _bytes(array: np.ndarray, desc: TensorDesc) -> np.ndarray | None:
    """The bytes of a buffer that an array is; None if it is none of it."""
    if desc.is_int8:
        words = array.dtype.kind in "iu" and array.dtype.itemsize in (1, 4) and array.ndim == 1
        laid = array.dtype.kind in "iu" and array.shape == as_laid(desc)
        if not (words or laid) or holds_elements(array, desc) or array.nbytes != desc.nbytes:
            return None
        return np.ascontiguousarray(array).view(np.uint8)
    if array.dtype != desc.dtype or array.shape != tuple(desc.shape):
        return None
    return PackedBuffer.pack(np.ascontiguousarray(array), desc.layout, dtype=desc.dtype).raw
