"""Find a case by the name that a command line or a test gives."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from refsim.core import choices
from refsim.core.errors import FormatError
from refsim.formats.cases import CASE_JSON, Files, Stored, read, read_folder
from refsim.formats.file import meant
from refsim.formats.reading import archive
from refsim.golden.chain import CHAINS
from refsim.golden.rules import RULES
from refsim.golden.store import Corpus, default_root, digest
from refsim.ops.base.binding import bind
from refsim.ops.base.registry import OPS

_NEED = "a case directory, ZIPFILE!NAME or OPERATOR/NUMBER"


def is_name(text: str) -> bool:
    """Whether a text names a case, and no other file: `open_case` takes it, or says what is wrong with it."""
    if Path(text).exists():
        return (Path(text) / CASE_JSON).is_file()
    return "!" in text or text.partition("/")[0] in OPS


def open_case(name: str) -> Stored:
    """The case in a folder, in an entry of a zip file, or in the corpus."""
    if Path(name).is_file() and Path(name).name != CASE_JSON:
        beside = Path(name).with_name(CASE_JSON)
        meant_folder = choices.asked(str(beside.parent)) if beside.is_file() else ""
        raise FormatError(name, "not a case", got="a file", need=f"{_NEED}{meant_folder}")
    if Path(name).exists():
        return read_folder(name)
    path, bang, entry = name.partition("!")
    if bang:
        with archive(path, "a zip file of cases") as opened:
            if f"{entry}/{CASE_JSON}" not in opened.NameToInfo:
                raise _not_inside(path, entry, opened.NameToInfo)
            return read(Files(f"{path}!{entry}", archive=opened), entry)
    if name.partition("/")[0] == CHAINS:
        raise FormatError(
            name, "a chain, and no case", need=f"refsim golden verify {name}, which runs chains"
        )
    if name.rpartition("/")[2].isdecimal() or name in OPS:
        return _of_corpus(name)
    near = meant(name) or choices.meant(name.partition("/")[0], OPS)
    raise FormatError(name, "no such case", need=f"{_NEED}{near}")


def _not_inside(path: str, entry: str, files: Iterable[str]) -> FormatError:
    """The error for a zip file without the case ``entry``: which it has, and whether the corpus has one so named."""
    end = f"/{CASE_JSON}"
    names = sorted(file.removesuffix(end) for file in files if file.endswith(end))
    op = Path(path).stem
    if op in RULES and entry.isdecimal() and len(entry) < 8 and int(entry) < RULES[op].count:
        near = choices.asked(f"{op}/{entry}")  # a few of the corpus are stored in full
    else:
        near = choices.meant(entry, names)
    return FormatError(path, "no such case in it", got=entry, need=choices.listed(names or [_NEED]) + near)


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
