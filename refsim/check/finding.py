"""What a rule says of a place in a file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from refsim.core.plain import FLAT


class Level(Enum):
    """How bad a finding is. ``ERROR``: the file does not load or stops. ``WARNING``: it runs, and values are wrong."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Place:
    """Where: a method, a delegate of it, a node of that, a value. None where it does not apply."""

    method: Annotated[str | None, "The method of the program."] = None
    delegate: Annotated[int | None, "Number of the delegate."] = None
    node: Annotated[int | None, "Number of the node; outside of delegates, of the instruction."] = None
    operator: Annotated[str | None, "Name of the operator."] = None
    value: Annotated[int | None, "Number of the value."] = None

    def __str__(self) -> str:
        parts = []
        if self.delegate is not None:
            parts.append(f"delegate {self.delegate}")
        if self.node is not None:
            parts.append(f"{'node' if self.delegate is not None else 'instruction'} {self.node}")
        if self.value is not None:
            parts.append(f"value {self.value}")
        return ", ".join(parts) or "program"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong at one place. ``why`` says what the runtime does there, ``fix`` how to avoid it."""

    rule: Annotated[str, "The rule."]
    level: Annotated[Level, "How bad it is."]
    place: Annotated[Place, FLAT]
    what: Annotated[str, "What is wrong there."]
    why: Annotated[str, "What the runtime does about it."]
    fix: Annotated[str, "How to avoid it."]
