"""A runtime that stops at the first thing that it does not take, and says so in its own words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from refsim.check.finding import Level
from refsim.check.rule import Hit, Rule
from refsim.check.runtime import Runtime
from refsim.check.subject import Call, Method
from refsim.check.words import answer

#: What an owner can do where a row says nothing better.
KEEP = "keep the operator out of the delegate"


def refusal(call: Call, runtime: Runtime) -> tuple[str, str] | None:
    """The message with which the runtime refuses a call, and how to avoid that; None if it takes the call."""
    if call.name not in runtime.operators:
        return runtime.unsupported.format(operator=call.name), KEEP
    for row in runtime.refusals:
        if call.name in row["operators"] and _breaks(call, row):
            return row["message"].format(name=call.name.split(".")[1]), row.get("fix", KEEP)
    return None


def _breaks(call: Call, row: Mapping[str, Any]) -> bool:
    """Whether one of the row's needs is not met. What a call lacks is not held against it."""
    return any(answer(call, condition) is False for condition in row["need"])


def refused(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for call in method.calls:
        found = refusal(call, runtime)
        if found is not None:
            error = runtime.refusing.format(message=found[0])
            yield Hit(call.place(call.id("-1")), {"message": found[0], "error": error, "fix": found[1]})


RULES = (
    Rule(
        "refused",
        Level.ERROR,
        "{message}",
        "loading stops at the first such call, with {error}",
        "{fix}",
        refused,
    ),
)
