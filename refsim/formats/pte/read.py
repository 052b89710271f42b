"""Read a .pte container: extended header, program, segments, named data. Nothing is copied."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from refsim.core.counted import counted
from refsim.core.errors import FormatError
from refsim.formats.file import held, quote, read_file, view
from refsim.formats.flatbuffer.decode import decode, unread
from refsim.formats.limits import LIMITS, Limits, span
from refsim.formats.pte.check import check_plan
from refsim.formats.pte.schema import (
    DELEGATE_SEGMENT,
    EXTERNAL,
    PROGRAM,
    SCALAR_TYPES,
    Delegate,
    Plan,
    Program,
    SegmentOffsets,
    Tensor,
)
from refsim.formats.vkgraph.read import HEADER_MAGIC as BLOB_MAGIC
from refsim.formats.vkgraph.read import Blob, read_blob

VULKAN_ID = "VulkanBackend"
EXTENDED_MAGIC = b"eh00"
EXTENDED_AT = 8
#: magic, header length, program size, segment base; newer files add the size of all segments.
EXTENDED_SHORT = struct.Struct("<4sIQQ")
EXTENDED_LONG = struct.Struct("<4sIQQQ")


@dataclass(frozen=True)
class Pte:
    """A .pte file: the program as data, and read-only views of the bytes that it refers to."""

    where: str
    program: Program
    segments: tuple[memoryview, ...] = field(compare=False)
    named_data: Mapping[str, memoryview] = field(compare=False)
    body: memoryview = field(default=memoryview(b""), compare=False, repr=False)
    #: delegates that are held as data, and stand in for the bytes of these
    held: Mapping[int, Blob] = field(default_factory=dict, compare=False, repr=False)

    def unread(self) -> list[str]:
        """Fields of the program that are not read here, and so would be lost if it were written again."""
        return unread(self.body, PROGRAM, self.where) if self.body else []

    def plan(self, name: str = "forward") -> Plan:
        """The method called ``name``; raises FormatError if the program has none."""
        for plan in self.program.plans:
            if plan.name == name:
                return plan
        names = [plan.name for plan in self.program.plans]
        raise FormatError(self.where, "no such method", got=quote(name), need=f"one of {quote(names)}")

    def delegate_data(self, delegate: Delegate) -> memoryview:
        """The bytes handed to the backend: inline in the program, or a segment."""
        if delegate.processed is None:
            raise FormatError(
                f"{self.where}: delegate {quote(delegate.id)}", "no data", need="processed data"
            )
        source, index = self.program.inline_delegates, delegate.processed.index
        if delegate.processed.location == DELEGATE_SEGMENT:
            source = self.segments
        return source[index]

    def tensor_data(self, tensor: Tensor) -> memoryview | None:
        """The stored bytes of a tensor (its ``sizes``, contiguous in ``dim_order``), None if it has none.

        Raises FormatError if the range leaves its segment, or the data lies in another file.
        """
        return _tensor_data(self, tensor, f"{self.where}: tensor {list(tensor.sizes)}")

    def blobs(self, plan: Plan, limits: Limits = LIMITS) -> Iterator[tuple[int, Blob]]:
        """(index, blob) of every Vulkan delegate of ``plan``, in the order of its delegates."""
        for number, delegate in enumerate(plan.delegates):
            if delegate.id == VULKAN_ID:
                place = f"{self.where}: delegate {number}"
                if number in self.held:
                    yield number, self.held[number]
                    continue
                yield number, read_blob(self.delegate_data(delegate), place, self.named_data, limits)


def load(path: str | os.PathLike[str], limits: Limits = LIMITS) -> Pte:
    """Read the .pte file at ``path``; raises FormatError, also when it cannot be opened, and LimitError."""
    return read_pte(read_file(path), os.fsdecode(path), limits)


def kind_of(data: bytes | bytearray | memoryview) -> str | None:
    """What the bytes claim to be: ``pte``, ``blob``, or None for neither."""
    magic = bytes(view(data)[4:8])
    return {PROGRAM.identifier: "pte", BLOB_MAGIC: "blob"}.get(magic)


def unknown(data: bytes | bytearray | memoryview, name: str) -> FormatError:
    """The error for a file that is of neither kind."""
    need = "a .pte, which refsim lower makes of a .pt2" if name.endswith(".pt2") else "a .pte of ExecuTorch"
    return FormatError(name, "neither a .pte file nor a delegate blob", got=held(data), need=need)


def read_pte(data: bytes | bytearray | memoryview, where: str = "pte", limits: Limits = LIMITS) -> Pte:
    """Read and check a .pte held in memory; blobs of delegates are read when asked for."""
    content = view(data)
    size, base, segments_end = _extended_header(content, where)
    program: Program = decode(content[:size], PROGRAM, where)
    segments = []
    for number, segment in enumerate(program.segments):
        place = f"{where}: segments[{number}]"
        if base is None and not segment.size:  # as ExecuTorch writes a program without any constant
            segments.append(content[:0])
            continue
        if base is None:
            raise FormatError(
                place, "segment without an extended header", got="no eh00", need="eh00 at byte 8"
            )
        start = base + segment.offset
        if start + segment.size > segments_end:
            got = f"offset {segment.offset}, size {segment.size}"
            raise FormatError(
                place, "segment leaves the file", got=got, need=f"an end of at most {segments_end}"
            )
        segments.append(content[start : start + segment.size])
    pte = Pte(where, program, tuple(segments), _named_data(program, segments, where), content[:size])
    for number, plan in enumerate(program.plans):
        check_plan(plan, program, f"{where}: plans[{number}]", limits)
        for index, value in enumerate(plan.values):
            if isinstance(value, Tensor) and not _is_external(value):
                _tensor_data(pte, value, f"{where}: plans[{number}].values[{index}]")
    return pte


def _extended_header(content: memoryview, where: str) -> tuple[int, int | None, int]:
    """(bytes of the program, base of the segments or None, end of the segments)."""
    place = f"{where}: extended header at byte {EXTENDED_AT}"
    if bytes(content[EXTENDED_AT : EXTENDED_AT + 4]) != EXTENDED_MAGIC:
        return len(content), None, len(content)
    if len(content) < EXTENDED_AT + EXTENDED_SHORT.size:
        raise FormatError(
            place, "file too short", got=counted(len(content), "byte"), need=EXTENDED_AT + EXTENDED_SHORT.size
        )
    _, length, size, base = EXTENDED_SHORT.unpack_from(content, EXTENDED_AT)
    if length < EXTENDED_SHORT.size:
        raise FormatError(place, "bad header length", got=length, need=f"at least {EXTENDED_SHORT.size}")
    end = len(content)
    if length >= EXTENDED_LONG.size and end >= EXTENDED_AT + EXTENDED_LONG.size:
        segment_bytes = EXTENDED_LONG.unpack_from(content, EXTENDED_AT)[4]
        # 0 is also what files say that leave it out
        end = base + segment_bytes if segment_bytes else end
    if size > len(content) or end > len(content) or (base and base < size):
        got = f"program {size}, segments {base} to {end}"
        raise FormatError(
            place, "sizes leave the file", got=got, need=f"within {counted(len(content), 'byte')}, in order"
        )
    return size, base, end


def _named_data(program: Program, segments: list[memoryview], where: str) -> dict[str, memoryview]:
    found: dict[str, memoryview] = {}
    for number, entry in enumerate(program.named_data):
        place = f"{where}: named_data[{number}]"
        if entry.segment_index >= len(segments):
            raise FormatError(place, "no such segment", got=entry.segment_index, need=span(len(segments)))
        if entry.key in found:
            raise FormatError(place, "key occurs twice", got=quote(entry.key), need="distinct keys")
        found[entry.key] = segments[entry.segment_index]
    return found


def _is_external(tensor: Tensor) -> bool:
    return tensor.extra is not None and tensor.extra.location == EXTERNAL


def _tensor_data(pte: Pte, tensor: Tensor, place: str) -> memoryview | None:
    if _is_external(tensor):
        name = tensor.extra.fully_qualified_name if tensor.extra else ""
        raise FormatError(place, "data lies outside the file", got=quote(name), need="data in a segment")
    index = tensor.data_index
    if index == 0:
        return None
    source, start = _stored(pte, tensor, place)
    nbytes = SCALAR_TYPES[tensor.scalar_type][1]
    for size in tensor.sizes:
        nbytes *= size
    if start + nbytes > len(source):
        got = f"offset {start}, size {nbytes}"
        raise FormatError(place, "data leaves its segment", got=got, need=f"an end of at most {len(source)}")
    return source[start : start + nbytes]


def _stored(pte: Pte, tensor: Tensor, place: str) -> tuple[memoryview, int]:
    """(bytes, offset) where the data of a tensor starts: a segment, or a buffer of the program itself."""
    program, index = pte.program, tensor.data_index
    offsets: SegmentOffsets | None = program.constant_segment
    if tensor.allocation is not None:
        number = tensor.extra.mutable_segment if tensor.extra else 0
        offsets = program.mutable_segments[number] if number < len(program.mutable_segments) else None
    if offsets is not None and offsets.offsets:
        if index >= len(offsets.offsets):
            raise FormatError(place, "no such data", got=index, need=span(len(offsets.offsets)))
        if offsets.segment_index >= len(pte.segments):
            raise FormatError(
                place, "no such segment", got=offsets.segment_index, need=span(len(pte.segments))
            )
        return pte.segments[offsets.segment_index], offsets.offsets[index]
    if index >= len(program.constant_buffers):
        raise FormatError(place, "no such buffer", got=index, need=span(len(program.constant_buffers)))
    return program.constant_buffers[index], 0
