"""Makes a failing case smaller while it still fails: shapes, channels, window and parameters towards the plainest.

It is greedy: of the smaller cases the first that still fails is kept, until none does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, replace
from typing import Any

from refsim.core.errors import RefsimError
from refsim.core.less import less
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS

#: When to stop although there may be a smaller case: calls tried, and seconds.
MOST_TRIED, SECONDS = 600, 10.0


def shrunk(case: Case, fails: Callable[[Case], bool], end: float | None = None) -> Case:
    """The smallest case found that ``fails``. One that cannot be bound, or raises RefsimError there, does not count.

    ``end``: the time of `time.monotonic` after which nothing more is tried, SECONDS from now if it is not given.
    """
    end = time.monotonic() + SECONDS if end is None else end
    tried, seen = 0, {str(case)}
    smaller = True
    while smaller:
        smaller = False
        for candidate in candidates(case):
            if str(candidate) in seen:
                continue
            seen.add(str(candidate))
            if tried == MOST_TRIED or time.monotonic() > end:
                return case
            tried += 1
            if _holds(fails, candidate):
                case, smaller = candidate, True
                break
    return case


def _holds(fails: Callable[[Case], bool], case: Case) -> bool:
    try:
        return fails(case)
    except RefsimError:
        return False


def candidates(case: Case) -> Iterator[Case]:
    """Simpler cases, those that take most away first. They need not be legal."""
    defaults = {row.name: row.default for row in fields(OPS[case.op].params) if row.default is not MISSING}
    yield from _shapes(case)
    yield from (replace(case, features=row) for row in _plainer(case.features, {"bias": False}))
    yield from (replace(case, params=row) for row in _plainer(case.params, defaults))
    if case.style != "random":
        yield replace(case, style="random", poison=False)
    if case.poison:
        yield replace(case, poison=False)
    if case.seed:
        yield replace(case, seed=0)


def _shapes(case: Case) -> Iterator[Case]:
    """Each dim of all inputs that share its size made smaller, then of one input alone."""
    rank = max((len(shape) for shape, _ in case.inputs.values()), default=0)
    for axis in range(-rank, 0):
        sizes = {name: shape[axis] for name, (shape, _) in case.inputs.items() if len(shape) >= -axis}
        for size in dict.fromkeys(sizes.values()):
            names = [name for name, held in sizes.items() if held == size]
            for smaller in less(size):
                yield _resized(case, names, axis, smaller)
                if len(names) > 1:
                    yield from (_resized(case, [name], axis, smaller) for name in names)


def _resized(case: Case, names: list[str], axis: int, size: int) -> Case:
    inputs = dict(case.inputs)
    for name in names:
        shape, layout = inputs[name]
        changed = list(shape)
        changed[axis] = size
        inputs[name] = (tuple(changed), layout)
    return replace(case, inputs=inputs)


def _plainer(held: Mapping[str, Any], plain: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The same values by name, with one of them plainer."""
    for key, value in held.items():
        options = [plain[key]] if key in plain else []
        for option in (*options, *_simpler(value)):
            if option != value:
                yield {**held, key: option}


def _simpler(value: Any) -> Iterator[Any]:
    """Simpler values of the same type, as far as a type has any."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int):
        yield from (0, 1) if value > 1 else (0,)
        yield from less(value, 2) if value > 2 else ()
        if value < 0:
            yield -1
    elif isinstance(value, float):
        yield from (1.0, 0.5) if value != 1.0 else ()
    elif isinstance(value, tuple):
        yield type(value)(min(item, 1) for item in value) if all(isinstance(i, int) for i in value) else value
        for at, item in enumerate(value):
            yield from ((*value[:at], one, *value[at + 1 :]) for one in _simpler(item))
