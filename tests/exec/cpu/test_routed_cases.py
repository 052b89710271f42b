"""The cases for the routes of products, on every route that this machine can compute: tiles emulated, others asked for.

`refsim golden verify` runs them on the routes that a machine takes by itself; `refsim golden coverage` counts on which
routes they fall on every instruction set.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest

from refsim.exec.cpu import NativeExecutor, routes
from refsim.exec.cpu.amx import prepack as amx
from refsim.exec.cpu.amx import tiles
from refsim.exec.cpu.isa import ISAS, cpu
from refsim.golden import route_coverage, rules
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.prepared import Prepared

ROUTED = [name for name, rule in rules.RULES.items() if any(hard.kind == "routes" for hard in rule.hard)]
HERE = cpu().isa
#: Routes that may be asked for, and why this machine cannot take one.
FORCED: dict[str, str | None] = {
    routes.AMX_EMULATED: None,
    **dict.fromkeys(route_coverage.MATRICES),
    routes.AMX: tiles.why_not(HERE),
    "gemm8": None if HERE.maddubs else f"{HERE.name} has no such products",
}
AMX = next(row for row in ISAS if row.tiles)


@cache
def bound(op: str) -> list[BoundCase]:
    rule = rules.RULES[op]
    numbers = range(rule.spread, rule.count)
    return [bind(rules.case(op, n)) for n in numbers if rule.hard_of(n)[0].kind == "routes"]  # type: ignore[index]


@cache
def expected(op: str) -> list[np.ndarray]:
    return [case.call.expected(case.inputs).raw for case in bound(op)]


@pytest.mark.few(7)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "route",
    [
        pytest.param(route, marks=pytest.mark.skipif(reason is not None, reason=str(reason)))
        for route, reason in FORCED.items()
    ],
)
def test_each_route_gives_the_bytes_of_the_definition(route: str, threads: int) -> None:
    executor = NativeExecutor(threads, {"*": route})
    taken: Counter[str] = Counter()
    for op in ROUTED:
        for case, right in zip(bound(op)[threads - 1 :: 3], expected(op)[threads - 1 :: 3], strict=True):
            prepared = Prepared(case.call)
            if executor.choose(prepared).route != route:
                continue
            taken[op] += 1
            assert np.array_equal(executor.run_prepared(prepared, case.inputs).raw, right), str(case.case)
    assert taken.total() > 20, taken


def test_tiles_that_take_the_constants_of_group_0_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No case showed this before: those that tiles took had one group."""
    right = amx.in_panels

    def first(rows: np.ndarray, groups: int, panel: int) -> np.ndarray:
        each = right(rows, groups, panel).reshape(groups, -1)
        return np.ascontiguousarray(np.broadcast_to(each[:1], each.shape)).reshape(-1)

    monkeypatch.setattr(amx, "in_panels", first)
    executor, op = NativeExecutor(1, {"*": routes.AMX_EMULATED}), "q8ta_conv2d_general"
    wrong = {
        case.call.params.groups > 1
        for case, bytes_ in zip(bound(op), expected(op), strict=True)
        if routes.choose(case.call, isa=AMX).route == routes.AMX
        and not np.array_equal(executor.run_prepared(Prepared(case.call), case.inputs).raw, bytes_)
    }
    assert wrong == {True}
