"""Descriptions of runtimes: a data file for each ExecuTorch release; docs/check.md says where their facts come from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from refsim.core import choices
from refsim.core.errors import ParameterError

FOLDER = Path(__file__).parent / "runtimes"
#: The release that is meant where none is named.
LATEST = "1.5.1"


@dataclass(frozen=True)
class Runtime:
    """One release.

    ``operators``: those that the Vulkan runtime registers. ``claimed``: those that the exporter puts into delegates all
    the same. ``kernels``: kernels outside of delegates, by the library that has them. ``standard`` names the libraries
    that an ordinary build links. ``shaders``: names of compute shaders, of those kinds that ``shader_of`` needs.
    ``shader_of`` and ``requirements`` are rows for `refsim.check.rules`.
    """

    release: str
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
    fixed_shape: frozenset[str]
    weights: tuple[Mapping[str, Any], ...]

    def library_of(self, kernel: str) -> str | None:
        """The library that has a kernel, a standard one if there is one."""
        homes = [library for library, names in self.kernels.items() if kernel in names]
        homes.sort(key=lambda library: library not in self.standard)
        return homes[0] if homes else None


def releases() -> list[str]:
    """The releases that are described, oldest first."""
    found = (path.name.removesuffix(".json") for path in FOLDER.glob("*.json"))
    return sorted(found, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])


@cache
def runtime(release: str = LATEST) -> Runtime:
    """The description of a release; ParameterError if there is none."""
    if release not in releases():
        raise ParameterError(
            "runtime", "unknown release", got=repr(release), need=choices.need(release, releases())
        )
    data = json.loads((FOLDER / f"{release}.json").read_bytes())
    kernels = {library: frozenset(names) for library, names in data["kernels"].items()}
    shaders = frozenset(
        "_".join(filter(None, (base, tail))) for base, tails in data["shaders"].items() for tail in tails
    )
    shader_of = {name: tuple(row["shaders"]) for row in data["shader_of"] for name in row["operators"]}
    return Runtime(
        release,
        data["source"],
        data["limits"],
        frozenset(data["operators"]),
        frozenset(data["claimed"]),
        kernels,
        tuple(data["standard"]),
        shaders,
        shader_of,
        tuple(data["requirements"]),
        {name: tuple(dtypes) for name, dtypes in data["staging"].items()},
        frozenset(data["fixed_shape"]),
        tuple(data["weights"]),
    )
