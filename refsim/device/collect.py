"""The outputs of exposed files as buffers of the model's values, and as a dump folder that `bisect` and `run` read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refsim.core import choices
from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.core.counted import counted
from refsim.core.errors import FormatError
from refsim.device import manifest as m
from refsim.device import outputs
from refsim.device.choose import Exposable, candidates
from refsim.device.dumped import Ran
from refsim.device.expose import held_of
from refsim.device.strip import source
from refsim.exec.model import Model
from refsim.formats.cases import write_folder
from refsim.formats.dumps import files, sidecar
from refsim.formats.pte.read import Pte
from refsim.formats.run_identity import RunIdentity
from refsim.formats.targets import TargetRow, named
from refsim.ops.base.target import Target


@dataclass(frozen=True)
class ExposedPart:
    """One exposed file and the outputs of one run of it."""

    pte: Pte
    manifest: m.Manifest
    arrays: tuple[np.ndarray, ...]
    where: str


@dataclass(frozen=True)
class Collected(Ran):
    """The values of one run, and what they mean. ``own``: the outputs that the program, ``model``, had before."""

    model: Model
    infos: Mapping[str, dict[str, Any]]
    own: tuple[np.ndarray, ...]

    def beside(self, name: str, buffer: PackedBuffer) -> np.ndarray:
        """As of any run; padding that is unknown is that of ``buffer``."""
        raw = super().beside(name, buffer)
        unknown = self.infos[name].get("padding") == "unknown"
        return np.where(buffer.kinds() == ByteKind.VALUE, raw, buffer.raw) if unknown else raw


#: An exposed file, and the paths of the outputs of a run of it.
Given = tuple[str | os.PathLike[str], Sequence[str | os.PathLike[str]]]


def parts_of(exposed: str, outputs: Sequence[str], more: Iterable[tuple[str, str]]) -> list[Given]:
    """Exposed files, each with the outputs of the same run; ``more``: those that hold other parts of the model."""
    return [(exposed, outputs), *((file, (given,)) for file, given in more)]


def read(given: Sequence[Given]) -> list[ExposedPart]:
    """Read exposed files and their outputs. FormatError, ShapeError or LimitError unless all belong to one run.

    Several files are those that one program was exposed in. The program's own outputs must be equal in all of them.
    """
    parts = []
    for exposed, paths in given:
        pte, manifest = m.read(exposed)
        arrays = outputs.read(paths, [(row.dtype, row.shape) for row in manifest.outputs])
        parts.append(ExposedPart(pte, manifest, tuple(arrays), os.fspath(paths[0])))
    first = parts[0]
    seen: dict[str, str] = {}
    for part in parts:
        if part.manifest.source_digest != first.manifest.source_digest:
            got, need = (p.manifest.source for p in (part, first))
            raise FormatError(part.where, "outputs of another program", got=got, need=need)
        for number in range(part.manifest.own):
            if part.arrays[number].tobytes() != first.arrays[number].tobytes():
                raise FormatError(
                    part.where, "outputs of another run: the program's own outputs differ", got=f"another out{number}",
                    need=f"that of {first.where}; other inputs, or a device that does not repeat itself",
                )  # fmt: skip
        for row in part.manifest.outputs[part.manifest.own :]:
            if row.value in seen:
                where = f"{part.where}: {row.value}"
                raise FormatError(where, "collected twice", got=seen[str(row.value)], need="each file once")
            seen[str(row.value)] = part.where
    return parts


def collect(parts: Sequence[ExposedPart], target: Target | None = None) -> Collected:
    """The values of a run. ``target`` says how the runtime chose the layouts that the file leaves open.

    FormatError for outputs that no run of this file gives.
    """
    first = parts[0]
    model = source(first.pte, first.manifest, target)
    infos: dict[str, dict[str, Any]] = {}
    held: dict[str, PackedBuffer | np.ndarray] = {}
    known = {c.name: c for c in candidates(model)}
    given = {c.given: c for c in known.values() if c.given is not None and not c.reason}
    run = RunIdentity(first.manifest.source_digest)  # on which inputs the device ran, nobody knows
    for part in parts:
        for number, (row, array) in enumerate(zip(part.manifest.outputs, part.arrays, strict=True)):
            place = f"{part.where}: {row.output}"
            c = given.get(number) if row.value is None else known.get(row.value)
            if c is None and row.value is None:
                continue  # an output that no delegate writes
            if c is None or (
                row.held is not None
                and (row.held.shape, row.held.dtype) != (c.tensor.shape, str(c.tensor.dtype))
            ):
                raise FormatError(
                    place,
                    "not a value of the program",
                    got=row.value,
                    need=choices.need(str(row.value), known),
                )
            if c.name not in held:
                held[c.name] = _held(c, row.way or m.PLAIN, array, place)
                infos[c.name] = _info(c, row, held[c.name], run)
    ordered = [name for name in known if name in held]
    return Collected(
        {n: held[n] for n in ordered},
        model,
        {n: infos[n] for n in ordered},
        first.arrays[: first.manifest.own],
    )


def family_of(parts: Sequence[ExposedPart], family: TargetRow | None) -> tuple[TargetRow | None, str]:
    """The family of the device, and where that is from: the one that was given, or that the file was exposed for."""
    name = parts[0].manifest.target
    if family is not None:
        return family, "as was given"
    return (None, "") if name is None else (named(name), "for which the file was exposed")


def files_of(collected: Collected) -> dict[str, bytes]:
    """The files of a dump folder: ``NAME.bin`` and ``NAME.json`` for each value."""
    found: dict[str, bytes] = {}
    for name, info in collected.infos.items():
        found |= files(info, collected.held[name])
    return found


def write(folder: str | os.PathLike[str], collected: Collected) -> None:
    """A new folder with the values; it appears whole or not at all. FormatError if there is one of this name."""
    if not collected.infos:
        raise FormatError(
            os.fspath(folder), "there is nothing to write", got="no values", need="an exposed file with some"
        )
    write_folder(folder, files_of(collected))


def _info(
    c: Exposable, row: m.ExposedOutput, held: PackedBuffer | np.ndarray, run: RunIdentity
) -> dict[str, Any]:
    about = held_of(c)
    info = sidecar(c.name, held, run=run) | {"output": row.output}
    if about.node is not None:
        info |= {"operator": about.operator, "node": about.node, **about.facts}
    if row.way == m.VALUES:
        info["padding"] = "unknown"
    return info


def _held(c: Exposable, way: str, array: np.ndarray, where: str) -> PackedBuffer | np.ndarray:
    """What an output says about a value."""
    desc = c.tensor.desc
    if way == m.WORDS:
        raw = np.asarray(array, order="C").reshape(-1).view(np.uint8)
        if desc is None or not desc.is_int8 or raw.size < desc.nbytes:
            raise FormatError(
                where,
                f"not the words of {c.name}",
                got=counted(raw.size, "byte"),
                need=desc or c.tensor.dtype,
            )
        return PackedBuffer.from_raw(raw[: desc.nbytes], desc.shape, desc.layout)
    data = (_int8(array, where) if way == m.VALUES else array).reshape(c.tensor.shape)
    return (
        data if desc is None else PackedBuffer.pack(data.reshape(desc.shape), desc.layout, dtype=desc.dtype)
    )


def _int8(array: np.ndarray, where: str) -> np.ndarray:
    """Exact floats as the int8 values that they stand for."""
    with np.errstate(invalid="ignore"):
        wrong = np.flatnonzero(~((array == np.round(array)) & (array >= -128) & (array <= 127)).reshape(-1))
    if wrong.size:
        got = f"{array.reshape(-1)[wrong[0]]!s} at {int(wrong[0])}, and {wrong.size - 1} more"
        raise FormatError(
            where, "not the values of an int8 tensor", got=got, need="whole numbers, -128 to 127"
        )
    return array.astype(np.int8)
