"""A rule: what it looks for, and what it says of every place where it finds that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from refsim.check.finding import Finding, Level, Place
from refsim.check.runtime import Runtime
from refsim.check.subject import Method


@dataclass(frozen=True)
class Hit:
    """A place where a rule applies, and the facts that its sentence names. ``what`` replaces the sentence."""

    place: Place
    facts: Mapping[str, object] = field(default_factory=dict)
    what: str | None = None


@dataclass(frozen=True)
class Rule:
    """One row of the table. ``find`` yields the hits; in ``what``, ``why`` and ``fix`` stand their facts in braces."""

    name: str
    level: Level
    what: str
    why: str
    fix: str
    find: Callable[[Method, Runtime], Iterable[Hit]]

    def findings(self, method: Method, runtime: Runtime) -> Iterator[Finding]:
        for hit in self.find(method, runtime):
            said = hit.what if hit.what is not None else self.what.format(**hit.facts)
            fix, why = (text.format(**hit.facts) for text in (self.fix, self.why))
            yield Finding(self.name, self.level, hit.place, said, why, fix)
