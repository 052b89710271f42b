"""Which calls run on cooperative matrices: a policy, made once for a device and an option.

The option is the word behind ``@`` in an executor's name: ``gpu:0@coop=off``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from refsim.core.errors import DeviceError, ParameterError
from refsim.exec.device_info import DeviceInfo
from refsim.ops.base import coopmat
from refsim.ops.base.coopmat import CoopPlan, CoopPrepared, CoopRule
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.spec import Call
from refsim.ops.base.traits import MatrixProblem

#: Where they are faster; nowhere; wherever an operator allows it; the same with emulated instructions, on any device.
AUTO, OFF, ALL, EMULATED = CHOICES = ("auto", "off", "all", "emulated")


def problem_of(call: Call) -> tuple[Call, MatrixProblem] | None:
    """The call as one matrix product, and the call that this is of: the same, or the one that it stands for."""
    if call.op.matrix is not None:
        return call, call.op.matrix(call)
    if call.op.expand is not None:
        parts = call.op.expand(call)
        return problem_of(parts[0].call) if len(parts) == 1 else None
    return None


@dataclass(frozen=True)
class CoopPolicy:
    """Which calls, by which rules, and the ending of the builds that they take."""

    rules: Sequence[CoopRule]
    wanted: Callable[[MatrixProblem], bool]
    build: str = ""

    def prepared(self, prepared: Prepared) -> Prepared:
        """The call on cooperative matrices if it should be, or as it is."""
        found = problem_of(prepared.call)
        if found is None or not self.wanted(found[1]):
            return prepared
        return CoopPrepared(prepared.call, *found, self.plan(found[1]), self.build)

    def plan(self, problem: MatrixProblem) -> CoopPlan:
        return coopmat.plan(problem, self.rules)


def policy(info: DeviceInfo, choice: str) -> CoopPolicy | None:
    """What a device takes by a choice; None for nothing. DeviceError if it was asked for what it lacks."""
    if choice not in CHOICES:
        raise ParameterError("cooperative matrices", "unknown choice", got=choice, need=", ".join(CHOICES))
    if choice == ALL and not info.int8_matrices:
        raise DeviceError(f"gpu:{info.index}", "no cooperative matrices", got=info.name, need="coop=emulated")
    if choice == OFF or (choice == AUTO and not info.int8_matrices):
        return None
    tiles = coopmat.EMULATED_TILES if choice == EMULATED else coopmat.TILES
    most = int(info.limits["maxComputeSharedMemorySize"])  # type: ignore[arg-type]
    rules = tuple(rule for rule in coopmat.RULES if rule.tile in tiles and rule.tile.shared_bytes <= most)
    wanted = coopmat.worthwhile if choice == AUTO else _every
    return CoopPolicy(rules, wanted, coopmat.EMULATED if choice == EMULATED else "") if rules else None


def _every(problem: MatrixProblem) -> bool:
    return True


def forced(base: CoopPolicy, rule: CoopRule) -> CoopPolicy:
    """The policy that takes one tile for everything."""
    return replace(base, rules=(rule,), wanted=_every)


class Chosen:
    """Prepared calls as a policy has them, each made once."""

    def __init__(self, policy: CoopPolicy | None) -> None:
        self.policy = policy
        self._made: WeakKeyDictionary[Prepared, Prepared] = WeakKeyDictionary()

    def __call__(self, prepared: Prepared) -> Prepared:
        if self.policy is None:
            return prepared
        if prepared not in self._made:
            self._made[prepared] = self.policy.prepared(prepared)
        return self._made[prepared]
