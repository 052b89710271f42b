"""All rules. `rules` adds those rows that stand in a runtime's description."""

from __future__ import annotations

from refsim.check.rule import Rule
from refsim.check.rules import (
    border,
    constants,
    defects,
    memory,
    operators,
    requirements,
    shaders,
    shapes,
    tensors,
)
from refsim.check.runtime import Runtime

RULES: tuple[Rule, ...] = (
    *operators.RULES,
    *shaders.RULES,
    *border.RULES,
    *tensors.RULES,
    *constants.RULES,
    *memory.RULES,
    *shapes.RULES,
    *defects.RULES,
)


def rules(runtime: Runtime) -> tuple[Rule, ...]:
    """Every rule that holds for a release, those of its description last."""
    return (*RULES, *requirements.rules(runtime))
