"""What a rule says of a place in a file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Level(Enum):
    """How bad a finding is. ``ERROR``: the file does not load or stops. ``WARNING``: it runs, and values are wrong."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Place:
    """Where: a method, a delegate of it, a node of that, a value. None where it does not apply."""

    method: str | None = None
    delegate: int | None = None
    node: int | None = None
    operator: str | None = None
    value: int | None = None

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

    rule: str
    level: Level
    place: Place
    what: str
    why: str
    fix: str

    def as_json(self) -> dict[str, Any]:
        """The finding as plain data, the parts of its place beside it."""
        return {
            "rule": self.rule,
            "level": self.level.value,
            **vars(self.place),
            "what": self.what,
            "why": self.why,
            "fix": self.fix,
        }
