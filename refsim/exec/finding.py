"""What the sanitizers of an executor say of a kernel, beyond its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Triple = tuple[int, int, int]

OUTSIDE, FOREIGN, UNFILLED = "write out of bounds", "foreign read", "uninitialized read"
TWICE, SAME_TWICE, ORDER, UNSTABLE = "two writers", "same bits twice", "order of work", "not repeatable"
NOT_SEEN = "not looked at"
#: Worth knowing, and no fault.
HARMLESS = (SAME_TWICE, NOT_SEEN)


@dataclass(frozen=True)
class Invocation:
    """An invocation: its workgroup, and its place in it."""

    workgroup: Triple
    local: Triple

    def __str__(self) -> str:
        return f"workgroup {self.workgroup} invocation {self.local}"


@dataclass(frozen=True)
class KernelFinding:
    """One thing that a kernel does and must not do.

    ``kind`` is one of the words above. ``buffer`` is what stands at binding ``binding``; ``word`` is the first in it of
    ``count`` that this is about (-1 and less: in front of it); ``element`` is (n, c, h, w) where it holds one.
    ``workers`` are the invocations that wrote it.
    """

    kind: str
    module: str
    what: str
    binding: int = -1
    buffer: str = ""
    word: int | None = None
    count: int = 0
    element: tuple[int, ...] | None = None
    workers: tuple[Invocation, ...] = ()

    @property
    def harmless(self) -> bool:
        return self.kind in HARMLESS

    def __str__(self) -> str:
        place = f"; binding {self.binding} ({self.buffer}), word {self.word}" if self.word is not None else ""
        place += f" and {self.count - 1} more" if self.count > 1 else ""
        place += f", element {self.element}" if self.element is not None else ""
        place += f", {' and '.join(map(str, self.workers))}" if self.workers else ""
        return f"{self.kind}: {self.module} {self.what}{place}"

    def as_json(self) -> dict[str, Any]:
        workers = [{"workgroup": list(one.workgroup), "invocation": list(one.local)} for one in self.workers]
        element = None if self.element is None else list(self.element)
        return {**vars(self), "element": element, "workers": workers, "harmless": self.harmless}
