"""What the sanitizers of an executor say of a kernel, beyond its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from refsim.core.meanings import ModuleName

Triple = tuple[int, int, int]

OUTSIDE, FOREIGN, UNFILLED = "write out of bounds", "foreign read", "uninitialized read"
TWICE, SAME_TWICE, ORDER, UNSTABLE = "two writers", "same bits twice", "order of work", "not repeatable"
NOT_SEEN = "not looked at"
#: Worth knowing, and no fault.
HARMLESS = (SAME_TWICE, NOT_SEEN)


@dataclass(frozen=True)
class Invocation:
    """An invocation: its workgroup, and its place in it."""

    workgroup: Annotated[Triple, "Its workgroup."]
    invocation: Annotated[Triple, "Its place in that."]

    def __str__(self) -> str:
        return f"workgroup {self.workgroup} invocation {self.invocation}"


@dataclass(frozen=True)
class KernelFinding:
    """One thing that a kernel does and must not do.

    ``kind`` is one of the words above. ``buffer`` is what stands at binding ``binding``; ``word`` is the first in it of
    ``count`` that this is about (-1 and less: in front of it); ``element`` is (n, c, h, w) where it holds one.
    ``workers`` are the invocations that wrote it.
    """

    kind: Annotated[str, "What kind of fault it is."]
    module: ModuleName
    what: Annotated[str, "What it does, in words."]
    binding: Annotated[int, "The binding; -1 if it is about none."] = -1
    buffer: Annotated[str, "What stands at that binding."] = ""
    word: Annotated[int | None, "The first word in it; in front of it below 0."] = None
    count: Annotated[int, "How many words it is about."] = 0
    element: Annotated[tuple[int, ...] | None, "The element there: n, c, h, w."] = None
    workers: Annotated[tuple[Invocation, ...], "The invocations that wrote it."] = ()

    @property
    def harmless(self) -> Annotated[bool, "Whether it is worth knowing, and no fault."]:
        return self.kind in HARMLESS

    def __str__(self) -> str:
        place = f"; binding {self.binding} ({self.buffer}), word {self.word}" if self.word is not None else ""
        place += f" and {self.count - 1} more" if self.count > 1 else ""
        place += f", element {self.element}" if self.element is not None else ""
        place += f", {' and '.join(map(str, self.workers))}" if self.workers else ""
        return f"{self.kind}: {self.module} {self.what}{place}"
