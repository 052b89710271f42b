"""Descriptions of runtimes: a data file for each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from refsim.core import choices
from refsim.core.errors import FormatError, ParameterError
from refsim.formats.file import quote
from refsim.formats.reading import json_file, reading
from refsim.ops.base.target import Behaviour

FOLDER = Path(__file__).parent / "runtimes"
#: The runtime that is meant where none is named: all recordings of this project are of it.
DEFAULT = "2026-08"
#: What is needed where a description is not one.
DESCRIPTION = "a description of a runtime"


@dataclass(frozen=True)
class Runtime:
    """One runtime.

    ``title`` says in words what it is. ``measured``: files were run on it. ``behaviour`` is what values depend on.
    ``rules`` names the groups of rules that hold for it (`refsim.check.rules`), none those of ET-VK. ``refusals`` are
    rows for `refsim.check.rules.refusals`, ``unsupported`` is what it says of an operator that it does not have, and
    ``refusing`` the error that has either message.
    ``operators``: those that the runtime registers. ``claimed``: those that the exporter puts into delegates all
    the same. ``kernels``: kernels outside of delegates, by the library that has them. ``standard`` names the libraries
    that an ordinary build links. ``shaders``: names of compute shaders, of those kinds that ``shader_of`` needs.
    ``shader_of`` and ``requirements`` are rows for `refsim.check.rules`.
    """

    name: str
    source: str
    limits: Mapping[str, int]
    operators: frozenset[str]
    claimed: frozenset[str]
    kernels: Mapping[str, frozenset[str]]
    standard: tuple[str, ...]
    shaders: frozenset[str]
    shader_of: Mapping[str, tuple[Mapping[str, Any], ...]]
    requirements: tuple[Mapping[str, Any], ...]
    staging: Mapping[str, tuple[str, ...]]
    weights: tuple[Mapping[str, Any], ...]
    title: str
    measured: bool
    behaviour: Behaviour
    rules: tuple[str, ...] = ()
    refusals: tuple[Mapping[str, Any], ...] = ()
    unsupported: str = ""
    refusing: str = "{message}"

    @property
    def misreads(self) -> bool:
        """Whether it reads a scalar of another type as 0."""
        return "scalars" in self.rules

    def library_of(self, kernel: str) -> str | None:
        """The library that has a kernel, a standard one if there is one."""
        homes = [library for library, names in self.kernels.items() if kernel in names]
        homes.sort(key=lambda library: library not in self.standard)
        return homes[0] if homes else None


def releases() -> list[str]:
    """The runtimes that are described, the default first."""
    found = sorted(path.name.removesuffix(".json") for path in FOLDER.glob("*.json"))
    return sorted(found, key=lambda name: name != DEFAULT)


@cache
def runtime(release: str = DEFAULT) -> Runtime:
    """The description of a runtime, by its name or in a file of one's own.

    ParameterError if there is none, FormatError for a file that is no description.
    """
    if release in releases():
        return _made(_whole(_read(release)), release)
    if not release.endswith(".json"):
        need = choices.need(release, releases(), "a JSON file that describes one")
        raise ParameterError("runtime", "unknown", got=repr(release), need=need)
    held, name = json_file(release, DESCRIPTION), Path(release).stem
    what = "is no description of a runtime"
    if not isinstance(held, dict):
        raise FormatError(release, what, got=f"a {type(held).__name__}", need="an object")
    for key in held.keys() - _keys():
        raise FormatError(release, what, got=f"a key {quote(key)}", need=choices.need(key, sorted(_keys())))
    with reading(release, what, DESCRIPTION):
        return _made(_whole({"title": name, "measured": False} | held), name)


def _read(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_bytes())


@cache
def _keys() -> frozenset[str]:
    """What the descriptions here say."""
    return frozenset().union(*map(_read, releases()))


def _whole(data: Mapping[str, Any]) -> dict[str, Any]:
    """A description with what it takes over from another one: all that it does not say itself, or drops."""
    if "of" not in data:
        return dict(data)
    if data["of"] not in releases():
        raise ValueError(f"it is of {data['of']!r}")
    whole = _whole(_read(data["of"]))
    kept = [row for row in whole["requirements"] if row["rule"] not in data.get("without", ())]
    behaviour = whole["behaviour"] | data.get("behaviour", {})
    return whole | {"requirements": kept} | dict(data) | {"behaviour": behaviour}


#: What a row of requirements must say.
_ROW = ("rule", "level", "operators", "what", "why", "fix")


def _made(data: Mapping[str, Any], name: str) -> Runtime:
    for row in data["requirements"]:
        if missing := [key for key in _ROW if not isinstance(row.get(key), str | list)]:
            raise ValueError(f"a requirement without {missing[0]}")
    shaders = frozenset(
        "_".join(filter(None, (base, tail))) for base, tails in data["shaders"].items() for tail in tails
    )
    behaviour = data["behaviour"]
    return Runtime(
        name=name,
        source=data["source"],
        limits=data["limits"],
        operators=frozenset(data["operators"]),
        claimed=frozenset(data["claimed"]),
        kernels={library: frozenset(names) for library, names in data["kernels"].items()},
        standard=tuple(data["standard"]),
        shaders=shaders,
        shader_of={name: tuple(row["shaders"]) for row in data["shader_of"] for name in row["operators"]},
        requirements=tuple(data["requirements"]),
        staging={name: tuple(dtypes) for name, dtypes in data["staging"].items()},
        weights=tuple(data["weights"]),
        title=data["title"],
        measured=data["measured"],
        behaviour=Behaviour(
            **behaviour
            | {"ended": frozenset(behaviour.get("ended", ())), "fixed": frozenset(data["fixed_shape"])}
        ),
        rules=tuple(data.get("rules", ())),
        refusals=tuple(data.get("refusals", ())),
        unsupported=data.get("unsupported", ""),
        refusing=data.get("refusing", Runtime.refusing),
    )
