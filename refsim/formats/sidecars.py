"""What the .json beside a raw buffer says of it: its layout and shape, which value it is, and of which run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from refsim.core.errors import FormatError
from refsim.core.layout import Layout
from refsim.core.layout import layout as layout_named
from refsim.formats import dumps
from refsim.formats.cases import ACTUAL, CASE_JSON, MAX_JSON_BYTES, Stored
from refsim.formats.cases import described as case_described
from refsim.formats.file import read_file
from refsim.formats.reading import parsed
from refsim.formats.run_identity import other_text

NO_SOURCES: Mapping[str, str] = MappingProxyType({})
#: How a line ends about buffers that are not of one value and one run.
FOR_THAT = "bytes may differ for that alone"


def says(path: str) -> str:
    """The file that says what a raw buffer is: its .json, else the case.json beside it."""
    beside = Path(path).with_suffix(".json")
    return str(beside if beside.is_file() else beside.with_name(CASE_JSON))


def described(
    path: str, layout: Layout | None, shape: Sequence[int] | None, sources: Mapping[str, str] = NO_SOURCES
) -> tuple[Layout | None, Sequence[int] | None]:
    """Layout and shape of a raw buffer: as given, else as the .json beside it says.

    FormatError if both say something, and not the same. With both given, a .json of something else is none of ours.
    ``sources``: what gave the "layout" and the "shape", if not an option.
    """
    beside = Path(path).with_suffix(".json")
    if not beside.is_file():
        desc = in_case(path) if layout is None or shape is None else None
        return (layout, shape) if desc is None else (layout or desc[0], shape or desc[1])
    try:
        entry = dumps.read_sidecar(beside)
    except FormatError:
        if layout is None or shape is None:
            raise
        return layout, shape
    for what, given, said in (("layout", layout, entry.layout), ("shape", shape, entry.shape)):
        if given is not None and given != said:
            need = f"{said}, as it says, or a buffer without that file"
            got = f"{given} of {sources[what]}" if what in sources else given
            raise FormatError(str(beside), f"says another {what} of {path}", got=got, need=need)
    return entry.layout, entry.shape


def unlike_case(path: str, stored: Stored, case: str, same: bool) -> list[str]:
    """What the .json beside a buffer says that does not fit a case: another value, or another run if bytes differ.

    FormatError if that file says another shape or layout than the case's output. ``same``: whether no byte differs.
    """
    entry, desc = _entry(path), stored.expected.desc
    if entry is None:
        return []
    if not replace(entry, layout=entry.layout or desc.layout).fits(desc):
        described(path, desc.layout, desc.shape, dict.fromkeys(("layout", "shape"), f"the case {case}"))
    notes, beside = _misnamed(path, entry), Path(path).with_suffix(".json")
    if entry.value and stored.value and entry.value != stored.value:
        notes.append(f"{beside} says that {path} is {entry.value}, and {case} writes {stored.value}")
    if (other := entry.run.differs(stored.run)) is not None and not same:
        notes.append(f"{beside} says that {path} is {other_text(other)} than {case}: its {FOR_THAT}")
    return notes


def unlike_each_other(expected: str, actual: str, same: bool) -> list[str]:
    """What the .json files beside two buffers say that makes them two things: other values, or runs if bytes differ.

    ``same``: whether no byte differs.
    """
    one, other = _entry(expected), _entry(actual)
    notes = [*(_misnamed(expected, one) if one else []), *(_misnamed(actual, other) if other else [])]
    if one is None or other is None:
        return notes
    both = f"{Path(expected).with_suffix('.json')} and {Path(actual).with_suffix('.json')}"
    if one.value and other.value and one.value != other.value:
        notes.append(f"{both} name two values, {one.value} and {other.value}")
    if (what := one.run.differs(other.run)) is not None and not same:
        notes.append(f"{both} tell of two runs, the second {other_text(what)} than the first: {FOR_THAT}")
    return list(dict.fromkeys(notes))


def _entry(path: str) -> dumps.RecordedBuffer | None:
    """The sidecar of a raw buffer; None if there is none, or if the .json beside it is of something else."""
    beside = Path(path).with_suffix(".json")
    try:
        return dumps.read_sidecar(beside) if beside.is_file() else None
    except FormatError:
        return None


def _misnamed(path: str, entry: dumps.RecordedBuffer) -> list[str]:
    """That a file named like one value holds another, as its sidecar says."""
    if not entry.misnamed:
        return []
    return [f"{Path(path).with_suffix('.json')} says that {path} is {entry.value}"]


def in_case(path: str) -> tuple[Layout, Sequence[int]] | None:
    """Layout and shape of a buffer of a case, as the case.json beside it says; None if there is none, or not in it.

    That of the case's output is also that of what a device made of it, which `refsim triage` puts there.
    """
    beside = Path(path).with_name(CASE_JSON)
    if not beside.is_file():
        return None
    case = case_described(
        parsed(bytes(read_file(beside, MAX_JSON_BYTES)), str(beside), "a case"), str(beside)
    )
    name = Path(path).name
    found = next((row for row in (*case.inputs, case.output) if name == row.file), None)
    if found is None and name == ACTUAL:
        found = case.output
    return None if found is None else (layout_named(found.layout), found.shape)
