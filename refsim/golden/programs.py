"""The corpus as programs that any ExecuTorch runtime runs: no inputs, and the words of each output buffer as outputs.

A program holds many cases of one operator. Every tensor of a case is a constant. The runtime brings it into a buffer,
the operator under test runs on that, and the words of its output are copied out at once, while nothing else has used
the memory. Output buffers hold a known byte before. docs/certify.md says what else a runtime needs.

One case that the runtime does not load would cost all others of its file, so such cases are left out: `loadable`.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

import refsim
from refsim.check.finding import Finding, Level
from refsim.check.run import check_bytes
from refsim.check.runtime import DEFAULT
from refsim.core import choices
from refsim.core.buffer import FILL, PackedBuffer
from refsim.core.counted import counted
from refsim.core.doing import progress
from refsim.core.errors import LimitError, ParameterError
from refsim.core.meanings import FolderName
from refsim.core.plain import plain
from refsim.core.result import Command, FileSize, Result, Table, Text
from refsim.device.calls import add_call, tensor
from refsim.device.outputs import IN_FOLDER
from refsim.formats.cases import sha256, write_folder
from refsim.formats.pte.edit import Described, single_delegate
from refsim.formats.vkgraph.edit import GraphEditor
from refsim.golden.store import DigestEntry, digest
from refsim.golden.telling import Size, choose, exportable, layouts_of
from refsim.ops.base.arg import Kind
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.spec import Call

SCHEMA = 1
KIND = "corpus for a device"
MANIFEST = "corpus.json"
MAX_BYTES = 1_000_000
_Part = Sequence[tuple[DigestEntry, BoundCase]]
_MOST_DIMS = 4  # tensors of more dims cannot be constants in a packed layout


@dataclass(frozen=True)
class CorpusProgram:
    """One file: its name, its bytes, and its cases; case i gives output i."""

    file: str
    data: bytes
    cases: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class LeftOut:
    """A case that no program holds, and why: the runtime would not load it."""

    case: Annotated[str, "The case."]
    error: Finding

    @property
    def rule(self) -> Annotated[str, "The rule of refsim check that is broken."]:
        return self.error.rule

    @property
    def what(self) -> Annotated[str, "What the runtime refuses."]:
        return self.error.what


def loadable(cases: Iterable[DigestEntry], release: str = DEFAULT) -> tuple[list[DigestEntry], list[LeftOut]]:
    """(The cases that a runtime loads, those that it does not), as the rules of `refsim.check` have it."""
    rows = list(cases)
    refused = dict(_errors([(one, bind(one.case)) for one in rows], release))
    found = [LeftOut(name, error) for name, error in refused.items()]
    return [one for one in rows if one.name not in refused], found


def _errors(part: _Part, release: str) -> Iterator[tuple[str, Finding]]:
    """The name of each case that is refused, and the first error about it. Halves without an error hold none."""
    data = program([bound for _, bound in part])
    errors = (finding for finding in check_bytes(data, release=release) if finding.level is Level.ERROR)
    error = next(errors, None)
    if error is None:
        return
    if len(part) == 1:
        yield part[0][0].name, error
        return
    half = len(part) // 2
    yield from _errors(part[:half], release)
    yield from _errors(part[half:], release)


def programs(cases: Iterable[DigestEntry], most: int = MAX_BYTES) -> Iterator[CorpusProgram]:
    """The cases as files of at most ``most`` bytes, by operator. Equal cases give equal bytes.

    LimitError for a case that is larger than a file may be.
    """
    by_op: dict[str, list[DigestEntry]] = {}
    for numbered in cases:
        by_op.setdefault(numbered.case.op, []).append(numbered)
    for op, rows in by_op.items():
        parts = list(_split(rows, most))
        for number, (data, part) in enumerate(parts):
            name = f"{op}.pte" if len(parts) == 1 else f"{op}.{number}.pte"
            yield CorpusProgram(name, data, tuple(_row(one, bound) for one, bound in part))


def _split(rows: Sequence[DigestEntry], most: int) -> Iterator[tuple[bytes, _Part]]:
    """Halves of halves, until each fits."""
    part = [(one, bind(one.case)) for one in rows]
    data = program([bound for _, bound in part])
    if len(data) <= most:
        yield data, part
    elif len(rows) == 1:
        raise LimitError(
            rows[0].name, "does not fit into a file", got=counted(len(data), "byte"), need=f"<= {most}"
        )
    else:
        half = len(rows) // 2
        yield from _split(rows[:half], most)
        yield from _split(rows[half:], most)


def program(cases: Sequence[BoundCase]) -> bytes:
    """A .pte with one delegate that runs these cases in order and gives an output for each."""
    writer = _ProgramWriter()
    for bound in cases:
        writer.case(bound)
    return writer.pte()


def manifest(files: Sequence[CorpusProgram], version: str, refused: Sequence[LeftOut] = ()) -> bytes:
    """What is in a folder of programs, a line for each case, and what is ``refused``; ``version`` is that of refsim."""
    head = {"kind": KIND, "schema": SCHEMA, "refsim": version, "fill": FILL}
    parts = []
    for file in files:
        facts = {"file": file.file, "bytes": len(file.data), "sha256": sha256(file.data)}
        rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in file.cases)
        parts.append(f'{json.dumps(facts)[:-1]}, "cases": [\n{rows}]}}')
    left_out = ",\n".join(json.dumps(plain(row)) for row in refused)
    return f'{json.dumps(head)[:-1]}, "files": [\n{",".join(parts)}], "not exported": [\n{left_out}]}}\n'.encode()


def described(call: Call) -> Described:
    """Dtype and shape of the output that a case gives: words of an int8 buffer, elements of a float one."""
    if call.out.is_int8:
        return "int32", (call.out.nbytes // 4,)
    return "float32", tuple(call.out.shape)


def _row(one: DigestEntry, bound: BoundCase) -> dict[str, Any]:
    """A case in the manifest: its name, the line of the corpus that makes it, and what its output is."""
    dtype, shape = described(bound.call)
    entry = replace(one, sha256=digest(bound.call, bound.call.expected(bound.inputs)))
    return {
        "case": one.name,
        "output": {"dtype": dtype, "shape": list(shape), "bytes": bound.call.out.nbytes},
        "known": [row.name for row in bound.call.defects],
        "line": json.loads(entry.line),
    }


def single(bound: BoundCase, constants: bool) -> tuple[bytes, list[np.ndarray]]:
    """A .pte that runs one call, word for word as its buffers are, and the program's inputs.

    Packed inputs are int32 words, of whatever padding; with ``constants`` the program holds them and takes no inputs.
    """
    writer = _ProgramWriter(exact=True, fed=not constants)
    writer.case(bound)
    data = writer.pte()
    return data, [_fed(bound.inputs[name]) for name in writer.names]


def _fed(buffer: PackedBuffer) -> np.ndarray:
    return buffer.raw.view(np.int32) if buffer.desc.is_int8 else buffer.unpack()


class _ProgramWriter:
    """One graph that cases are appended to.

    ``exact``: every packed input is brought in word for word. ``fed``: inputs are the program's, ``names`` in order.
    """

    def __init__(self, exact: bool = False, fed: bool = False) -> None:
        self.graph = GraphEditor()
        self.outputs: list[Described] = []
        self.inputs: list[Described] = []
        self.names: list[str] = []
        self._exact, self._fed = exact, fed
        self._cases: list[tuple[BoundCase, int]] = []

    def case(self, bound: BoundCase) -> None:
        """Add the output of a case. The chain is written later: first of all, every output buffer is filled."""
        self._cases.append((bound, tensor(self.graph, bound.call.out)))

    def pte(self) -> bytes:
        graph = self.graph
        packed = {out: bound.call.out.nbytes for bound, out in self._cases if bound.call.out.is_int8}
        for out in packed:
            graph.own_memory(out)
        words = graph.fills(packed, FILL)
        for bound, out in self._cases:
            self._run(bound, out)
            graph.output(self._copy(words[out], packed[out]) if out in words else out)
            self.outputs.append(described(bound.call))
        return single_delegate(graph.blob(), self.inputs, self.outputs)

    def _run(self, bound: BoundCase, out: int) -> None:
        """The inputs of a case, and the operator."""
        inputs = {arg.name: self._input(bound, arg.name) for arg in bound.call.op.of_kind(Kind.INPUT)}
        add_call(self.graph, bound.call, inputs, out)

    def _input(self, bound: BoundCase, name: str) -> int:
        """An input tensor: laid out by the runtime, or word for word where its padding or rank needs that."""
        buffer, graph = bound.inputs[name], self.graph
        number = tensor(graph, buffer.desc)
        if buffer.desc.is_int8 and (self._exact or bound.case.poison or len(buffer.desc.shape) > _MOST_DIMS):
            words = buffer.raw.view(np.int32)
            graph.own_memory(number)
            alias = graph.alias(number, words.nbytes)
            if self._fed:
                self._take(name, alias, words)
            else:
                held = graph.prepack(graph.constant(words), graph.tensor("int32", words.shape))
                graph.clone(held, alias)
            self._copy(alias, words.nbytes)  # reading the alias makes the runtime wait for what wrote it
            return number
        if self._fed:
            return self._take(name, number, buffer.unpack())
        return graph.prepack(graph.constant(buffer.unpack()), number)

    def _take(self, name: str, number: int, array: np.ndarray) -> int:
        """Make a tensor an input of the program."""
        self.graph.input(number)
        self.inputs.append((str(array.dtype), tuple(array.shape)))
        self.names.append(name)
        return number

    def _copy(self, words: int, nbytes: int) -> int:
        return self.graph.clone(words, self.graph.tensor("int32", (nbytes // 4,)))


@dataclass(frozen=True)
class ExportedFile(FileSize):
    """A program of the corpus."""

    cases: Annotated[int, "How many cases it holds."]


@dataclass(frozen=True)
class ExportedCorpus(Result):
    """Cases as programs."""

    folder: FolderName
    files: Annotated[Sequence[ExportedFile], "The files that were written."]
    not_exported: Annotated[Sequence[LeftOut], "Cases that the runtime would not load."]
    release: str

    @property
    def cases(self) -> Annotated[int, "How many cases."]:
        return sum(one.cases for one in self.files)

    @property
    def bytes(self) -> Annotated[int, "Size of all files."]:
        return sum(one.bytes for one in self.files)

    def text(self) -> Text:
        yield Table(
            ("file", "cases count", "bytes"), [(one.file, one.cases, one.bytes) for one in self.files]
        )
        for rule, count in Counter(row.rule for row in self.not_exported).items():
            what = next(row.what for row in self.not_exported if row.rule == rule)
            yield f"not exported: {counted(count, 'case')}, {rule}: {what}"
        files = f"{counted(len(self.files), 'file')}, {counted(self.bytes, 'byte')}"
        yield f"{self.folder}: {counted(self.cases, 'case')} in {files}"
        run = "run each file with ExecuTorch's runtime on the device, without inputs"
        yield f"{run}, and save all outputs in one folder"
        then = ["refsim", "golden", "check", "--pte", self.folder, "--outputs", "OUTPUTS"]
        then += [] if self.release == DEFAULT else ["--runtime", self.release]
        yield Command(f"then: {shlex.join(then)}")
        yield f"OUTPUTS: {IN_FOLDER}"


def exported(
    folder: str, operators: Sequence[str], layouts: Sequence[str], size: Size, most: int, release: str
) -> ExportedCorpus:
    """Cases of the corpus written to a folder as programs; ParameterError where there is none of this kind."""
    files: list[CorpusProgram] = []
    refused: list[LeftOut] = []
    wanted = operators or exportable()
    with progress("operators", len(wanted)) as advance:
        for op in wanted:
            cases, left_out = loadable(choose((op,), layouts, size), release)
            files += list(programs(cases, most))
            refused += left_out
            advance()
    if not files:
        raise _none_chosen(operators, layouts, size, refused)
    content = {file.file: file.data for file in files}
    content[MANIFEST] = manifest(files, refsim.__version__, refused)
    write_folder(folder, content)
    rows = [ExportedFile(file.file, len(file.data), len(file.cases)) for file in files]
    return ExportedCorpus(folder, rows, refused, release)


def _none_chosen(
    operators: Sequence[str], layouts: Sequence[str], size: Size, refused: Sequence[LeftOut]
) -> ParameterError:
    """What there is instead: other layouts of these operators, or cases of another size."""
    if refused:
        said = f"the runtime loads none of {counted(len(refused), 'case')}"
        return ParameterError("golden export", said, got=refused[0].case, need=refused[0].error.what)
    names, asked = ", ".join(operators) or "any operator", ", ".join(layouts)
    if next(choose(operators, layouts), None) is None:
        need = choices.listed(layouts_of(operators or exportable()))
        return ParameterError("golden export", f"no case of {names} has such a layout", got=asked, need=need)
    what = f"no case of {names} in {asked} has this size" if layouts else f"no case of {names} has this size"
    return ParameterError("golden export", what, got=size.value, need=Size.ALL.value)
