"""WGSL sources as far as a host must know them: what each declares, and which lines store to its output.

Nothing is compiled here: the compiler of a device says what is wrong with a source.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from refsim.core.errors import FormatError
from refsim.formats.file import held, read_file

SUFFIX = ".wgsl"
MAX_BYTES = 1 << 20
MOST_FOLDERS = 4000

_BINDING = re.compile(
    r"@group\(\s*0\s*\)\s*@binding\(\s*(\d+)\s*\)\s*var\s*<\s*(uniform|storage)\s*(?:,\s*(\w+)\s*)?>\s*(\w+)"
)
_ENTRY = re.compile(r"@compute\b[^{;]*?\bfn\s+(\w+)")
_OVERRIDE = re.compile(r"\boverride\s+(\w+)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class Binding:
    """A buffer that a source declares. ``writes``: it is declared to be written."""

    number: int
    name: str
    uniform: bool
    writes: bool


@dataclass(frozen=True)
class Source:
    """A WGSL source. ``measures``: it asks for the length of an array, so a longer buffer is another one to it."""

    name: str
    text: str
    entry: str
    declared: Mapping[int, Binding]
    overrides: tuple[str, ...]
    measures: bool

    #: What a host asks of a SPIR-V module as well (`refsim.ops.base.host.choice.DeclaredInterface`).
    push_bytes = 0

    @property
    def bindings(self) -> tuple[Binding, ...]:
        return tuple(self.declared.values())

    @property
    def spec_ids(self) -> Mapping[int, int]:
        return {}

    def local(self, spec: Mapping[int, int]) -> tuple[int, int, int]:
        """Unknown: the row of a kernel says its workgroup."""
        return (1, 1, 1)

    def stores(self, binding: int) -> list[tuple[str, str]]:
        """(place, source line) of each store to a binding."""
        row = self.declared.get(binding)
        if row is None:
            return []
        store = re.compile(rf"(?<![\w.]){row.name}\s*\[.*\][^=<>!]*=(?!=)|\b\w+\(\s*&\s*{row.name}\b")
        return [
            (f"{self.name}{SUFFIX}:{number}", line.strip())
            for number, line in enumerate(_blanked(self.text).split("\n"), 1)
            if store.search(line)
        ]


def parse(data: bytes, name: str) -> Source:
    """A source, without what comments say; FormatError for bytes that are no WGSL compute shader to their end."""
    where = f"{name}{SUFFIX}"
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise FormatError(where, "no text", got=held(data), need="WGSL in UTF-8") from error
    code = _blanked(text)
    entry = _ENTRY.search(code)
    if entry is None:
        raise FormatError(where, "no entry point", got=held(data), need="@compute fn NAME")
    if code.count("{") != code.count("}"):
        raise FormatError(
            where, "ends before its functions", got=f"{code.count('{')} {{, {code.count('}')} }}"
        )
    rows = [
        Binding(int(number), var, kind == "uniform", access == "read_write")
        for number, kind, access, var in _BINDING.findall(code)
    ]
    declared = {row.number: row for row in rows}
    return Source(name, text, entry[1], declared, tuple(_OVERRIDE.findall(code)), "arrayLength" in code)


def read(path: str | os.PathLike[str]) -> Source:
    """The source in a file."""
    return parse(bytes(read_file(Path(path), MAX_BYTES)), Path(path).name.removesuffix(SUFFIX))


def sources(folder: str | os.PathLike[str]) -> dict[str, Path]:
    """The files of a folder and those below it, by name without their ending; of several of one name the first.

    Of a tree with more than `MOST_FOLDERS` folders, the rest is not looked at.
    """
    found: dict[str, Path] = {}
    for here, below, files in islice(os.walk(folder), MOST_FOLDERS):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in sorted(files):
            if name.endswith(SUFFIX) and not name.startswith("."):
                found.setdefault(name.removesuffix(SUFFIX), Path(here) / name)
    return found


def _blanked(text: str) -> str:
    """The text with blanks for comments; lines keep their numbers."""
    return _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
