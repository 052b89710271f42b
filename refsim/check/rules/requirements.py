"""The rows of a runtime's description: what each operator checks when a graph is built, and what it gets wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from refsim.check.conditions import describe
from refsim.check.finding import Level
from refsim.check.rule import Hit, Rule
from refsim.check.runtime import Runtime
from refsim.check.subject import Call, Method
from refsim.check.words import answer


class _Described(Mapping[str, str]):
    """``{operator}``, and ``{a0}``, ``{a-1}``: the arguments, described when a sentence names them."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def __getitem__(self, name: str) -> str:
        if name == "operator":
            return self._call.name
        if not name.startswith("a"):
            raise KeyError(name)
        return describe(self._call, name[1:])

    def __iter__(self) -> Iterator[str]:
        yield "operator"
        yield from (f"a{at}" for at in range(-1, len(self._call.operator.args)))

    def __len__(self) -> int:
        return len(self._call.operator.args) + 2


def breaks(call: Call, row: Mapping[str, Any]) -> bool:
    """Whether a call is of a kind that the row is about (all of ``when``) and meets none of what it needs (``need``).

    What cannot be said of a call, because it lacks an argument, is not held against it.
    """
    if not all(answer(call, condition) for condition in row.get("when", ())):
        return False
    need = row.get("need", ())
    return not any(answer(call, condition) is not False for condition in need)


def refused(call: Call, runtime: Runtime) -> bool:
    """Whether the runtime does not load the call, by one of its requirements."""
    rows = (row for row in runtime.requirements if call.name in row["operators"])
    return any(Level(row["level"]) is Level.ERROR and breaks(call, row) for row in rows)


def _find(row: Mapping[str, Any]) -> Callable[[Method, Runtime], Iterator[Hit]]:
    operators = frozenset(row["operators"])

    def find(method: Method, runtime: Runtime) -> Iterator[Hit]:
        for call in method.calls:
            if call.name in operators and breaks(call, row):
                yield Hit(call.place(call.id(row.get("at", "-1"))), dict(_Described(call)))

    return find


def rules(runtime: Runtime) -> tuple[Rule, ...]:
    """A rule for each row."""
    return tuple(
        Rule(row["rule"], Level(row["level"]), row["what"], row["why"], row["fix"], _find(row))
        for row in runtime.requirements
    )
