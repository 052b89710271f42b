"""Rewrite a program so that values inside its delegates become outputs, which any runtime then hands out.

Three ways, as docs/device.md explains them: a packed buffer as int32 words at the end of the run; the same at once,
behind the value's first reader, with the memory plan untouched; its int8 elements as exact floats at once. Float and
int32 values go out as they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from refsim.core.atomic_write import replacing
from refsim.core.buffer import FILL
from refsim.core.errors import GraphError, ParameterError
from refsim.core.layout import BY_SCHEMA_VALUE, WIDTH_PACKED
from refsim.core.no_clobber import not_itself
from refsim.device import manifest as m
from refsim.device.choose import NO_WORDS, Exposable, candidates, check, select
from refsim.device.noticed import DEQUANTIZE
from refsim.exec.model import Model, load
from refsim.formats.cases import sha256
from refsim.formats.dumps import quantization
from refsim.formats.file import read_file
from refsim.formats.targets import TargetRow
from refsim.formats.vkgraph.edit import GraphEditor


@dataclass(frozen=True)
class ExposeOptions:
    """``way``: words or values; None is words, and values where the runtime loads no file that has words.

    ``share``: at once, with the memory plan untouched. ``fill``: a byte, or None.
    """

    way: str | None = None
    share: bool = False
    fill: int | None = FILL

    def __post_init__(self) -> None:
        if self.way not in (None, m.WORDS, m.VALUES):
            raise ParameterError("expose", "unknown way", got=self.way, need=f"{m.WORDS} or {m.VALUES}")
        if self.fill is not None and not 0 <= self.fill <= 255:
            raise ParameterError("expose", "not a byte to fill with", got=self.fill, need="0 to 255, or none")
        if self.fill is not None and self.at_once:
            raise ParameterError(
                "expose", "a fill writes memory that other values share", got=f"fill {self.fill:#x}",
                need="fill none where the memory plan stays as it is",
            )  # fmt: skip

    @property
    def at_once(self) -> bool:
        """Whether values are copied while the chain runs; else they keep their memory to its end."""
        return self.share or self.way == m.VALUES

    def way_of(self, c: Exposable) -> str:
        """How a packed value goes out."""
        return self.way or (m.WORDS if c.has_words else m.VALUES)


@dataclass(frozen=True)
class Exposed:
    """One file to write: its bytes and its manifest. ``whole``: all files together have every int8 value there is."""

    data: bytes
    manifest: m.Manifest
    whole: bool = True


def expose(
    path: str | os.PathLike[str],
    options: ExposeOptions,
    patterns: tuple[str, ...] = (),
    chunk: int | None = None,
    name: str = "model.pte",
    family: TargetRow | None = None,
    shaped: Callable[[Model], Model] | None = None,
) -> list[Exposed]:
    """The rewritten files of a program, in memory; ``name`` is the file that they will be, ``chunk`` values in each.
    ``family``: the devices that it is for, which the manifest then says. ``shaped`` gives the model of one shape.

    GraphError with the reason for a program, or a named value, that no runtime can hand out; FormatError, LimitError
    or GraphError for a file that cannot be read.
    """
    m.refuse_exposed(path)  # it would hand out rows that are its helpers'
    model = load(path, None if family is None else family.target())
    model = model if shaped is None else shaped(model)
    check(model)
    found = candidates(model)
    if options.way == m.WORDS:
        found = [c if c.has_words else replace(c, reason=NO_WORDS) for c in found]
    chosen, left_out = select(found, patterns)
    wanted = [c for c in chosen if c.given is None]
    names = {c.name for c in chosen}
    whole = all(c.name in names for c in found if not c.reason and c.packed is not None)
    if not chosen:
        raise GraphError(
            model.path, "has no value that could be handed out", got=len(found), need="at least 1"
        )
    size = chunk or len(wanted)
    parts = [wanted[at : at + size] for at in range(0, len(wanted), size)] if wanted else [[]]
    source = sha256(read_file(model.path))
    files = []
    for number, part in enumerate(parts):
        file = part_name(name, number + 1, len(parts))
        not_itself(file, model.path, "program")
        data, outputs = _rewritten(model, part, options, found)
        files.append(
            Exposed(
                data,
                m.Manifest(
                    os.path.basename(file), sha256(data), os.path.basename(model.path), source,
                    len(model.plan.outputs if model.plan else ()), outputs, options.way or m.WORDS, options.share,
                    options.fill, number + 1, len(parts), left_out, None if family is None else family.name,
                ),
                whole,
            )
        )  # fmt: skip
    return files


def part_name(name: str, number: int, count: int) -> str:
    """``m.pte``, or ``m.2.pte`` for the second of several files."""
    stem, suffix = os.path.splitext(name)
    return name if count == 1 else f"{stem}.{number}{suffix}"


def write(path: str | os.PathLike[str], files: Sequence[Exposed]) -> list[str]:
    """Write the files and their manifests; all of them appear, or none. Returns the paths of the files."""
    paths = [part_name(os.fspath(path), number + 1, len(files)) for number in range(len(files))]
    with ExitStack() as stack:
        for target, file in zip(paths, files, strict=True):
            stack.enter_context(replacing(m.path_of(target))).write(file.manifest.as_bytes())
            stack.enter_context(replacing(target)).write(file.data)
    return paths


def _rewritten(
    model: Model, part: list[Exposable], options: ExposeOptions, found: list[Exposable]
) -> tuple[bytes, tuple[m.ExposedOutput, ...]]:
    """The file with these values as outputs, and what all its outputs are."""
    editor = check(model)
    assert model.container is not None and model.plan is not None
    blobs = dict(model.container.blobs(model.plan))
    graphs: dict[int, GraphEditor] = {}
    given = {c.given: c for c in found if c.given is not None}
    rows = [
        _own(number, dtype, shape, given.get(number))
        for number, (dtype, shape) in enumerate(m.described(model.container))
    ]
    for number in dict.fromkeys(c.delegate for c in part):
        graphs[number] = GraphEditor(blobs[number], f"{model.path}: delegate {number}")
    words = _filled(graphs, part, options)
    for c in part:
        way, dtype, shape = _append(graphs[c.delegate], c, options, words.get(c.name))
        number = editor.output(c.delegate, dtype, shape)
        rows.append(m.ExposedOutput(f"out{number}", dtype, shape, c.name, way, held_of(c)))
    for number, graph in graphs.items():
        editor.set_blob(number, graph.blob())
    return editor.write(), tuple(rows)


def _own(number: int, dtype: str, shape: tuple[int, ...], c: Exposable | None) -> m.ExposedOutput:
    """An output that the program had before; it may be one of a delegate's values."""
    if c is None or c.reason:
        return m.ExposedOutput(f"out{number}", dtype, shape)
    return m.ExposedOutput(f"out{number}", dtype, shape, c.name, m.PLAIN, held_of(c))


def held_of(c: Exposable) -> m.Held:
    """What a manifest says about a value."""
    desc = c.tensor.desc
    node = c.writer
    facts: dict[str, Any] = (
        quantization(node.call.params) if node is not None and node.call is not None else {}
    )
    return m.Held(
        c.tensor.shape,
        desc.layout.name if desc is not None else None,
        str(c.tensor.dtype),
        desc.nbytes if desc is not None else prod(c.tensor.shape) * c.tensor.dtype.itemsize,
        node.name if node is not None else "",
        node.number if node is not None else None,
        tuple(row.name for row in c.layouts),
        facts if c.packed is not None else {},
    )


def _filled(graphs: dict[int, GraphEditor], part: list[Exposable], options: ExposeOptions) -> dict[str, int]:
    """Fill the memory of packed values, which becomes their own; the aliases through which it is done."""
    if options.fill is None:
        return {}
    found: dict[str, int] = {}
    for number, graph in graphs.items():
        mine = {c.value: c for c in part if c.delegate == number and c.packed is not None and c.has_words}
        for value in mine:
            graph.own_memory(value)
        words = graph.fills({value: c.most_bytes for value, c in mine.items()}, options.fill)
        found |= {c.name: words[value] for value, c in mine.items()}
    return found


def _append(
    graph: GraphEditor, c: Exposable, options: ExposeOptions, words: int | None
) -> tuple[str, str, tuple[int, ...]]:
    """Append what hands out a value; returns the way, and dtype and shape of the output."""
    if c.packed is None:
        return _plain(graph, c, options)
    if options.way_of(c) == m.VALUES:
        floats = graph.tensor("float32", c.tensor.shape)
        ids = [graph.literal(value) for value in (1.0, 0, -128, 127, None, None)]
        graph.call(DEQUANTIZE, c.value, *ids, floats, before=_behind_writer(c))
        graph.output(floats)
        return m.VALUES, "float32", c.tensor.shape
    shape = (c.most_bytes // 4,)
    if options.share:
        _copy_at_once(graph, c)
    elif words is not None:
        graph.output(words)
    else:
        graph.own_memory(c.value)
        if not c.readers:
            _read(graph, c, _behind_writer(c))
        graph.output(graph.alias(c.value, c.most_bytes))
    return m.WORDS, "int32", shape


def _copy_at_once(graph: GraphEditor, c: Exposable) -> None:
    """Copy the words of a value behind its first reader, for which the runtime waited for the writer.

    What follows may write the same memory. It waits for the copy if it reads what that reader wrote, else it is told
    to wait.
    """
    graph.memory(c.value)
    at = c.readers[0] + 1 if c.readers else _behind_writer(c)
    if not c.readers:
        _read(graph, c, at)
    copy = graph.tensor("int32", (c.most_bytes // 4,))
    graph.output(graph.clone(graph.alias(c.value, c.most_bytes), copy, before=at))
    if not graph.follows(at):
        graph.wait(at)


def _plain(graph: GraphEditor, c: Exposable, options: ExposeOptions) -> tuple[str, str, tuple[int, ...]]:
    """A float or int32 value: itself, in memory of its own; or a copy of it, where the plan must stay as it is."""
    held = graph.row(c.value)
    out = c.value
    if options.at_once or c.is_output:
        layout = BY_SCHEMA_VALUE.get(held.memory_layout, WIDTH_PACKED)
        out = graph.tensor(str(c.tensor.dtype), c.tensor.shape, layout, storage=held.storage_type)
        graph.clone(c.value, out, before=_behind_writer(c))
    elif held.mem_obj_id >= 0:
        graph.own_memory(c.value)
    graph.output(out)
    return m.PLAIN, str(c.tensor.dtype), c.tensor.shape


def _read(graph: GraphEditor, c: Exposable, at: int) -> None:
    """Let something read a packed value, so that the runtime waits for its writer: nothing else does."""
    held = graph.row(c.value)
    scratch = graph.value(replace(held, mem_obj_id=-1))
    graph.clone(c.value, scratch, before=at)


def _behind_writer(c: Exposable) -> int:
    return c.written + 1
