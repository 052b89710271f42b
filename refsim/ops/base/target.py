"""The device whose bytes a call has: an operator's meaning is that of one device, down to the rounding."""

from __future__ import annotations

from dataclasses import dataclass

from refsim.core.qmath import CANONICAL, Profile


@dataclass(frozen=True)
class Target:
    """The device to imitate: its numerics, and whether upstream would choose kernels as for a Mali GPU."""

    profile: Profile = CANONICAL
    mali: bool = False
