"""Cases of the corpus for kernels on flat tensors: what a host of such kernels refuses is changed until it takes it.

A case keeps its name: the same changes are made whenever it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from refsim.core.errors import RefsimError
from refsim.golden.telling import TellingCase
from refsim.ops.base.case import Case
from refsim.ops.base.spec import Call

#: How far a size grows until a call is taken, and how many changes of a case are tried.
GROWN, MOST = 4, 96
#: Parameters that are plain in calls that such a runtime takes.
_PLAIN = {"activation": "none", "groups": 1}


def fitted(candidate: TellingCase, takes: Callable[[Call], bool]) -> TellingCase:
    """The case with flat tensors, changed as little as makes its call taken; with packed ones if nothing does."""
    flat = replace(candidate, flat=True)
    if candidate.case is None or takes(candidate.bound.call):
        return flat
    for number, changes in enumerate(_changes(candidate.case)):
        if number == MOST:
            break
        other = replace(flat, case=candidate.case.changed(**changes))
        try:
            if takes(other.packed.call):
                return other
        except RefsimError:  # these sizes do not go together
            continue
    return candidate


def _changes(case: Case) -> Iterator[dict[str, Any]]:
    """Plain parameters, then more columns, then more channels."""
    plain = {name: value for name, value in _PLAIN.items() if case.params.get(name, value) != value}
    outputs = case.features.get("out_channels")
    grouped = {name: value for name, value in plain.items() if name != "groups"}
    for base in (plain, grouped) if "groups" in plain else (plain,):
        for more, deeper, wider in product(range(GROWN), range(GROWN), range(GROWN)):
            changes = dict(base)
            for name, (shape, _) in case.inputs.items():
                grown = list(shape)
                grown[-1] += wider
                if len(grown) > 2:
                    grown[-3] += deeper
                    if "groups" not in changes and case.params.get("groups") == shape[-3]:
                        changes["groups"] = grown[-3]
                changes[name] = tuple(grown)
            if outputs is not None:
                changes["out_channels"] = outputs + more
            elif more:
                continue
            yield changes
