"""The outputs of a run, as whatever ran the program saved them: an .npz, a folder of .npy, raw files in order.

Nothing is guessed: each array must have the dtype and the number of bytes that the program declares for its output, and
there must be as many as the program has. `read_one` finds the one buffer that a tensor can be.
"""

from __future__ import annotations

import os
import re
import shlex
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from refsim.core import choices
from refsim.core.buffer import PackedBuffer, as_laid, holds_elements
from refsim.core.counted import counted
from refsim.core.dtypes import BY_NAME
from refsim.core.errors import FormatError, RawBufferError, RefsimError, ShapeError
from refsim.core.tensor import TensorDesc
from refsim.formats import npz
from refsim.formats.file import meant, read_file, there
from refsim.formats.reading import archive

#: Dtype and shape of an output, as the program declares it.
Declared = tuple[str, tuple[int, ...]]
#: An output, or why it cannot be read as such.
Either = np.ndarray | FormatError | ShapeError

#: Names of an .npz file's arrays before their number, the first that it has.
PREFIXES = ("out", "output", "upstream_out")
RAW = (".bin", ".raw")
FORM = "an .npz, a folder of .npy or raw files, or BASE of executor_runner's BASE-0.bin"
FORMS = f"{FORM.replace(', or', ',')}, or the files in order"

#: The sidecar of a dumped buffer.
_IS_DUMPED = re.compile(r"delegate\d+(_v\d+)?\.json")
#: The outputs of several programs in one folder (`each_beside`), for help texts and errors.
IN_FOLDER = (
    "a folder with those of NAME.pte as NAME.npz, in a folder NAME, or as NAME-0.bin, NAME-1.bin and so on"
)


def read(paths: Sequence[str | os.PathLike[str]], declared: Sequence[Declared]) -> list[np.ndarray]:
    """The outputs in order. FormatError, ShapeError or LimitError for files that do not hold exactly them."""
    return held(each(paths, declared))


def each(paths: Sequence[str | os.PathLike[str]], declared: Sequence[Declared]) -> list[Either]:
    """The outputs in order, and in the place of one that is of another size or damaged the error about it.

    Raises as `read` does where there are not as many outputs as declared.
    """
    names = [os.fspath(path) for path in paths]
    if len(names) == 1 and names[0].endswith(".npz"):
        return _from_npz(names[0], declared)
    files = _files(names)
    where = names[0] if len(names) == 1 else "outputs"
    if len(files) != len(declared):
        got = f"{len(files)}: {choices.first([os.path.basename(file) for file in files])}"
        raise FormatError(
            where, "another number of outputs", got=got, need=f"{len(declared)}, all of the program's"
        )
    return [_either(partial(_array, file, one)) for file, one in zip(files, declared, strict=True)]


def _either(read_one: Callable[[], np.ndarray]) -> Either:
    try:
        return read_one()
    except (FormatError, ShapeError) as error:
        return error


def held(found: Sequence[Either]) -> list[np.ndarray]:
    """The outputs; raises the first error among them."""
    arrays = []
    for one in found:
        if isinstance(one, RefsimError):
            raise one
        arrays.append(one)
    return arrays


def check_folder(folder: str | os.PathLike[str]) -> None:
    """FormatError for what is no folder of the outputs of several programs."""
    if not os.path.isdir(folder):
        need = f"the outputs of the programs: {IN_FOLDER}{meant(folder)}"
        raise FormatError(os.fspath(folder), "not a folder", got=there(folder), need=need)


def none_of(folder: str | os.PathLike[str], programs: Sequence[str]) -> FormatError:
    """The error for a folder without outputs of these programs: what it has, and what may be one under a wrong name."""
    names, held = [f"{name}.npz" for name in programs], sorted(entry.name for entry in os.scandir(folder))
    near = [(name, one) for name in names if (one := choices.nearest(name, held))]
    slip = choices.asked(f"{near[0][1]} to be {near[0][0]}") if near else ""
    got, need = choices.first(held) or "no files", f"{choices.first(names)}; {IN_FOLDER}{slip}"
    return FormatError(os.fspath(folder), "no outputs of these programs", got=got, need=need)


def each_beside(
    folder: str | os.PathLike[str], name: str, declared: Sequence[Declared]
) -> list[Either] | None:
    """The outputs of the program NAME.pte in a folder: NAME.npz, a folder NAME, or NAME-0.bin and so on, as `each`.

    None if the folder has none of them; what is empty counts as not there.
    """
    stem = Path(folder) / name
    for path in (stem.with_name(f"{stem.name}.npz"), stem):
        if os.path.exists(path):  # Path.exists raises over a name that is too long
            return None if _is_empty(path) else each([path], declared)
    return each([stem], declared) if any(stem.parent.glob(f"{stem.name}-*")) else None


def _is_empty(path: Path) -> bool:
    """Whether a run that gave nothing left this: a folder or a file without content."""
    return not os.listdir(path) if os.path.isdir(path) else os.path.getsize(path) == 0


def _files(names: list[str]) -> list[str]:
    """The files that these paths stand for, in the order of the outputs."""
    if len(names) > 1:
        return names
    (name,) = names
    if os.path.isdir(name):
        return _in_folder(name)
    if os.path.isfile(name):
        if zipfile.is_zipfile(name):
            with archive(name, "a readable file of outputs") as opened:
                _check_no_dump(name, opened.namelist())
        return names
    found = numbered(Path(name).parent, re.escape(Path(name).name) + "-")
    if not found:
        raise FormatError(name, "no outputs there", got="no such file or folder", need=FORMS + meant(name))
    return found


def _check_no_dump(name: str, entries: Sequence[str]) -> None:
    """FormatError if these are the files of a dump."""
    dumped = next((entry for entry in entries if _IS_DUMPED.fullmatch(entry)), None)
    if dumped is not None:
        bisect = f"refsim bisect MODEL -i IN.npz --actual {shlex.quote(name)}"
        raise FormatError(name, "a dump, and no outputs", got=dumped, need=FORMS, hints=[bisect])


def _in_folder(name: str) -> list[str]:
    """All .npy files of a folder, or else all raw ones, by the number in their names."""
    entries = sorted(entry.name for entry in os.scandir(name) if entry.is_file())
    _check_no_dump(name, entries)
    for suffixes in ((".npy",), RAW):
        chosen = [entry for entry in entries if entry.endswith(suffixes)]
        if chosen:
            stems = {re.sub(r"\d+(?=\.\w+$)", "", entry) for entry in chosen}
            if len(stems) > 1:
                raise FormatError(
                    name, "holds files of several runs", got=choices.first(sorted(stems)),
                    need="names that differ in a number",
                )  # fmt: skip
            return numbered(Path(name), re.escape(next(iter(stems)).rpartition(".")[0]), suffixes)
    arrays = [os.path.join(name, entry) for entry in entries if entry.endswith(".npz")]
    meant = arrays[0] if len(arrays) == 1 else f"one of {choices.first(arrays)}"
    need = FORMS + (choices.asked(meant) if arrays else "")
    raise FormatError(name, "a folder without outputs", got=choices.first(entries) or "no files", need=need)


def numbered(folder: Path, stem: str, suffixes: tuple[str, ...] = RAW) -> list[str]:
    """The files STEM0.bin, STEM1.bin, ... of a folder; FormatError where a number is missing."""
    pattern = re.compile(stem + r"(\d+)(\.\w+)")
    found: dict[int, str] = {}
    if not folder.is_dir():
        return []
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        match = pattern.fullmatch(entry.name)
        if match and match[2] in suffixes and entry.is_file():
            number = int(match[1])
            if number in found:
                raise FormatError(
                    entry.path, "the same output twice", got=entry.name, need="one file an output"
                )
            found[number] = str(folder / entry.name)
    if not found:
        return []
    first = min(found)  # some runners count from 1
    missing = [n for n in range(first, max(found)) if n not in found][:4] if first <= 1 else [0]
    if missing:
        raise FormatError(
            os.fspath(folder), "an output is missing", got=f"no number {missing[0]}", need="all in order"
        )
    return [found[number] for number in sorted(found)]


def _from_npz(name: str, declared: Sequence[Declared]) -> list[Either]:
    wanted = [(shape, BY_NAME[dtype].numpy) for dtype, shape in declared]
    if not (os.path.isfile(name) and zipfile.is_zipfile(name)):
        return list[Either](npz.read_arrays(name, PREFIXES, wanted))
    with archive(name, "a readable array file") as opened:
        members = npz.members_of(opened)
        prefix = next((p for p in PREFIXES if f"{p}0" in members), "")
        mine = [m for m in members if re.fullmatch(rf"{prefix}\d+", m)] if prefix else members
        chosen = [f"{prefix}{number}" for number in range(len(declared))] if prefix else mine
        if len(mine) != len(declared) or set(chosen) != set(mine):
            lacking = next((one for one in chosen if one not in mine), "")
            slip = choices.meant(lacking, set(members) - set(mine)) if lacking else ""
            need = f"{len(declared)}, all of the program's{f', also {lacking}' if lacking else ''}{slip}"
            got = f"{len(mine)}: {choices.first(mine)}"
            raise FormatError(name, "another number of outputs", got=got, need=need)
        return [
            _either(partial(npz.member_array, opened, f"{one}.npy", f"{name}: {one}", want))
            for one, want in zip(chosen, wanted, strict=True)
        ]


def _array(file: str, declared: Declared) -> np.ndarray:
    """One output from a file of its own: .npy, or the raw bytes."""
    dtype, shape = BY_NAME[declared[0]].numpy, declared[1]
    if file.endswith(".npy"):
        return npz.read_npy(file, (shape, dtype))
    need = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if os.path.isfile(file) and os.path.getsize(file) != need:
        got = counted(os.path.getsize(file), "byte")
        raise ShapeError(file, "not the size of this output", got=got, need=f"{need}: {dtype} {list(shape)}")
    array: np.ndarray = np.frombuffer(bytes(read_file(file)), dtype)
    return array.reshape(shape)


#: For help texts and errors.
ONE_FORMS = "a raw buffer, an .npy, an .npz with one array that fits, or BASE of executor_runner's BASE-0.bin"


def read_one(path: str | os.PathLike[str], desc: TensorDesc) -> tuple[np.ndarray, str]:
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
