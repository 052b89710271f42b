"""Scalars that are stored with another type than the one that the runtime reads."""

from __future__ import annotations

from collections.abc import Iterator

from refsim.check.conditions import literal
from refsim.check.finding import Level
from refsim.check.rule import Hit, Rule
from refsim.check.rules.refusals import refusal
from refsim.check.runtime import Runtime
from refsim.check.subject import Method
from refsim.ops.flat.base import misread
from refsim.ops.flat.call import FLAT


def misread_scalars(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for call in method.calls:
        row = FLAT.get(call.name)
        if row is None or refusal(call, runtime) is not None:
            continue  # nothing is computed at all
        args = tuple(literal(call, str(at)) for at in range(len(call.operator.args) - 1))
        said = misread(row, args)
        if said is not None:
            yield Hit(call.place(call.id("-1")), {"said": said})


RULES = (
    Rule(
        "scalar-type",
        Level.WARNING,
        "{said}",
        "the exporter stores scalars that are equal once, with the type of the first; the runtime reads the other as 0",
        "refsim mend FILE -o OUT stores each with its own type",
        misread_scalars,
    ),
)
