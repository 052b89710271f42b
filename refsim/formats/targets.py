"""The targets: a row for each family of devices, with what ExecuTorch's runtime chooses there and how it computes.

The rows are in ``targets.json``, which names their source. A row decides about layouts and kernels; where the numerics
of the family were measured, it names their profile too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from refsim.core import choices
from refsim.core.errors import ParameterError
from refsim.core.qmath import CANONICAL, PROFILES, Profile
from refsim.ops.base.target import Behaviour, Target

FILE = Path(__file__).with_name("targets.json")
#: The target where none is given, and nothing says otherwise.
DEFAULT = "desktop"
#: How alike a name must be to be taken for a slip: they are short.
_ALIKE = 0.75


@dataclass(frozen=True)
class TargetRow:
    """One family. ``mali``: layouts and kernels are chosen as on a Mali. ``profile``: its numerics, None if nobody
    measured them. ``devices`` and ``chooses`` are for people."""

    name: str
    mali: bool
    profile: Profile | None
    devices: str
    chooses: str

    def target(self, profile: Profile | None = None, runtime: Behaviour = Behaviour()) -> Target:  # noqa: B008
        """What to imitate; with numerics of one's own instead of the family's."""
        return Target(profile or self.profile or CANONICAL, self.mali, runtime)


@cache
def targets() -> dict[str, TargetRow]:
    """Every row by its name, the default first."""
    rows = json.loads(FILE.read_bytes())["targets"]
    return {
        row["name"]: TargetRow(**{**row, "profile": row["profile"] and PROFILES[row["profile"]]})
        for row in rows
    }


def named(name: str) -> TargetRow:
    """The row of a name; ParameterError if there is none."""
    found = targets().get(name)
    if found is None:
        raise ParameterError(
            "target",
            "unknown",
            got=repr(name),
            need=choices.listed(targets()) + choices.meant(name, targets(), _ALIKE),
        )
    return found


def distinct() -> list[TargetRow]:
    """A row for each way to choose layouts: the first that has it."""
    found: dict[bool, TargetRow] = {}
    for row in targets().values():
        found.setdefault(row.mali, row)
    return list(found.values())
