"""The device whose bytes a call has: an operator's meaning is that of one device, down to the rounding."""

from __future__ import annotations

from dataclasses import dataclass

from refsim.core.qmath import CANONICAL, Profile
from refsim.ops.base.requantization import Requantization

#: How a runtime may pick the kernel of a q8ta_conv2d: for one image, or for several in another way.
ROUTINGS = ONE_IMAGE, MANY_IMAGES = "one image", "many images"


@dataclass(frozen=True)
class Behaviour:
    """What a runtime does with a file, as far as values depend on it. `refsim.check.runtime` has the descriptions.

    ``flat``: tensors are flat buffers, and operators have their flat meanings (refsim/ops/flat). ``routing``, one of
    `ROUTINGS`, is how q8ta_conv2d picks its kernel. ``ended``: defects that are gone, as ``first-batch:q8ta_conv2d``.
    ``later``: its host calls modules as the latest release does, or the first; None: as the modules tell. ``fixed``:
    operators that compute the bound's shape in every run, by their serialized names; some of one rank, as ``NAME/4``.
    """

    flat: bool = False
    routing: str = ONE_IMAGE
    ended: frozenset[str] = frozenset()
    later: bool | None = None
    fixed: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.routing not in ROUTINGS:
            raise ValueError(f"the routing {self.routing!r}, which is none of {', '.join(ROUTINGS)}")

    def fixes(self, name: str, rank: int) -> bool:
        """Whether an operator, whose output has so many dims, is one of the fixed ones."""
        return not self.fixed.isdisjoint((name, f"{name}/{rank}"))


@dataclass(frozen=True)
class Target:
    """The device to imitate: its numerics, whether upstream would choose kernels as for a Mali GPU, and the runtime.

    ``rule``: how integer sums become bytes, if not as ExecuTorch's kernels do it; definitions alone know it.
    """

    profile: Profile = CANONICAL
    mali: bool = False
    runtime: Behaviour = Behaviour()
    rule: Requantization | None = None
