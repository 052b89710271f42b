"""The device whose bytes a call has: an operator's meaning is that of one device, down to the rounding."""

from __future__ import annotations

from dataclasses import dataclass

from refsim.core.qmath import CANONICAL, Profile


@dataclass(frozen=True)
class Behaviour:
    """What a runtime does with a file, as far as values depend on it. `refsim.check.runtime` has the descriptions.

    ``flat``: tensors are flat buffers, and operators have their flat meanings (refsim/ops/flat). ``ended``: defects
    that it no longer has, as ``first-batch:q8ta_conv2d``.
    """

    name: str = "2026-08"
    flat: bool = False
    ended: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Target:
    """The device to imitate: its numerics, whether upstream would choose kernels as for a Mali GPU, and the runtime."""

    profile: Profile = CANONICAL
    mali: bool = False
    runtime: Behaviour = Behaviour()
