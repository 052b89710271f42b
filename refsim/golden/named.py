"""What a name or a path on a command line stands for: a case, a dump, one raw buffer; else what to type instead."""

from __future__ import annotations

import os
import shlex
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from refsim.core import choices, folder_write
from refsim.core.buffer import PackedBuffer, holds_elements, naming
from refsim.core.counted import counted
from refsim.core.errors import FormatError, ParameterError, RawBufferError, RefsimError
from refsim.core.layout import FOREIGN, INT8_LAYOUTS, Layout
from refsim.core.no_clobber import free
from refsim.core.tensor import TensorDesc
from refsim.device import outputs
from refsim.device.manifest import source_of
from refsim.formats.cases import ACTUAL, CASE_JSON, Files, Stored, read, read_folder
from refsim.formats.dumps import Recorded
from refsim.formats.file import meant, read_file
from refsim.formats.npz import members_of
from refsim.formats.reading import archive
from refsim.formats.run_identity import RunIdentity
from refsim.golden.chain import CHAINS
from refsim.golden.rules import RULES
from refsim.golden.store import Corpus, default_root, digest
from refsim.ops.base.binding import bind
from refsim.ops.base.registry import OPS

#: The folder of the cases in that of a triage.
CASES = "cases"
#: How many cases of a folder are named.
MOST_HINTS = 3
_NEED = "a case directory, ZIPFILE!NAME or OPERATOR/NUMBER"


def is_name(text: str) -> bool:
    """Whether a text names a case, and no other file: `open_case` takes it, or says what is wrong with it."""
    if Path(text).exists():
        return (Path(text) / CASE_JSON).is_file()
    first, _, last = text.partition("/")
    return "!" in text or first in (*OPS, CHAINS) or last.isdecimal()


def open_case(name: str) -> Stored:
    """The case in a folder, in an entry of a zip file, or in the corpus."""
    if Path(name).is_file() and Path(name).name != CASE_JSON:
        beside = Path(name).with_name(CASE_JSON)
        meant_folder = choices.asked(str(beside.parent)) if beside.is_file() else ""
        hints = [] if meant_folder else _whole_dump(os.path.dirname(name), Path(name).with_suffix(".json"))
        zipped = _zipped(name)
        got = f"a zip file of cases: {choices.first(zipped, MOST_HINTS)}" if zipped else "a file"
        replays = [shlex.join(["refsim", "replay", f"{name}!{one}"]) for one in zipped[:MOST_HINTS]]
        hints = replays or hints
        if Path(name).suffix == ".pte" and not meant_folder:
            hints = [shlex.join(["refsim", "extract", name, "-n", "0:0", "--random", "0", "-o", "case"])]
        raise FormatError(name, "not a case", got=got, need=f"{_NEED}{meant_folder}", hints=hints)
    if Path(name).is_dir() and not (Path(name) / CASE_JSON).exists():
        raise _no_case_in(name)
    if Path(name).exists():
        return read_folder(name)
    path, bang, entry = name.partition("!")
    if bang:
        with archive(path, "a zip file of cases") as opened:
            if f"{entry}/{CASE_JSON}" not in opened.NameToInfo:
                raise _not_inside(path, entry)
            return read(Files(f"{path}!{entry}", archive=opened), entry)
    if name.partition("/")[0] == CHAINS:
        raise FormatError(
            name, "a chain, and no case", need=f"refsim golden verify {name}, which runs chains"
        )
    if name.rpartition("/")[2].isdecimal() or name in OPS:
        return _of_corpus(name)
    near = meant(name) or _numbered(name) or choices.meant(name.partition("/")[0], OPS)
    raise FormatError(name, "no such case", need=f"{_NEED}{near}")


def _numbered(name: str) -> str:
    """The case of the corpus that is meant by OPERATOR/NUMBER.ANYTHING, as the results of a stored one are named."""
    op, _, last = name.partition("/")
    number = last.partition(".")[0]
    if op not in RULES or not number.isdecimal() or len(number) > 8 or int(number) >= RULES[op].count:
        return ""
    return choices.asked(f"{op}/{int(number):04}")


def _zipped(path: str) -> list[str]:
    """The cases of a zip file; nothing for any other file."""
    if not zipfile.is_zipfile(path):
        return []
    end = f"/{CASE_JSON}"
    with archive(path, "a zip file of cases") as opened:
        return sorted(one.removesuffix(end) for one in opened.NameToInfo if one.endswith(end))


def cases_in(folder: str | os.PathLike[str]) -> list[str]:
    """The cases in the folders of a folder, or of its folder ``cases``, where `refsim triage` puts them."""
    for parent in (Path(folder), Path(folder) / CASES):
        found = sorted(str(beside.parent) for beside in parent.glob(f"*/{CASE_JSON}"))
        if found:
            return found
    return []


def replayed(case: str) -> str:
    """The command that runs a case alone, or judges what a device made of it, if that lies beside it."""
    actual = os.path.join(case, ACTUAL)
    return shlex.join(["refsim", "replay", case, *(["--actual", actual] if os.path.isfile(actual) else [])])


def _whole_dump(folder: str, *sidecars: Path) -> list[str]:
    """The command that judges all buffers of a folder, if one of these sidecars is there."""
    held = any(path.is_file() for path in sidecars)
    return [f"refsim bisect MODEL -i IN.npz --actual {shlex.quote(folder or '.')}"] if held else []


def _no_case_in(folder: str) -> FormatError:
    """The error for a folder that is no case: the cases in it, or what reads it."""
    held = cases_in(folder)
    if held:
        hints = [replayed(case) for case in held[:MOST_HINTS]]
        need = f"one of the cases in it: {choices.first(map(os.path.basename, held), MOST_HINTS)}"
        return FormatError(folder, "a folder of cases", need=need, hints=hints)
    dump = _whole_dump(folder, *Path(folder).glob("delegate*.json"))
    if dump:
        return FormatError(folder, "a dump, and no case", need=_NEED, hints=dump)
    return FormatError(folder, "not a case", got=f"a folder without {CASE_JSON}", need=_NEED)


def _not_inside(path: str, entry: str) -> FormatError:
    """The error for a zip file without the case ``entry``: which it has, and whether the corpus has one so named."""
    names, op = _zipped(path), Path(path).stem
    if op in RULES and entry.isdecimal() and len(entry) < 8 and int(entry) < RULES[op].count:
        near, hint = "; it is in the corpus", f"{op}/{entry}"  # a few are stored in full
    else:
        near, hint = (
            choices.meant(entry, names),
            f"{path}!{choices.nearest(entry, names) or names[0]}" if names else "",
        )
    need = choices.listed(names or [_NEED]) + near
    hints = [shlex.join(["refsim", "replay", hint])] if hint else []
    return FormatError(path, "no such case in it", got=entry, need=need, hints=hints)


def _of_corpus(name: str) -> Stored:
    """A case of the digests, with its bytes by definition; FormatError if these no longer have the digest."""
    entry = Corpus(default_root()).entry(name)
    bound = bind(entry.case)
    expected = bound.call.expected(bound.inputs)
    found = digest(bound.call, expected)
    if found != entry.sha256:
        raise FormatError(
            name, "the definition no longer gives the recorded digest", got=found, need=entry.sha256
        )
    return Stored(name, bound, expected)


#: What `refsim triage -o` makes: a folder, and what it found.
DUMP, FOUND = "dump", "triage.json"


class PathKind(NamedTuple):
    """What a path may be: whether it is, what that is called, and what to give or to type where a dump is wanted."""

    fits: Callable[[Path], bool]
    what: str
    need: Callable[[str], str]
    hints: Callable[[str], Sequence[str]] = lambda path: ()


def _outputs(path: Path) -> bool:
    return path.suffix == ".npz" or (path.is_dir() and any(path.glob("*.npy")))


def _inputs(path: Path) -> bool:
    """Whether an .npz holds the inputs of a run."""
    if path.suffix != ".npz" or not zipfile.is_zipfile(path):
        return False
    with archive(str(path), "an .npz") as opened:
        return "in0" in (names := members_of(opened)) and not any(name.startswith("out") for name in names)


def _dump_of(path: str) -> str:
    """The dump beside the inputs of a bundled model: NAME.dump.zip beside NAME.io.npz."""
    given = Path(path)
    found = given.with_name(f"{given.name.partition('.')[0]}.dump.zip")
    return f"{found}, the dump beside it" if found.is_file() else "a dump"


def _exposed(path: str) -> list[str]:
    """What judges outputs, if they can be those of an exposed file, which has several."""
    if path.endswith(".npz") and zipfile.is_zipfile(path):
        with archive(path, "an .npz") as opened:
            if len(members_of(opened)) < 2:
                return []
    held = shlex.quote(path)
    return [
        f"refsim triage EXPOSED -i IN.npz --outputs {held}",
        f"refsim collect EXPOSED {held} -o DIR",
    ]


def _dumps_in(path: Path) -> list[str]:
    """The folders in a folder, without buffers of its own, that hold recorded ones."""
    if not path.is_dir() or any(path.glob("delegate*.json")):
        return []
    return sorted({str(beside.parent) for beside in path.glob("*/delegate*.json")})


def _beside(path: str) -> str:
    beside = Path(path).parent / DUMP
    return f"{beside}, the dump beside them" if beside.is_dir() else "a dump"


KINDS = (
    PathKind(
        lambda path: (path / FOUND).is_file() and (path / DUMP).is_dir(),
        "a folder of refsim triage, and no dump",
        lambda path: f"{Path(path) / DUMP}, the dump in it",
    ),
    PathKind(
        lambda path: (path / CASE_JSON).is_file(),
        "a case, and no dump",
        lambda path: "a dump of a whole run",
        lambda path: [replayed(path)],
    ),
    PathKind(
        lambda path: bool(_dumps_in(path)),
        "a folder of dumps, and no dump",
        lambda path: f"one of those in it: {choices.listed(_dumps_in(Path(path)))}",
    ),
    PathKind(
        lambda path: bool(cases_in(path)),
        "a folder of cases, and no dump",
        _beside,
        lambda path: [replayed(cases_in(path)[0])],
    ),
    PathKind(_inputs, "the inputs of a run, and no dump", _dump_of),
    PathKind(
        _outputs,
        "outputs of a run, and no dump",
        lambda path: (
            "a dump, which refsim collect makes of the outputs of an exposed file, if triage is not enough"
        ),
        _exposed,
    ),
)


def recorded(path: str, program: str = "") -> Recorded:
    """The buffers of a run. FormatError as `Recorded` raises it, or one that says what the path holds instead.

    ``program``: what is said to have run; an exposed file stands in the hints.
    """
    known = shlex.quote(program) if program and source_of(program) is not None else "EXPOSED"
    for kind in KINDS:
        if kind.fits(Path(path)):
            typed = [hint.replace(" EXPOSED ", f" {known} ", 1) for hint in kind.hints(path)]
            raise FormatError(path, kind.what, need=kind.need(path), hints=typed)
    return Recorded(path)


def same_run(folder: str, run: RunIdentity) -> None:
    """ParameterError if a dump is to be added to a folder of something else than buffers of the same run."""
    if not os.path.isdir(folder) or not any(name.endswith(".json") for name in folder_write.names(folder)):
        return
    need = f"a folder of the same file and inputs, or a new one, such as {free(folder)}"
    try:
        there = Recorded(folder)
    except FormatError as error:
        raise ParameterError(folder, "holds something else than a dump", got=str(error), need=need) from error
    if other := there.other_run(run):
        raise ParameterError(folder, "holds a dump of another run", got=other, need=need)
    if unsaid := there.unsaid():
        what = f"buffers that do not say of which {' and of which '.join(unsaid)} they are"
        raise ParameterError(folder, "holds a dump of an unknown run", got=what, need=need)


def hints(path: str) -> list[str]:
    """What to type for a path, whatever a verb wanted of it; nothing for one that is none of KINDS."""
    return [hint for kind in KINDS if kind.fits(Path(path)) for hint in kind.hints(path)]


def is_dump(path: str) -> bool:
    """Whether a path is a folder, or a zip file and not one of outputs: never one raw buffer."""
    if os.path.isfile(path):
        return not _outputs(Path(path)) and zipfile.is_zipfile(path)
    return os.path.isdir(path)


def pair_of(expected: str, actual: str) -> tuple[str, str] | None:
    """The first buffer of two dump folders whose bytes differ, else the first that both have; None without any."""
    if not (os.path.isdir(expected) and os.path.isdir(actual)):
        return None
    try:
        one, other = (Recorded(path).entries for path in (expected, actual))
    except RefsimError:
        return None
    pairs = [
        (os.path.join(expected, one[name].file), os.path.join(actual, other[name].file))
        for name in one
        if name in other
    ]
    pairs = [pair for pair in pairs if all(map(os.path.isfile, pair))]
    differing = (pair for pair in pairs if Path(pair[0]).read_bytes() != Path(pair[1]).read_bytes())
    return next(differing, next(iter(pairs), None))


def raw_files(paths: Sequence[str]) -> dict[str, np.ndarray]:
    """The bytes of files, uint8."""
    return {path: np.frombuffer(bytes(read_file(path)), np.uint8) for path in paths}


def raw_buffer(path: str, shape: Sequence[int], layout: Layout, remark: Callable[[str], None]) -> np.ndarray:
    """The bytes of a file that holds such a tensor, uint8; RawBufferError, which names it, if it is of another size.

    An array of its elements (int8) is given as it is, and ``remark`` is told that its padding is not compared.
    The file may also be the outputs of a run, as `refsim.device.outputs.read_one` takes them. FormatError for a folder,
    which names a buffer in it.
    """
    desc = TensorDesc(tuple(shape), layout)
    if Path(path).is_dir():
        held = sorted(file for file in Path(path).glob("*.bin") if file.stat().st_size == desc.nbytes)
        raise FormatError(path, "a folder", need=f"one raw buffer{f', such as {held[0]}' if held else ''}")
    try:
        raw, chosen = outputs.read_one(path, desc)
        elements = holds_elements(raw, desc)
        with naming(path):
            if not elements:
                PackedBuffer.from_raw(raw, tuple(shape), layout)
    except RawBufferError as error:
        need = f"{error.need}{_as_large(path, desc)}"
        raise RawBufferError(
            error.where, error.what, got=error.got, need=need, hints=[*error.hints, *hints(path)]
        ) from error
    if chosen:
        remark(f"{path}: {chosen} was compared, the only one in it that is such a buffer")
    if elements:
        remark(f"{path}: an array holds no padding; its {counted(desc.numel, 'element')} were compared")
    return raw


def _as_large(path: str, desc: TensorDesc) -> str:
    """Which other layouts of the tensor have as many bytes as a file."""
    rows = [row for row in (*INT8_LAYOUTS, *FOREIGN) if desc.is_int8 and os.path.isfile(path)]
    size = os.path.getsize(path) if rows else 0
    fitting = [str(row) for row in rows if row != desc.layout and TensorDesc(desc.shape, row).nbytes == size]
    have = f"of this shape have {counted(size, 'byte')}: --actual-layout"
    return f"; {' and '.join(fitting)} {have}" if fitting else ""
