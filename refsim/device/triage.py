"""A device's run, judged: under the target that the file was exposed for, or else the one that fits it best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from refsim.core.errors import RefsimError
from refsim.core.qmath import CANONICAL, Profile
from refsim.device.bisect import bisect
from refsim.device.collect import Collected, ExposedPart, Given, collect, family_of, read
from refsim.device.exchanged import check_exchanged
from refsim.device.verdicts import Triage, judged, likeliest_profile
from refsim.formats.targets import TargetRow, distinct
from refsim.ops.base.target import Behaviour


def triage(
    given: Sequence[Given],
    inputs: Sequence[np.ndarray],
    limit: int = 10,
    profile: Profile | None = None,
    family: TargetRow | None = None,
    tell: Callable[[], object] = lambda: None,
    sure: bool = False,
    runtime: Behaviour = Behaviour(),  # noqa: B008
) -> Triage:
    """Read the outputs of one run of an exposed program and judge each operator.

    ``family`` is the device's, by default the one that the file was exposed for; if none is known, that under which
    fewer bytes differ. ``profile`` is that of the device; without it, and without one of the family, any that is known
    may explain what differs. ``tell`` is as for `bisect`. ``sure``: these are the inputs of the run; else others are
    looked for. Raises as `read` and `collect` do, and FormatError for outputs that are exchanged.
    """
    parts = read(given)
    found: list[Triage] = []
    family, why = family_of(parts, family)
    profile = profile or (None if family is None else family.profile)
    for row in distinct() if family is None else [family]:
        collected = collect(parts, row.target(CANONICAL, runtime))
        if found and _layouts(collected) == _layouts(found[0].collected):
            continue  # the file leaves nothing open
        rows = bisect(
            collected.model,
            collected,
            inputs,
            tell,
            unsaid=not sure,
            profile=profile,
            device=True,
            limit=limit,
        )
        verdicts = tuple(judged(rows, profile))
        refused = frozenset(value for part in parts for value in part.manifest.left_out)
        chosen = likeliest_profile(verdicts) if profile is None else profile.name
        found.append(Triage(verdicts, chosen, row.name, collected, refused, why))
        if found[-1].same:
            break
    best = min(found, key=_differing)
    if family is not None:
        best = replace(best, why=why + _better(best, parts, inputs, runtime))
    elif any(_differing(one) > _differing(best) for one in found):
        others = ", ".join(one.target for one in found if one is not best)
        best = replace(best, why=f"with its layouts fewer bytes differ than with those of {others}")
    rows = [v.row for v in best.verdicts]
    check_exchanged(best.collected.model, rows, parts[0].where, "outputs", "all outputs in order")
    return best


def _better(
    found: Triage, parts: Sequence[ExposedPart], inputs: Sequence[np.ndarray], runtime: Behaviour
) -> str:
    """The target under whose layouts fewer bytes differ than under those of the one that was taken; empty if none."""
    differing = {found.target: _differing(found)}
    for row in distinct() if not found.same else ():
        if row.name != found.target:
            try:
                collected = collect(parts, row.target(CANONICAL, runtime))
            except RefsimError:  # these outputs are not of this target's layouts
                continue
            if _layouts(collected) != _layouts(found.collected):
                rows = bisect(collected.model, collected, inputs, explained=0, limit=1)
                differing[row.name] = sum(r.judged.differing for r in rows if r.judged is not None)
    best = min(differing, key=lambda name: differing[name])
    return "" if best == found.target else f"; with the layouts of {best} fewer bytes differ"


def _differing(found: Triage) -> int:
    return sum(v.report.differing for v in found.verdicts if v.report is not None)


def _layouts(collected: Collected) -> list[object]:
    return [info["layout"] for info in collected.infos.values()]
