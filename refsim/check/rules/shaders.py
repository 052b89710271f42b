"""Compute shaders that an operator asks for by dtype and storage, and that the runtime was not built with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from refsim.check.conditions import describe
from refsim.check.finding import Level
from refsim.check.rule import Hit, Rule
from refsim.check.runtime import Runtime
from refsim.check.shader_names import dtype_part, storage_part
from refsim.check.subject import Call, Method
from refsim.check.words import answer

_PARTS = {"dtype": dtype_part, "storage": storage_part}


def shader_name(call: Call, template: str) -> str | None:
    """``clone_{dtype:-1}`` with the argument's dtype or storage; None where the call lacks the argument."""
    unknown = False

    def named(match: re.Match[str]) -> str:
        nonlocal unknown
        operand = call.operand(match[2])
        unknown |= operand is None
        return "" if operand is None else _PARTS[match[1]](operand)

    name = re.sub(r"\{(dtype|storage):([-\d.]+)\}", named, template)
    return None if unknown else name


def wanted(call: Call, rows: tuple[Mapping[str, Any], ...]) -> str | None:
    """The shader that a call asks for: that of the first row whose conditions hold. None where no row says it."""
    for row in rows:
        if all(answer(call, condition) for condition in row.get("when", ())):
            return shader_name(call, row["name"]) if "name" in row else None
    return None


def missing_shader(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for call in method.calls:
        name = wanted(call, runtime.shader_of.get(call.name, ()))
        if name is not None and name not in runtime.shaders:
            facts = {
                "shader": name,
                "operator": call.name,
                "x": describe(call, "0"),
                "out": describe(call, "-1"),
            }
            yield Hit(call.place(call.id("-1")), facts)


RULES = (
    Rule(
        "missing-shader",
        Level.ERROR,
        "{operator} on {x}, giving {out}, needs the shader {shader}, which the runtime does not have",
        "loading stops with: Could not find ShaderInfo with name {shader}",
        "change the dtype or the storage of the tensor at export, or keep the operator out of the delegate",
        missing_shader,
    ),
)
