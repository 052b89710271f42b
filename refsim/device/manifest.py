"""The manifest of an exposed file, ``OUT.json`` beside ``OUT``: which output of the program holds which value, and how.

Read with checks, since it travels with the file through hands and machines.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Annotated, Any

from refsim.core.counted import counted
from refsim.core.dtypes import BY_PROGRAM_CODE
from refsim.core.errors import FormatError, GraphError, RefsimError
from refsim.core.layout import layout
from refsim.core.meanings import DtypeName, FileName
from refsim.core.plain import plain
from refsim.core.tensor import TensorDesc
from refsim.formats.cases import sha256
from refsim.formats.file import quote, read_file
from refsim.formats.pte.read import Pte, kind_of, read_pte, unknown
from refsim.formats.pte.schema import Tensor
from refsim.formats.reading import json_file
from refsim.formats.targets import targets
from refsim.formats.typed_json import Count, Sha256, Sizes, one_of, typed, up_to

SCHEMA = 1
KIND = "exposed program"
SUFFIX = ".json"

#: How an output holds a value: the bytes of its buffer as int32 words; its int8 elements as float32; the value itself.
WORDS, VALUES, PLAIN = "words", "values", "plain"
WAYS = (WORDS, VALUES, PLAIN)
#: Characters of a digest that tell two files apart.
SHORT = 12
Way = Annotated[str, one_of(*WAYS)]


@dataclass(frozen=True)
class Held:
    """A value of a delegate: what its buffer is, and which operator writes it."""

    shape: Annotated[Sizes, "The sizes, outermost dim first."]
    layout: Annotated[str | None, "The layout; null: contiguous."]
    dtype: DtypeName
    nbytes: Annotated[Count, "Size of its buffer in this layout."]
    operator: Annotated[str, "The operator that writes it; empty for an input of the delegate."] = ""
    node: Annotated[Count | None, "Its node; null for an input of the delegate."] = None
    layouts: Annotated[tuple[str, ...], "The layouts between which the runtime chooses, if it does."] = ()
    facts: Annotated[Mapping[str, float], "Scale and zero point, if they are known."] = field(
        default_factory=dict
    )


@dataclass(frozen=True)
class ExposedOutput:
    """One output of the program: its name, dtype and shape, and the value that it holds, if it is one of a delegate."""

    output: Annotated[str, "out0, out1, ..."]
    dtype: DtypeName
    shape: Annotated[Sizes, "Its sizes."]
    value: Annotated[str | None, "The value that it holds; null for an output of the program itself."] = None
    way: Annotated[Way | None, "How it holds the value: words, values or plain."] = None
    held: Annotated[Held | None, "What the value is; null where it holds none."] = None

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * next(r.nbytes for r in BY_PROGRAM_CODE.values() if r.name == self.dtype)


@dataclass(frozen=True)
class Manifest:
    """What is in an exposed file."""

    file: FileName
    digest: Annotated[str, "SHA-256 of the file."]
    source: Annotated[str, "The program that it was made from."]
    source_digest: Annotated[Sha256, "SHA-256 of that."]
    own: Annotated[Count, "How many outputs the program had before."]
    outputs: Annotated[tuple[ExposedOutput, ...], "All outputs, in order."]
    way: Annotated[Way, "How packed values are held: words or values."] = WORDS
    share: Annotated[bool, "Whether the memory plan was left as it is."] = False
    fill: Annotated[
        Annotated[int, up_to(255)] | None,
        "What packed buffers held before the run; null if nothing filled them.",
    ] = None
    part: Annotated[Count, "Number of the part, from 1."] = 1
    parts: Annotated[Count, "How many parts there are."] = 1
    left_out: Annotated[Mapping[str, str], "Values that are not among the outputs, and why."] = field(
        default_factory=dict
    )
    target: Annotated[str | None, "The family of devices that it was exposed for, if one was named."] = None

    @property
    def kind(self) -> Annotated[str, "exposed program."]:
        return KIND

    @property
    def schema(self) -> Annotated[int, "The number of this form."]:
        return SCHEMA

    def as_bytes(self) -> bytes:
        """The content of the file beside the program."""
        return (json.dumps(plain(self), indent=1) + "\n").encode()

    def values(self) -> dict[str, ExposedOutput]:
        """The outputs that hold a value, by the value's name."""
        return {row.value: row for row in self.outputs if row.value is not None}


def path_of(exposed: str | os.PathLike[str]) -> str:
    """Where the manifest of an exposed file is."""
    return os.fspath(exposed) + SUFFIX


def described(pte: Pte) -> list[tuple[str, tuple[int, ...]]]:
    """Dtype and shape of every output of a program; FormatError for an output that is no tensor."""
    plan = pte.plan()
    found = []
    for place, number in enumerate(plan.outputs):
        value = plan.values[number]
        if not isinstance(value, Tensor):
            raise FormatError(f"{pte.where}: output {place}", "not a tensor", got=type(value).__name__)
        found.append((BY_PROGRAM_CODE[value.scalar_type].name, value.sizes))
    return found


def read(exposed: str | os.PathLike[str]) -> tuple[Pte, Manifest]:
    """An exposed file and its manifest; FormatError unless they belong together."""
    name = os.fspath(exposed)
    data = read_file(exposed, suffix=".pte")
    if kind_of(data) is None:
        raise unknown(data, name)
    pte = read_pte(data, name)
    where = path_of(exposed)
    if not os.path.exists(where):
        _left_behind(name)
        raise FormatError(
            name,
            "not an exposed file",
            got=f"no {where}",
            need="a file that refsim expose wrote",
            hints=_hints(name),
        )
    manifest = parse(json_file(where, "a manifest that refsim expose wrote"), where)
    if manifest.digest != (given := sha256(data)):
        need = f"the {manifest.file} that it was written with, SHA-256 {manifest.digest[:SHORT]}..."
        got = f"{name}, SHA-256 {given[:SHORT]}..."
        raise FormatError(where, "belongs to another file", got=got, need=need)
    _check(manifest, described(pte), where)
    return pte, manifest


def _left_behind(name: str) -> None:
    """FormatError for a file that was exposed, but lies there without its manifest."""
    from refsim.device.noticed import exposed  # only this error needs it

    if exposed(name):
        raise lost(name)


def lost(name: str) -> FormatError:
    """The error for an exposed file whose manifest was left behind."""
    where = path_of(name)
    lacks = "not its manifest" if os.path.exists(where) else "missing"
    return FormatError(
        name, f"is exposed, but {where} is {lacks}", need="that file: copy it from where expose wrote it"
    )


def _hints(name: str) -> list[str]:
    """What judges the outputs of a program without a manifest: it is a case, or of a corpus, or it can be exposed."""
    from refsim.exec.model import load  # only this error needs it

    if found := judged_by(name):
        return found
    try:
        load(name)
    except RefsimError:  # nor does expose take it
        return []
    return [f"refsim expose {shlex.quote(name)} -o exposed.pte"]


def judged_by(name: str) -> list[str]:
    """What judges the outputs of a program that lies in a case or a corpus; nothing for any other."""
    folder = os.path.dirname(name) or os.curdir
    if os.path.isfile(os.path.join(folder, "case.json")):
        return [f"refsim replay {shlex.quote(folder)} --actual OUTPUT"]
    if os.path.isfile(os.path.join(folder, "corpus.json")):
        return [f"refsim golden check --pte {shlex.quote(folder)} --outputs OUTPUTS"]
    return []


def refuse_exposed(path: str | os.PathLike[str]) -> None:
    """GraphError, or FormatError where its manifest was left behind, for a file that was exposed already."""
    source = source_of(path)
    if source is not None:
        raise GraphError(os.fspath(path), "is exposed already", need=source)
    _left_behind(os.fspath(path))


def source_of(path: str | os.PathLike[str]) -> str | None:
    """What an exposed file was made from, in words; None for a file that has no manifest of its own beside it."""
    if not os.path.exists(path_of(path)):
        return None
    try:
        return read(path)[1].source
    except RefsimError:  # the manifest of another file
        return None


def parse(content: Any, where: str) -> Manifest:
    """The manifest of a parsed file; FormatError, naming the key, for anything else."""
    if not isinstance(content, dict) or content.get("kind") != KIND or content.get("schema") != SCHEMA:
        got = (
            {k: content.get(k) for k in ("kind", "schema")}
            if isinstance(content, dict)
            else type(content).__name__
        )
        raise FormatError(where, "not a manifest", got=quote(got), need=f"kind {KIND!r}, schema {SCHEMA}")
    found = typed(Manifest, content, where)
    if found.target not in (None, *targets()):
        raise FormatError(f"{where}: target", "unknown", got=quote(found.target), need=", ".join(targets()))
    return found


def _check(manifest: Manifest, outputs: list[tuple[str, tuple[int, ...]]], where: str) -> None:
    """The rows are the program's outputs, in order, and each is large enough for what it holds."""
    if len(manifest.outputs) != len(outputs):
        raise FormatError(where, "not the program's outputs", got=len(manifest.outputs), need=len(outputs))
    if manifest.own > len(outputs):
        raise FormatError(f"{where}: own", "more than there are", got=manifest.own, need=len(outputs))
    seen: set[str] = set()
    for number, (row, (dtype, shape)) in enumerate(zip(manifest.outputs, outputs, strict=True)):
        place = f"{where}: outputs[{number}]"
        if (row.output, row.dtype, row.shape) != (f"out{number}", dtype, shape):
            got = f"{row.output} {row.dtype} {list(row.shape)}"
            raise FormatError(
                place, "not the program's output", got=got, need=f"out{number} {dtype} {list(shape)}"
            )
        if (row.value is None) != (row.held is None) or (row.value is None) != (row.way is None):
            raise FormatError(place, "value, way and held go together", got=quote(row.value))
        if row.value is None and number >= manifest.own:
            raise FormatError(place, "holds no value", got=f"own is {manifest.own}", need="a value")
        if row.value is not None:
            if row.value in seen:
                raise FormatError(place, "a value that another output holds", got=quote(row.value))
            seen.add(row.value)
            _check_held(row, place)


def _check_held(row: ExposedOutput, place: str) -> None:
    held = row.held
    assert held is not None and row.way is not None
    if not re.fullmatch(r"delegate[0-9]{1,9}_v[0-9]{1,9}", str(row.value)):
        raise FormatError(
            place, "not the name of a value", got=quote(row.value), need="such as delegate0_v30"
        )
    wanted = {WORDS: "int32", VALUES: "float32", PLAIN: held.dtype}[row.way]
    if row.dtype != wanted or (row.way != PLAIN and held.dtype != "int8"):
        raise FormatError(
            place, f"a way that does not fit {held.dtype}", got=f"{row.way} in {row.dtype}", need=wanted
        )
    if row.way != WORDS and prod(row.shape) != prod(held.shape):
        raise FormatError(place, "another number of elements", got=list(row.shape), need=list(held.shape))
    if held.layout is None:
        if row.way != PLAIN:
            raise FormatError(place, "a packed value without a layout", got=held.layout, need="its name")
        return
    try:
        desc = TensorDesc(held.shape or (1,), layout(held.layout), held.dtype)
        for name in held.layouts:
            layout(name)
    except RefsimError as error:
        raise FormatError(place, error.what, got=error.got, need=error.need) from error
    if desc.nbytes != held.nbytes or desc.is_int8 != (held.dtype == "int8"):
        raise FormatError(
            place, f"not the size of {desc}", got=counted(held.nbytes, "byte"), need=desc.nbytes
        )
    if row.way == WORDS and row.nbytes < held.nbytes:
        raise FormatError(place, "smaller than the value", got=counted(row.nbytes, "byte"), need=held.nbytes)
