"""A rule: what it looks for, and what it says of every place where it finds that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from refsim.check.finding import Finding, Level, Place
from refsim.check.runtime import Runtime
from refsim.check.subject import Method


class _Facts(dict[str, object]):
    """What a sentence is filled in with; an argument that a call does not have is nothing."""

    def __missing__(self, key: str) -> str:
        return "nothing"


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
            facts = _Facts(hit.facts)
            what, why, fix = (text.format_map(facts) for text in (self.what, self.why, self.fix))
            yield Finding(self.name, self.level, hit.place, what if hit.what is None else hit.what, why, fix)
