"""Whose kernels ran: an executor with kernels of its own has refsim's run what these refuse. Where none of its own ran,
equal bytes say nothing about it. All verbs that compare take the rule from here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from refsim.core import choices
from refsim.core.counted import counted
from refsim.core.errors import IncompleteError
from refsim.exec.executor import YOURS, Executor, Source
from refsim.exec.model import Model
from refsim.ops.base.spec import Call


@dataclass(frozen=True)
class Share:
    """How many calls ran on kernels of an executor's own, and how many on refsim's in their place, and why."""

    executor: str
    yours: Annotated[int, "Operators that ran on its own kernels."]
    ours: Annotated[int, "Operators that ran on refsim's, in their place."]
    why: Annotated[tuple[str, ...], "Why."] = ()

    @classmethod
    def of(cls, executor: str, sources: Iterable[Source]) -> Share:
        """The share in the calls that have these sources."""
        found = list(sources)
        ours = [source for source in found if source.whose != YOURS]
        why = dict.fromkeys(source.why for source in ours if source.why)
        return cls(executor, len(found) - len(ours), len(ours), tuple(why))

    @property
    def idle(self) -> bool:
        """Whether not one of its kernels ran."""
        return not self.yours

    def line(self) -> str:
        """What people should know; nothing if all calls ran on its own."""
        if not self.ours:
            return ""
        of = counted(self.yours + self.ours, "operator")
        return f"{self.executor}: {self.ours} of {of} ran on refsim's own kernels: {choices.listed(self.why)}"

    def check(self) -> None:
        """IncompleteError if not one of its kernels ran."""
        if self.idle:
            raise IncompleteError(
                f"executor {self.executor}",
                "not one of its own kernels ran",
                got="; ".join(self.why) or "no call",
                need="a call that it takes",
            )


def shares(model: Model, runners: Mapping[str, Executor]) -> list[Share]:
    """Those of the executors with kernels of their own, in the operators of a loaded model."""
    return [
        Share.of(name, [one.source(call) for call in _calls(model, one.flat)])
        for name, one in runners.items()
        if one.foreign
    ]


def _calls(model: Model, flat: bool) -> list[Call]:
    asked = (model.graphs[number].asked(node, flat) for number, node in model.nodes())
    return [call for call in asked if call is not None]
