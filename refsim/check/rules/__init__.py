"""All rules. `rules` adds those rows that stand in a runtime's description."""

from __future__ import annotations

from collections.abc import Mapping

from refsim.check.rule import Rule
from refsim.check.rules import (
    border,
    constants,
    defects,
    memory,
    operators,
    refusals,
    requirements,
    scalars,
    shaders,
    shapes,
    tensors,
)
from refsim.check.runtime import Runtime

#: The rules by group; a runtime's description may name the groups that hold for it.
GROUPS: Mapping[str, tuple[Rule, ...]] = {
    "operators": operators.RULES,
    "shaders": shaders.RULES,
    "border": border.RULES,
    "tensors": tensors.RULES,
    "constants": constants.RULES,
    "memory": memory.RULES,
    "shapes": shapes.RULES,
    "defects": defects.RULES,
    "kernels": operators.KERNELS,
    "resizing": shapes.RESIZING,
    "refusals": refusals.RULES,
    "scalars": scalars.RULES,
}
#: What holds for a description that names none: one of ET-VK.
VULKAN = ("operators", "shaders", "border", "tensors", "constants", "memory", "shapes", "defects")


def rules(runtime: Runtime) -> tuple[Rule, ...]:
    """Every rule that holds for a runtime, those of its description last."""
    held = (rule for group in runtime.rules or VULKAN for rule in GROUPS[group])
    return (*held, *requirements.rules(runtime))
