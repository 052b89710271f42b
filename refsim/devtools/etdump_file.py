"""Read an ETDump and the debug buffer beside it, neither of which is trusted."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from refsim.core import choices, size_limit
from refsim.core.counted import counted
from refsim.core.dtypes import BY_PROGRAM_CODE
from refsim.core.errors import FormatError, LimitError
from refsim.devtools.etdump_schema import ETDUMP, DumpedTensor, DumpedValue, EtDump, Run
from refsim.formats.file import held, read_file, view
from refsim.formats.flatbuffer.decode import decode

#: Most runs in a file, and most events in all of them: tables of a flatbuffer may be shared.
_MOST_RUNS, _MOST_EVENTS = 1 << 12, 1 << 21
_SIZE = struct.Struct("<I")
#: How the names of raw files end.
RAW = (".bin", ".raw")
#: What the runtime calls the events of one run of a program; loading is another.
_WHOLE_PROGRAM = "Method::execute"


@dataclass(frozen=True)
class EtdumpRecording:
    """An ETDump with its debug buffer, and the file that it is from. ``buffer`` is empty where none was given."""

    where: str
    dump: EtDump
    buffer: memoryview
    buffer_file: str = ""

    def executions(self) -> list[Run]:
        """The runs of the program, without the loading of it."""
        return [
            run for run in self.dump.runs
            if any(event.profile is not None and event.profile.name == _WHOLE_PROGRAM for event in run.events)
        ]  # fmt: skip

    def arguments(self, run: Run) -> dict[int, list[np.ndarray | None]]:
        """By number of an instruction, the values that were recorded of it, in order; None for what is no tensor.

        Of a delegate call these are its inputs and outputs, of a plain kernel its outputs. FormatError for a tensor
        that is not in the buffer.
        """
        found: dict[int, list[np.ndarray | None]] = {}
        for number, values in _recorded(run):
            found.setdefault(number, []).extend(self._arrays(number, value) for value in values)
        return found

    def _need(self, nbytes: int) -> str:
        """What an error says of a debug buffer that does not reach so far: which that is, and which may be meant."""
        text = "the runtime writes the buffer to a file of its own, --buffer"
        if self.buffer_file:
            text = f"as many bytes as the runtime wrote: {self.buffer_file} has {len(self.buffer)}"
        return text + _beside(self.where, self.buffer_file, nbytes)

    def _arrays(self, number: int, tensor: DumpedTensor | None) -> np.ndarray | None:
        return None if tensor is None else self.array(tensor, f"{self.where}: instruction {number}")

    def array(self, tensor: DumpedTensor, place: str) -> np.ndarray:
        """A tensor, read-only. FormatError if the buffer does not have it whole and without gaps."""
        row = BY_PROGRAM_CODE.get(tensor.scalar_type)
        if row is None or not row.computed:
            raise FormatError(place, "a tensor of a dtype that is not read", got=tensor.scalar_type)
        if (
            len(tensor.sizes) != len(tensor.strides)
            or len(tensor.sizes) > 16
            or min(tensor.sizes, default=0) < 0
        ):
            raise FormatError(
                place, "bad sizes or strides", got=f"{list(tensor.sizes)[:8]}, {list(tensor.strides)[:8]}"
            )
        nbytes = prod(tensor.sizes) * row.numpy.itemsize
        if tensor.offset < 0 or tensor.offset + nbytes > len(self.buffer):
            raise FormatError(
                place, "a tensor is not in the debug buffer", got=f"bytes {tensor.offset} to {tensor.offset + nbytes}",
                need=self._need(tensor.offset + nbytes),
            )  # fmt: skip
        # NumPy allows no absurd sizes beside one of 0 either
        size_limit.check(place, prod(max(1, size) for size in tensor.sizes) * row.numpy.itemsize)
        # in memory the dims lie in the order of their strides; dims of one element may have any
        order = sorted(
            range(len(tensor.sizes)), key=lambda dim: (-tensor.strides[dim], tensor.sizes[dim] != 1, dim)
        )
        step = 1
        for dim in reversed(order):
            if tensor.sizes[dim] > 1 and nbytes and tensor.strides[dim] != step:
                raise FormatError(
                    place, "a tensor with gaps", got=list(tensor.strides), need="strides of a dense tensor"
                )
            step *= tensor.sizes[dim]
        flat = np.frombuffer(self.buffer[tensor.offset : tensor.offset + nbytes], row.numpy)
        return flat.reshape([tensor.sizes[dim] for dim in order]).transpose(np.argsort(order))


def _recorded(run: Run) -> Iterator[tuple[int, list[DumpedTensor | None]]]:
    """The values of instructions, in order; not the outputs of the whole program."""
    for event in run.events:
        debug = event.debug
        if debug is not None and debug.value is not None and not debug.value.is_output:
            yield debug.instruction, _tensors(debug.value)


def _tensors(value: DumpedValue) -> list[DumpedTensor | None]:
    return [value.tensor] if value.tensors is None else list(value.tensors)


def _beside(where: str, given: str, nbytes: int) -> str:
    """The files beside an ETDump that may be its debug buffer: raw ones of so many bytes or more."""
    found = [
        path for path in sorted(Path(where).parent.iterdir())
        if path.suffix in RAW and path.is_file() and path.stat().st_size >= nbytes and str(path) != given
    ]  # fmt: skip
    if not found:
        return ""
    return choices.asked(str(found[0]) if len(found) == 1 else f"one of {choices.first(found)}")


def read_etdump(
    path: str | os.PathLike[str], buffer: str | os.PathLike[str] | None = None
) -> EtdumpRecording:
    """An ETDump, with its size in front or not, and its debug buffer. FormatError or LimitError for anything else."""
    where = os.fsdecode(path)
    data = read_file(path)
    base = _SIZE.size if bytes(data[8:12]) == ETDUMP.identifier else 0
    if base:
        (size,) = _SIZE.unpack(data[:base])
        if size > len(data) - base:
            raise FormatError(
                where, "cut short", got=counted(len(data) - base, "byte"), need=f"{size}, as it begins"
            )
        data = data[base : base + size]
    if bytes(data[4:8]) != ETDUMP.identifier:
        got, need = held(data), "what ExecuTorch's event tracer writes"
        raise FormatError(where, "not an ETDump", got=got, need=need)
    memory = view(b"") if buffer is None else read_file(buffer)
    dump = decode(data, ETDUMP, where, base)
    events = sum(len(run.events) for run in dump.runs)
    if len(dump.runs) > _MOST_RUNS or events > _MOST_EVENTS:
        raise LimitError(
            where,
            "too many runs or events",
            got=f"{len(dump.runs)}, {events}",
            need=f"<= {_MOST_RUNS}, {_MOST_EVENTS}",
        )
    return EtdumpRecording(where, dump, memory, "" if buffer is None else os.fsdecode(buffer))
