"""The buffers of a run on disk: raw bytes, each with a JSON file beside it that says what they mean.

`write` makes ``NAME.bin`` and ``NAME.json``. NAME is ``delegate0_v30`` for value 30 of delegate 0. `Recorded` reads a
folder or zip file of those. It also reads what ET-VK's runtime dumps: raw buffers, and one ``delegateK.json`` per
delegate.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from refsim.core import choices, folder_write
from refsim.core.buffer import ByteKind, PackedBuffer, byte_kinds, naming, raw_of
from refsim.core.errors import FormatError, LayoutError, RawBufferError
from refsim.core.folder_write import FolderWriter
from refsim.core.layout import Layout, layout
from refsim.core.tensor import TensorDesc
from refsim.formats import reading
from refsim.formats.file import quote, read_file
from refsim.formats.limits import sizes
from refsim.formats.run_identity import KEY, RunIdentity, from_sidecar, other_text

_QUANTIZATION = (("out_scale", "out_zp"), ("scale", "zp"))


VALUE_NAME = re.compile(r"delegate\d+_v\d+")


def value_name(delegate: int, value: int) -> str:
    return f"delegate{delegate}_v{value}"


def sidecar(
    name: str,
    held: PackedBuffer | np.ndarray,
    operator: str = "",
    node: int | None = None,
    params: Any = None,
    run: RunIdentity | None = None,
) -> dict[str, Any]:
    """What the raw bytes mean: name, shape, layout (None: contiguous) and dtype.

    With ``node`` also the operator that wrote them and the number of its node; for int8, the scale and zero point from
    the operator's ``params``. With ``run`` also which run they are of.
    """
    packed = isinstance(held, PackedBuffer)
    info: dict[str, Any] = {
        "value": name,
        "shape": list(held.desc.shape if isinstance(held, PackedBuffer) else held.shape),
        "layout": held.desc.layout.name if isinstance(held, PackedBuffer) else None,
        "dtype": str(held.data.dtype if isinstance(held, PackedBuffer) else held.dtype),
    }
    if node is not None:
        info |= {"operator": operator, "node": node}
        if packed and info["dtype"] == "int8":
            info |= quantization(params)
    if run is not None:
        info[KEY] = run.as_json()
    return info


def quantization(params: Any) -> dict[str, Any]:
    """Scale and zero point of an int8 output; empty where the parameters of its operator have none."""
    for scale, zp in _QUANTIZATION:
        if hasattr(params, scale) and hasattr(params, zp):
            return {"scale": getattr(params, scale), "zero_point": getattr(params, zp)}
    if hasattr(params, "out_inv_scale"):
        return {"inv_scale": params.out_inv_scale, "zero_point": params.out_zp}
    return {}


def files(info: dict[str, Any], held: PackedBuffer | np.ndarray) -> dict[str, bytes]:
    """``NAME.bin`` and its sidecar."""
    sidecar = (json.dumps(info, indent=2) + "\n").encode()
    return {f"{info['value']}.bin": raw_of(held).tobytes(), f"{info['value']}.json": sidecar}


def write(writer: FolderWriter, info: dict[str, Any], held: PackedBuffer | np.ndarray) -> None:
    """Both files; FormatError where they cannot be written."""
    for name, content in files(info, held).items():
        writer.write(name, content)


def tensor_text(shape: Sequence[int], layout: Layout | None) -> str:
    """A tensor in an error about its buffer: ``1x8x5x5 in 4C``, ``16 floats in WIDTH_PACKED``."""
    sizes = "x".join(map(str, shape))
    if layout is None:
        return f"{sizes} without a layout"
    return f"{sizes} in {layout}" if layout.packed_int8 else f"{sizes} floats in {layout}"


@dataclass(frozen=True)
class RecordedBuffer:
    """One recorded buffer: its file and what it holds. ``layout`` None: contiguous in its shape.

    ``elements_only``: the elements are the device's, and the padding is unknown. ``run``: which run it is of.
    ``value``: the value that its sidecar names; empty without one.
    """

    file: str
    shape: tuple[int, ...]
    layout: Layout | None
    elements_only: bool = False
    run: RunIdentity = field(default_factory=RunIdentity)
    value: str = ""

    @property
    def misnamed(self) -> bool:
        """Whether the file has the name of a value, and its sidecar names another."""
        stem = self.file.removesuffix(".bin")
        return bool(self.value) and stem != self.value and VALUE_NAME.fullmatch(stem) is not None

    def fits(self, desc: TensorDesc) -> bool:
        """Whether it has this shape and layout."""
        found = (self.shape or (1,), self.layout)  # a value without dims is packed as one with one
        return found == (desc.shape, desc.layout)


def read_sidecar(path: str | os.PathLike[str]) -> RecordedBuffer:
    """Read the JSON file beside a raw buffer; FormatError if it is no such file."""
    where = os.fspath(path)
    content = _parsed(read_file(where, reading.MAX_JSON_BYTES), where)
    with reading.reading(where, _WHAT, _NEED):
        return _entry(Path(where).name, content, where)


_WHAT, _NEED = "not a sidecar", "value, shape, layout"


def _parsed(data: bytes | memoryview, where: str) -> Any:
    return reading.parsed(data, where, _NEED, what=_WHAT)


def _entry(name: str, content: dict[str, Any], where: str) -> RecordedBuffer:
    """From the content of ``NAME.json``; raises within `reading.reading` if it is something else."""
    named = None if content["layout"] is None else _layout(str(content["layout"]), where)
    spare = content.get("padding") == "unknown"
    shape = sizes(f"{where}: shape", content["shape"])
    file, value = name.removesuffix(".json") + ".bin", str(content.get("value", ""))
    return RecordedBuffer(file, shape, named, spare, from_sidecar(content, where), value)


def _layout(name: str | int, where: str) -> Layout:
    try:
        return layout(name)
    except LayoutError as error:
        raise FormatError(where, "not a sidecar: unknown layout", got=error.got, need=error.need) from error


class Recorded:
    """The recorded buffers of a run, by value name."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._archive: zipfile.ZipFile | None = None
        if not os.path.isdir(self.path):
            self._archive = reading.archive(self.path, "a folder or zip file of buffers")
        self.entries = self._entries()
        if not self.entries:
            raise FormatError(self.path, "holds no recorded buffers", need="NAME.json files beside NAME.bin")

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def other_run(self, run: RunIdentity) -> str | None:
        """How a buffer shows that it is of another run: ``delegate0_v3 is of another file``; None if none does."""
        for name, entry in self.entries.items():
            what = entry.run.differs(run)
            if what is not None:
                return f"{name} is {other_text(what)}"
        return None

    def unsaid(self) -> list[str]:
        """What some buffer does not say about its run: ``file``, ``inputs``, both or nothing."""
        known = [entry.run.as_json().keys() for entry in self.entries.values()]
        return [what for what in ("file", "inputs") if any(what not in keys for keys in known)]

    def silent(self, what: str) -> list[str]:
        """The buffers that do not say of which ``file`` or ``inputs`` they are, where others do."""
        found = [name for name, entry in self.entries.items() if what not in entry.run.as_json()]
        return found if len(found) < len(self.entries) else []

    def without_sidecar(self, names: Iterable[str]) -> list[str]:
        """Those of the names whose bytes lie here, and nothing that says what they are, so that they are not read."""
        held = {*self._names()} - {entry.file for entry in self.entries.values()}
        return [name for name in names if name not in self.entries and f"{name}.bin" in held]

    def unfit(self, name: str, desc: TensorDesc) -> str:
        """As what other tensor a buffer was recorded; empty if it is this one, or if it was not recorded."""
        entry = self.entries.get(name)
        if entry is None or entry.fits(desc):
            return ""
        return f"recorded as {tensor_text(entry.shape, entry.layout)}, not {tensor_text(desc.shape, desc.layout)}"

    def beside(self, name: str, buffer: PackedBuffer) -> np.ndarray:
        """The recorded bytes, to compare with a buffer: padding that is unknown is taken from there."""
        raw = self.raw(name, buffer.desc)
        if self.entries[name].elements_only:
            raw = np.where(byte_kinds(buffer.desc) == ByteKind.VALUE, raw, buffer.raw)
        return raw

    def raw(self, name: str, desc: TensorDesc) -> np.ndarray:
        """The recorded bytes of a buffer (uint8, ``desc.nbytes``).

        RawBufferError if the recording is of another shape or layout, or too short.
        """
        entry = self.entries[name]
        where = f"{self.path}: {name}"
        if not entry.fits(desc):
            raise RawBufferError(
                where,
                "recorded with another shape or layout",
                got=f"{list(entry.shape)} {entry.layout}",
                need=f"{list(desc.shape)} {desc.layout}",
            )
        data = self._read(entry.file, -(-desc.nbytes // 16) * 16)
        with naming(self._file(entry.file)):
            return PackedBuffer.from_raw(data, desc.shape, desc.layout, desc.dtype).raw

    def _names(self) -> list[str]:
        if self._archive is not None:
            return self._archive.namelist()
        return folder_write.names(self.path)

    def _file(self, name: str) -> str:
        """A file as errors name it: its path, or where it is in the archive."""
        return os.path.join(self.path, name) if self._archive is None else f"{self.path}: {name}"

    def _read(self, name: str, limit: int) -> bytes:
        where = f"{self.path}: {name}"
        if os.path.basename(name) != name:
            raise FormatError(where, "not a plain file name", need="a name without folders")
        if self._archive is not None:
            return reading.member(self._archive, name, where, limit)
        path = folder_write.current(self.path, name)
        if not os.path.isfile(path):
            raise FormatError(where, "is missing")
        return bytes(read_file(path, limit))

    def _entries(self) -> dict[str, RecordedBuffer]:
        entries: dict[str, RecordedBuffer] = {}
        for name in self._names():
            if name.endswith(".json"):
                where = f"{self.path}: {name}"
                content = _parsed(self._read(name, reading.MAX_JSON_BYTES), where)
                with reading.reading(where, _WHAT, _NEED):
                    if isinstance(content, list):
                        entries |= _upstream_entries(name, content, where)
                    else:
                        self._add(entries, str(content["value"]), _entry(name, content, where))
        return entries

    def _add(self, entries: dict[str, RecordedBuffer], value: str, entry: RecordedBuffer) -> None:
        """FormatError if another sidecar names the value too: nobody knows which buffer it is."""
        before = entries.get(value)
        if before is not None:
            both = choices.listed(sorted(one.file.removesuffix(".bin") + ".json" for one in (before, entry)))
            raise FormatError(f"{self.path}: {value}", "two sidecars name it", got=both, need="one of them")
        entries[value] = entry

    def misnamed(self) -> list[str]:
        """Of each file with the name of a value whose sidecar names another: that it is, as ``FILE is VALUE``."""
        return [f"{entry.file} is {entry.value}" for entry in self.entries.values() if entry.misnamed]


def _upstream_entries(name: str, rows: list[dict[str, Any]], where: str) -> dict[str, RecordedBuffer]:
    """Rows of ``delegateK.json``: the packed values of one delegate, as ET-VK's runtime describes them."""
    stem = name.removesuffix(".json")
    found = {}
    for number, row in enumerate(rows):
        if "raw" in row:
            if not isinstance(row["raw"], str):
                raise FormatError(f"{where}: [{number}].raw", "not a file name", got=quote(row["raw"]))
            shape = sizes(f"{where}: [{number}].sizes", row["sizes"])
            made = RecordedBuffer(row["raw"], shape, _layout(int(row["memory_layout_enum"]), where))
            found[f"{stem}_v{int(row['fb_value_id'])}"] = made
    return found
