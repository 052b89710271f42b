"""Check a file against a runtime: all rules over all methods."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from os import PathLike, fspath

from refsim.check.finding import Finding, Level
from refsim.check.rules import rules
from refsim.check.runtime import DEFAULT, runtime
from refsim.check.subject import Method, blob_method, methods
from refsim.core.folder_write import current
from refsim.exec.model import LOWERED
from refsim.formats.file import read_file
from refsim.formats.pte.read import VULKAN_ID, kind_of, read_pte, unknown
from refsim.formats.vkgraph.read import read_blob
from refsim.ops.base.target import Target

_ORDER = {level: place for place, level in enumerate(Level)}


def check(path: str | PathLike[str], release: str = DEFAULT) -> list[Finding]:
    """What a runtime refuses in a file, or gets wrong: errors first, then in the file's order.

    ``path`` is a .pte, a delegate blob, or a folder that `refsim lower` wrote. Raises FormatError or LimitError for a
    file that cannot be read, ParameterError for an unknown runtime; never anything else.
    """
    lowered = current(path, LOWERED)
    name = fspath(lowered if os.path.isfile(lowered) else path)
    return check_bytes(read_file(name, suffix=".pte"), name, release)


def check_bytes(
    data: bytes | bytearray | memoryview, name: str = "file", release: str = DEFAULT
) -> list[Finding]:
    """As `check`, of a file that is held in memory."""
    found: Iterable[Method]
    described = runtime(release)
    target = Target(runtime=described.behaviour)
    kind = kind_of(data)
    if kind == "blob":
        found = (blob_method(read_blob(data, name), target),)
    elif kind == "pte":
        found = methods(read_pte(data, name), VULKAN_ID, target)
    else:
        raise unknown(data, name)
    findings = [
        finding
        for method in found
        for rule in rules(described)
        for finding in rule.findings(method, described)
    ]
    return sorted(findings, key=_place_in_list)


def refused(path: str | PathLike[str], release: str) -> str | None:
    """The first thing for which the runtime does not load a file, in words; None if it loads."""
    errors = [finding for finding in check(path, release) if finding.level is Level.ERROR]
    return errors[0].what if errors else None


def refused_values(blob: bytes, release: str) -> dict[int, str]:
    """What the runtime refuses in a delegate's blob: the value that the call would write -> what is wrong."""
    described = runtime(release)
    method = blob_method(read_blob(blob), Target(runtime=described.behaviour))
    writes = {call.number: call.operator.args[-1] for call in method.calls}
    found = check_bytes(blob, release=release)
    return {
        writes[finding.place.node]: finding.what
        for finding in reversed(found)
        if finding.level is Level.ERROR and finding.place.node in writes
    }


def _place_in_list(finding: Finding) -> tuple[int, str, int, int, int]:
    place = finding.place
    numbers = (-1 if number is None else number for number in (place.delegate, place.node, place.value))
    return _ORDER[finding.level], place.method or "", *numbers  # type: ignore[return-value]


def counts(findings: Iterable[Finding]) -> dict[str, int]:
    """How many findings there are of each level."""
    levels = [finding.level for finding in findings]
    return {level.value: levels.count(level) for level in Level}


def summary(findings: Iterable[Finding]) -> str:
    """``2 errors, 1 warning, 0 notes``."""
    return ", ".join(f"{n} {level}{'s' * (n != 1)}" for level, n in counts(findings).items())


def pointer(path: str, release: str = DEFAULT) -> str:
    """The line by which other verbs point to this one."""
    return f"check: {summary(check(path, release))} for the runtime {_text(release)}; see {_rerun(path, release)}"


def refusals(path: str, release: str = DEFAULT) -> list[str]:
    """The line of a verb that prepares a file for a device whose runtime will not load it; empty where it will."""
    errors = [finding for finding in check(path, release) if finding.level is Level.ERROR]
    if not errors:
        return []
    first = f"{errors[0].rule}, {errors[0].what}"
    return [f"the runtime {_text(release)} does not take it ({first}); see {_rerun(path, release)}"]


def _text(release: str) -> str:
    described = runtime(release)
    return described.name if described.measured else f"{described.name}, probably"


def _rerun(path: str, release: str) -> str:
    return shlex.join(["refsim", "check", path, *(["--runtime", release] if release != DEFAULT else [])])
