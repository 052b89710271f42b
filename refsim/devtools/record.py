"""Files that hold exported programs: .pt2 files of torch.export.save, and ETRecords of ExecuTorch's developer tools."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from refsim.core import choices
from refsim.core.errors import FormatError
from refsim.devtools.program import MOST_BYTES, ExportedProgram, parse
from refsim.formats.reading import MAX_JSON_BYTES, archive, member, parsed, reading

NEED = "an ETRecord, or what torch.export.save writes"
#: How such files are named.
SUFFIXES = (".pt2", ".etrecord", ".bin")
_RECORD = "ETRECORD_V0"
_EDGE, _EXPORTED, _HANDLES = "edge_dialect_exported_program", "exported_program", "debug_handle_map"
#: The programs in a .pt2 file: as torch writes them since 2.8, and before.
_MODELS, _BEFORE = ("models/", ".json"), "serialized_exported_program.json"


@dataclass(frozen=True)
class Exported:
    """A program, and which of its operators each instruction of the .pte stands for.

    ``handles``: the debug handles of the operators behind an instruction, by its number; empty for a .pt2 file.
    """

    program: ExportedProgram
    handles: Mapping[int, frozenset[int]] = field(default_factory=dict)


def read_exported(path: str | os.PathLike[str], method: str = "forward") -> Exported:
    """The program of a method. Of an ETRecord, it is the one before delegates were cut out of it, if it has that one.

    FormatError or LimitError for any other file. No weights are read.
    """
    where = os.fsdecode(path)
    with archive(path, NEED, SUFFIXES) as file:
        with reading(where):
            names = file.namelist()
        if _RECORD in names:
            return _record(file, names, where, method)
        found = [name for name in names if _is_program(name)]
        chosen = next(
            (name for name in found if name.endswith(f"/{method}.json")), found[0] if found else None
        )
        if chosen is None:
            raise FormatError(where, "holds no exported program", got=choices.first(names), need=NEED)
        return Exported(_program(file, chosen, where))


def _is_program(name: str) -> bool:
    folder, _, rest = name.partition("/")
    inner = rest or folder  # torch before 2.8 wrote no folder around it
    return inner == _BEFORE or (inner.startswith(_MODELS[0]) and inner.endswith(_MODELS[1]))


def _record(file: zipfile.ZipFile, names: list[str], where: str, method: str) -> Exported:
    edge = next((name for name in (f"{_EDGE}/{method}", _EDGE) if name in names), None)
    if edge is None:
        if _EXPORTED not in names:
            raise FormatError(where, "holds no program of this method", got=method, need="another method")
        return Exported(_program(file, _EXPORTED, where))
    handles: dict[int, frozenset[int]] = {}
    if _HANDLES in names:
        place = f"{where}: {_HANDLES}"
        content = parsed(member(file, _HANDLES, place, MAX_JSON_BYTES), place, "debug handles by instruction")
        with reading(place, "not debug handles", "numbers by instruction"):
            handles = {int(key): _numbers(value) for key, value in content.get(method, {}).items()}
    return Exported(_program(file, edge, where), handles)


def _numbers(value: Any) -> frozenset[int]:
    numbers = value if isinstance(value, list) else [value]
    return frozenset(number for number in numbers if type(number) is int)


def _program(file: zipfile.ZipFile, name: str, where: str) -> ExportedProgram:
    place = f"{where}: {name}"
    return parse(member(file, name, place, MOST_BYTES), place)
