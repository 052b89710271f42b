"""Mutations of programs and delegate blobs: damaged tables and offsets, and sound ones that say something else."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any

from refsim.core.errors import RefsimError
from refsim.devtools.etdump_schema import ETDUMP
from refsim.formats.flatbuffer.decode import _Decoder, decode
from refsim.formats.flatbuffer.encode import encode
from refsim.formats.flatbuffer.schema import FileSchema
from refsim.formats.pte.read import EXTENDED_AT, Pte, read_pte
from refsim.formats.pte.schema import PROGRAM
from refsim.formats.pte.write import write_pte
from refsim.formats.vkgraph.read import HEADER, HEADER_MAGIC, Blob, read_blob
from refsim.formats.vkgraph.schema import VKGRAPH
from refsim.ops.base.registry import OPS
from tests.fuzz import plain, structures

_INTS = (
    -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 127, 128, 255, 256, -128, -129, 1000, 65536, 1 << 20, 2**31 - 1, 2**31,
    2**32 - 1, 2**32, 2**63 - 1, -(2**31), -(2**63),
)  # fmt: skip
_DOUBLES = (0.0, -0.0, 1.0, -1.0, 0.5, 3.5, 5e-324, 1e-300, 1e300, 2.0**61, math.nan, math.inf, -math.inf)
_TEXTS = (
    "",
    "x" * 500,
    "\x1b[2J",
    "\u202eab",
    "a\nb",
    "relu",
    "none",
    "VulkanBackend",
    "[bold]x[/]",
    "<b>",
    "\x9b1m",
)
_NAMES = (
    *(op.serialized for op in OPS.values()),
    "aten.add.Tensor", "aten.view_copy.default", "aten.cat.default", "aten.mean.dim", "aten.convolution.default",
    "aten.full.default", "aten.arange.start_step", "aten.repeat.default", "aten.linear.default", "nothing.at_all",
    "aten.max_pool2d_with_indices.default", "aten.slice_copy.Tensor", "aten.native_layer_norm.default",
    "et_vk.prepack.default",
)  # fmt: skip


# --- what a file says ------------------------------------------------------------------------------------


def _paths(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in nested dataclasses and tuples."""
    if isinstance(content, memoryview):
        return
    if path:
        yield path
    if is_dataclass(content):
        for field in fields(content):
            yield from _paths(getattr(content, field.name), (*path, field.name))
    elif isinstance(content, tuple):
        for at, item in enumerate(content):
            yield from _paths(item, (*path, at))


def _get(content: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        content = getattr(content, step) if isinstance(step, str) else content[step]
    return content


def _set(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, str):
        return replace(content, **{step: _set(getattr(content, step), rest, value)})
    return (*content[:step], _set(content[step], rest, value), *content[step + 1 :])


def _other(rng: random.Random, value: Any, root: Any, paths: list[tuple[Any, ...]]) -> Any:
    """Something else in place of a value, of the same type or nearly."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return (
            rng.choice((value + 1, value - 1, -value, value * 2, *_INTS))
            if rng.random() < 0.9
            else rng.getrandbits(40)
        )
    if isinstance(value, float):
        return rng.choice((value * 2, -value, value * 1e30, *_DOUBLES))
    if isinstance(value, str):
        return rng.choice(_NAMES if "." in value else _TEXTS) if rng.random() < 0.9 else value + "\x07"
    if isinstance(value, tuple):
        way = rng.randrange(5)
        if way == 0:
            return value[: rng.randrange(len(value) + 1)]
        if way == 1:
            return value + value[-1:] * rng.choice((1, 1, 6, 300))
        if way == 2 and value:
            at = rng.randrange(len(value))
            return value[:at] + value[at + 1 :]
        if way == 3:
            return value[::-1]
        return tuple(rng.sample(value, len(value)))
    alike = [p for p in paths if is_dataclass(_get(root, p)) and len(p) > 1 and isinstance(p[-1], int)]
    return _get(root, rng.choice(alike)) if alike else value  # a table where another one is


def content(rng: random.Random, root: Any) -> Any:
    """The same content with some of its values exchanged."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        paths = list(_paths(root))
        path = rng.choice(paths)
        root = _set(root, path, _other(rng, _get(root, path), root, paths))
    return root


# --- how a file says it ----------------------------------------------------------------------------------


_SCHEMAS = {"pte": PROGRAM, "blob": VKGRAPH, "etdump": ETDUMP}


@lru_cache(maxsize=256)
def _objects(data: bytes, kind: str) -> tuple[tuple[str, int], ...]:
    schema = _SCHEMAS[kind]
    decoder = _Decoder(memoryview(data), schema, "seed", 0)
    decoder.root()
    return tuple(decoder.done)


def structure(rng: random.Random, data: bytes, kind: str) -> bytes:
    """A flatbuffer with offsets, vtables, lengths or scalars changed where they lie."""
    schema: FileSchema = _SCHEMAS[kind]
    places = _objects(data, kind)
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        name, at = rng.choice(places)
        if name in schema.tables:
            _in_table(rng, changed, at, places)
        else:
            values = (*plain.WORDS, struct.unpack_from("<I", data, at)[0] + rng.choice((-1, 1, 2)))
            struct.pack_into("<I", changed, at, rng.choice(values) % 2**32)
    return bytes(changed)


def _in_table(rng: random.Random, data: bytearray, at: int, places: tuple[tuple[str, int], ...]) -> None:
    vtable = at - struct.unpack_from("<i", data, at)[0]
    way = rng.randrange(4)
    if way == 0 or not 0 <= vtable <= len(data) - 4:
        struct.pack_into(
            "<i", data, at, rng.choice((0, 4, -4, at, -at, at - len(data), 2**31 - 1, at - places[0][1]))
        )
        return
    size = struct.unpack_from("<H", data, vtable)[0]
    slot = vtable + 4 + 2 * rng.randrange(max((size - 4) // 2, 1))
    if way == 1 or slot > len(data) - 2:
        struct.pack_into(
            "<H", data, vtable + rng.choice((0, 2)), rng.choice((0, 2, 3, 4, 6, 8, 64, 0xFFFE, 0xFFFF))
        )
    elif way == 2:
        struct.pack_into("<H", data, slot, rng.choice((0, 1, 4, 5, 8, 12, 16, 0xFFFF, rng.randrange(64))))
    else:
        field = at + struct.unpack_from("<H", data, slot)[0]
        if 0 < field <= len(data) - 4:
            target = rng.choice(places)[1] - field
            value = rng.choice((*plain.WORDS, target)) if rng.random() < 0.7 else rng.getrandbits(32)
            struct.pack_into("<I", data, field, value % 2**32)


# --- whole files -----------------------------------------------------------------------------------------


def blob_of(graph: bytes, raw: bytes) -> bytes:
    """A delegate blob; nothing is checked."""
    start = HEADER.size + -HEADER.size % 16
    raw_start = start + len(graph) + -len(graph) % 16
    head = HEADER.pack(HEADER_MAGIC, HEADER.size, start, len(graph), raw_start, len(raw))
    return head.ljust(start, b"\0") + graph.ljust(raw_start - start, b"\0") + raw


def _damaged(rng: random.Random, data: bytes, way: float, word: str, places: Sequence[int]) -> bytes | None:
    """Any bytes changed, or a word of the header at one of these places; None for most values of ``way``."""
    if way < 0.15:
        return plain.mutate(rng, data)
    if way < 0.2:
        changed = bytearray(data)
        struct.pack_into(word, changed, rng.choice(places), rng.choice(plain.WORDS))
        return bytes(changed)
    return None


@lru_cache(maxsize=256)
def _blob(data: bytes) -> Blob:
    return read_blob(data, "seed")


def mutate_blob(rng: random.Random, data: bytes) -> bytes:
    """A delegate blob, damaged or sound."""
    way = rng.random()
    if (damaged := _damaged(rng, data, way, "<I", (4, 8, 10, 14, 18, 22))) is not None:
        return damaged
    graph, raw, body = _blob(data).graph, bytes(_blob(data).constants.raw), bytes(_blob(data).body)
    if way < 0.45:
        return blob_of(structure(rng, body, "blob"), raw)
    if way < 0.6:
        return mutate_graph(rng, data)
    return blob_of(_said(rng, graph, body, "blob"), raw)


def _said(rng: random.Random, root: Any, body: bytes, kind: str) -> bytes:
    """A flatbuffer of other content; one with another structure where the encoder writes no such content."""
    try:
        return encode(content(rng, root), _SCHEMAS[kind])
    except (RefsimError, TypeError, AttributeError, ValueError):
        return structure(rng, body, kind)


def mutate_graph(rng: random.Random, data: bytes) -> bytes:
    """A sound delegate blob of another graph."""
    blob = _blob(data)
    graph = structures.mutate(rng, blob.graph)
    return blob_of(encode(graph, VKGRAPH), bytes(blob.constants.raw))


def mutate_etdump(rng: random.Random, data: bytes) -> bytes:
    """An ETDump with its size in front, damaged or sound."""
    way = rng.random()
    body = data[4:]
    if way < 0.2:
        return plain.mutate(rng, data)
    if way < 0.5:
        made = structure(rng, body, "etdump")
    else:
        made = _said(rng, decode(memoryview(body), ETDUMP, "seed"), body, "etdump")
    return struct.pack("<I", len(made)) + made


@lru_cache(maxsize=256)
def _pte(data: bytes) -> Pte:
    return read_pte(data, "seed")


def mutate_pte(rng: random.Random, data: bytes) -> bytes:
    """A .pte file: its program, its header, or a delegate in it."""
    way = rng.random()
    places = [EXTENDED_AT + at for at in (4, 8, 16, 24)]
    if (damaged := _damaged(rng, data, way, "<Q", places)) is not None:
        return damaged
    pte = _pte(data)
    if way < 0.4:
        size = len(pte.body)
        return structure(rng, data[:size], "pte") + data[size:]
    segments = [bytes(segment) for segment in pte.segments]
    program = pte.program
    blobs = [at for at, segment in enumerate(segments) if segment[4:8] == HEADER_MAGIC]
    if way < 0.75 and blobs:
        at = rng.choice(blobs)
        try:
            segments[at] = mutate_blob(rng, segments[at])
        except RefsimError:  # its constants lie elsewhere
            segments[at] = plain.mutate(rng, segments[at])
    else:
        program = content(rng, program)
    try:
        return write_pte(program, segments)
    except (RefsimError, TypeError, AttributeError, ValueError, struct.error):
        return plain.mutate(rng, data)
