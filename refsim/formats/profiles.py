"""Numerics profiles as files: one JSON object, whose key ``profile`` holds the fields of `refsim.core.qmath.Profile`.

The object may hold more, such as the device and what a probe measured. That is for people; it is not read.

The profiles that have a name are such files too, in `refsim/core/profiles`: each says which recording or probe measured
each field. Families of devices that nobody measured have a file without a profile.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from refsim.core import atomic_write, choices, strict_json
from refsim.core.errors import FormatError, ParameterError
from refsim.core.qmath import PROFILE_FILES, PROFILES, Profile
from refsim.formats import reading
from refsim.formats.file import quote

SCHEMA = 1
MAX_BYTES = 1 << 20
_FIELDS = {field.name: type(field.default) for field in fields(Profile) if field.name != "name"}


@dataclass(frozen=True)
class DeviceFamily:
    """A family of devices: its profile, whom it describes, and what measured each field of it.

    ``profile`` None: nobody measured such a device; ``missing`` says so in words.
    """

    name: str
    profile: Profile | None
    describes: str
    sources: Mapping[str, str]
    missing: str = ""


def families() -> dict[str, DeviceFamily]:
    """Every family that has a file, measured or not, by name; those that were measured first."""
    found = {}
    for path in sorted(PROFILE_FILES.glob("*.json")):
        row, name = json.loads(path.read_bytes()), path.stem
        found[name] = DeviceFamily(
            name, PROFILES.get(name), row["describes"], row.get("sources", {}), row.get("missing", "")
        )
    return dict(sorted(found.items(), key=lambda item: item[1].profile is None))


def profile(name_or_path: str | os.PathLike[str]) -> Profile:
    """A known profile by its name, or else the profile in the file of that name; a name has no folder and no suffix.

    Raises ParameterError if there is neither, and for a family that nobody measured; FormatError for a file that holds
    no profile.
    """
    text = os.fspath(name_or_path)
    if text in PROFILES:
        return PROFILES[text]
    if not os.path.exists(text) and not os.path.dirname(text) and not os.path.splitext(text)[1]:
        family = families().get(text)
        what = "unknown" if family is None else f"not measured: {family.missing}"
        need = choices.need(text, PROFILES, "or a file that refsim probe saved")
        raise ParameterError("numerics profile", what, got=repr(text), need=need)
    return read(text)


def read(path: str | os.PathLike[str]) -> Profile:
    """The profile that a file holds; FormatError or LimitError if it holds none."""
    where = os.fspath(path)
    return from_json(reading.json_file(where, "a profile that a probe saved", MAX_BYTES), where)


def from_json(content: Any, where: str) -> Profile:
    """The profile of a parsed file. FormatError, naming ``where``, for keys or values that no profile has."""
    if not isinstance(content, Mapping) or content.get("schema") != SCHEMA:
        got = content.get("schema") if isinstance(content, Mapping) else type(content).__name__
        raise FormatError(where, "not a profile of this schema", got=quote(got), need=f"schema {SCHEMA}")
    return of_fields(content.get("profile"), where)


def of_fields(body: Any, where: str) -> Profile:
    """The profile with these fields; FormatError, naming ``where``, unless they are those of one."""
    if not isinstance(body, Mapping) or not isinstance(body.get("name"), str):
        raise FormatError(where, "profile has no name", got=quote(body), need="an object with a name")
    wrong = {key for key in body if key not in _FIELDS and key != "name"}
    wrong |= {key for key, kind in _FIELDS.items() if type(body.get(key)) is not kind}
    if wrong:
        need = ", ".join(f"{key} ({kind.__name__})" for key, kind in _FIELDS.items())
        raise FormatError(where, "profile's fields do not fit", got=", ".join(sorted(wrong)), need=need)
    try:
        found = Profile(**body)
    except ParameterError as error:
        raise FormatError(where, error.what, got=error.got, need=error.need) from error
    known = PROFILES.get(found.name)
    if known is not None and known != found:
        raise FormatError(where, "a profile of this name computes otherwise", got=found, need=known)
    return found


def as_json(held: Profile | None, **facts: object) -> dict[str, Any]:
    """The content of a file. ``facts`` stand beside the profile, which is null if no profile describes the device."""
    return {"schema": SCHEMA, "profile": asdict(held) if held else None, **facts}


def write(path: str | os.PathLike[str], held: Profile | None, **facts: object) -> None:
    """Write a file, which appears whole or not at all; FormatError where it cannot be written."""
    atomic_write.write(path, (strict_json.dumps(as_json(held, **facts), indent=1) + "\n").encode())
