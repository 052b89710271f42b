"""Recorded runs of ET-VK's own kernels, as calls that the executors here can repeat.

golden/upstream has a zip file per operator, and each recording is a folder in it. case.json names the arguments in
upstream's order; arrays lie beside it. `out.raw.bin` is the whole output buffer after a run; before, it was filled with
0x5A. `out.mask.bin` has one byte per byte of it: bit 0 says that the kernel wrote it, bit 1 that it is an element.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from refsim.core.buffer import PackedBuffer
from refsim.core.counted import counted
from refsim.core.errors import FormatError
from refsim.core.layout import layout
from refsim.core.tensor import TensorDesc
from refsim.formats import reading
from refsim.formats.npz import member_array
from refsim.ops.base.arg import Kind
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call
from refsim.ops.base.target import Target

WRITTEN, ELEMENT = 1, 2
_TENSOR_KINDS = ("int8_in", "float_in")
_PLAIN_KINDS = ("float", "int", "ints", "str")
_OUTPUT_KINDS = ("int8_out", "float_out")


@dataclass(frozen=True)
class RecordedKernel:
    """One dispatch of a recorded run: the name of its shader, the global size and the workgroup."""

    shader: str
    global_size: tuple[int, int, int]
    local: tuple[int, int, int]


@dataclass(frozen=True)
class Recording:
    """One recorded run: the call, its inputs, and what the device wrote."""

    id: str
    op: str
    arguments: dict[str, dict[str, Any]]
    arrays: dict[str, np.ndarray]
    out_shape: tuple[int, ...]
    out_layout: str
    raw: np.ndarray  # uint8, on lavapipe
    mask: np.ndarray | None  # uint8 per raw byte; None for a float output
    inpad7b: np.ndarray | None  # uint8, where a run with input padding 0x7B wrote something else
    h200: np.ndarray | None  # uint8, where an H200 wrote something else
    scratch: np.ndarray | None  # uint8, the im2col scratch
    layouts: dict[str, dict[str, Any]]  # tensor name -> the metadata that the device had of it
    scratch_layout: dict[str, Any] | None  # that of the im2col scratch
    kernels: tuple[RecordedKernel, ...]  # all dispatches of the run, those that fetch its output too
    exporter_legal: bool
    note: str

    def call(self, target: Target | None = None) -> Call:
        """The call as this project binds it; raises what `OpSpec.bind` raises where it refuses the case."""
        op = OPS[self.op]
        params = {
            name: tuple(argument["value"]) if argument["kind"] == "ints" else argument["value"]
            for name, argument in self.arguments.items()
            if argument["kind"] in _PLAIN_KINDS
        }
        consts = {a.name: self.arrays.get(a.name) for a in op.of_kind(Kind.CONST)}
        descs = {name: buffer.desc for name, buffer in self.inputs().items()}
        return op.bind(
            op.make_params(params), descs, consts, self.out_layout, out_shape=self.out_shape, target=target
        )

    def inputs(self) -> dict[str, PackedBuffer]:
        """Fresh input buffers, padding 0."""
        return {
            name: PackedBuffer.pack(self.arrays[name], argument["layout"])
            for name, argument in self.arguments.items()
            if argument["kind"] in _TENSOR_KINDS
        }

    def differences(self, actual: PackedBuffer, device: np.ndarray, call: Call) -> np.ndarray:
        """Where a buffer differs from the device's, in bytes that the operator defines: int64 indices.

        FormatError if the recording is too short for the buffer.
        """
        if device.size < actual.raw.size:
            raise FormatError(
                self.id, "recorded too short", got=counted(device.size, "byte"), need=actual.raw.size
            )
        defined = call.device_defined()
        return np.flatnonzero((actual.raw != device[: actual.raw.size]) & defined)


@dataclass(frozen=True)
class RecordedDifferences:
    """golden/upstream/differences.json: which recordings differ from this project, and why.

    ``causes`` maps a name to what is different and to its kind: ``defect`` is upstream's, ``refused`` a call that
    refsim refuses, ``profile`` a matter of numerics. ``patterns`` maps shell patterns of recording ids to causes.
    """

    causes: dict[str, dict[str, str]]
    patterns: dict[str, str]

    @classmethod
    def load(cls, path: Path) -> RecordedDifferences:
        listed = reading.json_file(path, "causes and recordings")
        with reading.reading(str(path), "not a list of differences"):
            return cls(dict(listed["causes"]), dict(listed["recordings"]))

    @staticmethod
    def matches(pattern: str, recording: str) -> bool:
        return fnmatchcase(recording, pattern)

    def cause(self, recording: str) -> str | None:
        """Why the recording of this id differs; None if it does not."""
        return next((cause for p, cause in self.patterns.items() if self.matches(p, recording)), None)


_NEED = "a zip file of golden/upstream"


def _cases(path: Path) -> Iterator[tuple[zipfile.ZipFile, str, dict[str, Any]]]:
    """The open archive, the folder and the case.json of each recording, in name order."""
    with reading.archive(path, _NEED) as archive:
        names = sorted(n for n in archive.namelist() if n.endswith("/case.json"))
        if not names:
            raise FormatError(str(path), "holds no case.json", need=_NEED)
        for name in names:
            where = f"{path}: {name}"
            case = reading.parsed(reading.member(archive, name, where), where, "a recorded case")
            if not isinstance(case, dict):
                raise FormatError(where, "not a recording", got=type(case).__name__, need="an object")
            yield archive, name.removesuffix("case.json"), case


def read(path: Path) -> Iterator[Recording]:
    """The recordings of one zip file, in name order; cases that upstream itself refused are left out.

    FormatError or LimitError for a file that is missing, damaged or something else.
    """
    for archive, folder, case in _cases(path):
        if "error" not in case:
            with reading.reading(f"{path}: {folder}", "not a recording"):
                recording = _recording(archive, f"{path}: ", folder, case)
            yield recording


def _recording(archive: zipfile.ZipFile, where: str, folder: str, case: dict[str, Any]) -> Recording:
    present = set(archive.namelist())

    def raw(name: str | None) -> np.ndarray | None:
        if name is None or folder + name not in present:
            return None
        return np.frombuffer(reading.member(archive, folder + name, where + folder + name), np.uint8)

    def array(name: str) -> np.ndarray:
        return member_array(archive, folder + name, where + folder + name)

    arguments = {str(a["name"]): a for a in case["args"]}
    (out,) = (a for a in case["args"] if a["kind"] in _OUTPUT_KINDS)
    (result,) = case["result"]["outputs"]
    arrays = {name: array(a["file"]) for name, a in arguments.items() if "file" in a}
    for name, argument in arguments.items():
        if argument["kind"] in _PLAIN_KINDS and (argument["kind"] == "ints") != isinstance(
            argument["value"], list
        ):
            raise FormatError(f"{where}{folder}{name}", "not a value of its kind", got=argument["kind"])
        if argument["kind"] in _TENSOR_KINDS:
            _described(arrays[name].shape, argument)
    out_shape = tuple(out["shape"])
    _described(out_shape, out)
    written = raw(result.get("raw"))
    if written is None:  # a texture: only its elements were read back
        written = PackedBuffer.pack(array(result["nchw"]), out["layout"]).raw
    return Recording(
        id=str(case["id"]),
        op=str(case["op"]),
        arguments=arguments,
        arrays=arrays,
        out_shape=out_shape,
        out_layout=out["layout"],
        raw=written,
        mask=raw(result.get("mask")),
        inpad7b=raw(result.get("raw_inpad7B")),
        h200=raw("out.h200.raw.bin"),
        scratch=raw(next((t["raw"] for t in case["result"]["temps"]), None)),
        layouts={
            entry["name"]: entry["layout_meta"]
            for entry in (*case["result"].get("inputs", ()), result)
            if "layout_meta" in entry
        },
        scratch_layout=next((t["layout_meta"] for t in case["result"]["temps"]), None),
        kernels=tuple(_kernel(entry) for entry in case["result"]["kernels"]),
        exporter_legal=case.get("exporter_legal") is not False,
        note=str(case.get("note", "")),
    )


def _kernel(entry: dict[str, Any]) -> RecordedKernel:
    (gx, gy, gz), (lx, ly, lz) = entry["gwg"], entry["lwg"]
    return RecordedKernel(entry["kernel"], (gx, gy, gz), (lx, ly, lz))


def _described(shape: tuple[int, ...], argument: dict[str, Any]) -> TensorDesc:
    """The tensor of an argument; a typed error if there can be none, TypeError for a layout without a name."""
    return TensorDesc(shape, layout(str(argument["layout"])))


def staged_inputs(path: Path) -> Iterator[tuple[str, np.ndarray, TensorDesc, np.ndarray]]:
    """(case id, array, description, raw bytes) of every input that upstream's own staging kernel packed."""
    for archive, folder, case in _cases(path):
        staged = []
        where = f"{path}: {folder}"
        with reading.reading(where, "not a recording"):
            arguments = {a["name"]: a for a in case["args"]}
            for entry in case.get("result", {}).get("inputs", ()):
                argument = arguments[entry["name"]]
                array = member_array(archive, folder + argument["file"], where + argument["file"])
                name = folder + entry["raw_by_nchw_to_int8x4"]
                packed = np.frombuffer(reading.member(archive, name, f"{path}: {name}"), np.uint8)
                staged.append((str(case["id"]), array, _described(array.shape, argument), packed))
        yield from staged
