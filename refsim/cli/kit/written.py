"""No option that writes may name a file that the same command reads: for every verb, before anything runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from refsim.core.errors import FormatError, ParameterError, RefsimError
from refsim.core.no_clobber import free
from refsim.formats.file import there


class Written(click.ParamType):
    """A path that the verb writes: a file, which is replaced if it is none of those that the verb reads."""

    name = "text"

    def __init__(self, folder: bool = False) -> None:
        self.folder = folder

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        can_be_written(str(value), self.folder)
        return str(value)


def can_be_written(path: str, folder: bool) -> None:
    """FormatError, before anything runs, where no file can be written, or no folder made with its parents."""
    if not folder and os.path.isdir(path):
        raise FormatError(
            path, "is a folder, and a file is written", need=f"a file, such as {os.path.join(path, 'NAME')}"
        )
    above = os.path.dirname(os.path.abspath(path))
    while folder and not os.path.lexists(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        got = there(path) if not folder else f"{os.path.relpath(above)}, which is no folder"
        raise FormatError(path, "cannot be written", got=got, need="a path in a folder that is there")


class PatternWord(click.ParamType):
    """A word that is no path, beside others that are."""

    name = "text"


class CommandWord(NamedTuple):
    """A word of a command line, what people call its parameter, and whether it is a path that is written."""

    text: str
    called: str
    written: bool


#: Parameters whose words are no paths, whatever file has such a name.
_NO_PATHS = {
    "device", "driver", "name", "node", "operator", "operators", "patterns", "reason", "routes", "runtime",
}  # fmt: skip
#: In a folder that is read, refsim reads no files that end so.
_UNREAD = (".html", ".jsonl", ".db")
#: JSON that is read out of a folder by its name. Other JSON is read only as the sidecar of a file.
_JSON = ("case.json", "corpus.json", "differences.json")
#: Files that are no buffers, so that a .json of their name is no sidecar.
_NO_BUFFERS = (".html", ".json", ".npy", ".npz", ".pt2", ".pte", ".zip")
#: How long the head of a manifest may be.
_HEAD = 4096


def check(command: click.Command, values: Mapping[str, Any]) -> None:
    """ParameterError if a path to be written is one that is read, or that another option writes.

    ``values``: the words of each parameter by its name, as they stand on the command line. Paths are the same where
    the system says so, by whatever links. A file that is read may be one of a folder, or the sidecar of another.
    """
    words = [word for one in command.params for word in _words(one, values.get(one.name or ""))]
    written = [word for word in words if word.written]
    for one in written:
        for other in written:
            if other.called != one.called and os.path.realpath(one.text) == os.path.realpath(other.text):
                what = f"is written by {one.called}, and by {other.called} too"
                raise ParameterError(one.text, what, need="a name for each")
        if not os.path.lexists(one.text):
            continue
        for word in words:
            how = None if word.written else _how_read(one.text, word)
            if how is not None:
                raise _refused(one, how)
        if _of_corpus(one.text):
            raise _refused(one, "is of the golden corpus")


def _refused(one: CommandWord, what: str) -> ParameterError:
    other = free(one.text, os.path.isdir(one.text))
    return ParameterError(
        one.text, f"{what}, and {one.called} would replace it", need=f"another name, such as {other}"
    )


def _words(one: click.Parameter, value: Any, kind: click.ParamType | None = None) -> Iterator[CommandWord]:
    """Every word of a parameter: of several values, and of several words in each."""
    kind = kind or one.type
    if isinstance(kind, PatternWord):
        return
    if isinstance(value, str):
        if isinstance(kind, Written) or one.name not in _NO_PATHS:
            called = one.opts[0] if isinstance(one, click.Option) else one.metavar or (one.name or "").upper()
            yield CommandWord(value, called, isinstance(kind, Written))
    elif isinstance(value, tuple | list):
        kinds = kind.types if isinstance(kind, click.Tuple) else ()
        whole = len(kinds) == len(value) and all(isinstance(part, str) for part in value)
        for number, part in enumerate(value):
            yield from _words(one, part, kinds[number] if whole else kind)


def _how_read(path: str, word: CommandWord) -> str | None:
    """How a command with this word reads a file or folder; None if it does not."""
    if re.fullmatch(re.escape(os.path.realpath(word.text)) + r"-\d+\.\w+", os.path.realpath(path)):
        return f"is read as {word.called} {word.text}"  # BASE-0.bin
    for part in {word.text, *word.text.split(",")}:
        # as it is; a case in a zip file; spv:FOLDER
        for read in (part, part.partition("!")[0], part.partition(":")[2]):
            if not read or not os.path.exists(read):
                continue
            if os.path.realpath(path) == os.path.realpath(read) or _same(path, read):
                return f"is read as {word.called}"
            if os.path.isdir(read):
                if _read_in(Path(os.path.realpath(path)), Path(os.path.realpath(read))):
                    return f"is in {read}, which is read as {word.called}"
            elif _beside(path, read):
                return f"is read beside {read}"
    return None


def _same(path: str, read: str) -> bool:
    """Whether both are one file of two names, which no path tells."""
    return os.path.exists(path) and os.path.samefile(path, read)


def _read_in(path: Path, folder: Path) -> bool:
    """Whether a verb that reads the folder may read this file in it."""
    if folder not in path.parents or path.suffix in _UNREAD or path.is_dir():
        return False
    if path.suffix == ".npz":  # dumps and cases have none; outputs of a corpus do
        return not ((path.parent / "case.json").is_file() or any(path.parent.glob("delegate*.json")))
    if path.suffix != ".json":
        return True
    return (
        path.name in _JSON
        or any(path.with_suffix(end).is_file() for end in (".bin", ".raw", ""))
        or _manifest(path)
    )


def _beside(path: str, read: str) -> bool:
    """Whether a file is read because of another: the sidecar of a buffer, a buffer's case, a program's manifest."""
    name, of = os.path.basename(path), Path(read)
    if not name.endswith(".json") or Path(path).parent.resolve() != of.parent.resolve():
        return False
    if of.suffix not in _NO_BUFFERS and name in (of.with_suffix(".json").name, "case.json"):
        return True
    return name == f"{of.name}.json" and _manifest(Path(path))


def _manifest(path: Path) -> bool:
    """Whether a file is the manifest of an exposed program, and no graph or report of this name."""
    from refsim.device.manifest import KIND  # only a file in the way needs it

    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    return f'"{KIND}"'.encode() in head or head.lstrip().startswith(b"[")  # refsim reads lists of rows too


def _of_corpus(path: str) -> bool:
    """Whether a file is of the golden corpus that cases are read from by their names."""
    from refsim.golden.store import default_root

    try:
        root = Path(os.path.realpath(default_root()))
    except RefsimError:
        return False
    return root in Path(os.path.realpath(path)).parents
