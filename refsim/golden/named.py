"""Find a case by the name that a command line or a test gives."""

from __future__ import annotations

import os
import shlex
import zipfile
from pathlib import Path

from refsim.core import choices
from refsim.core.errors import FormatError
from refsim.formats.cases import ACTUAL, CASE_JSON, Files, Stored, read, read_folder
from refsim.formats.file import meant
from refsim.formats.reading import archive
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
