"""The verdict about a device's run: each operator the same, legal or wrong; and where several runs part."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from refsim.bytediff import Report
from refsim.bytediff.evidence import Evidence
from refsim.bytediff.versions import judge
from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.core.counted import form
from refsim.core.errors import FormatError, RefsimError
from refsim.core.qmath import CANONICAL, PROFILES, Profile
from refsim.device.bisect import Row, bisect
from refsim.device.collect import Collected, Given, Part, collect, family_of, read
from refsim.exec.factory import executor_named
from refsim.exec.trace import Traced, trace
from refsim.formats.cases import ACTUAL, contents
from refsim.formats.dumps import value_name
from refsim.formats.targets import TargetRow, distinct

SAME, LEGAL, WRONG, FOLLOWS, UNKNOWN = "same", "legal", "wrong", "unknown inputs", "not exposed"


@dataclass(frozen=True)
class Verdict:
    """One operator. ``profiles``: those that explain every byte of it that differs."""

    row: Row
    kind: str
    profiles: tuple[str, ...] = ()

    @property
    def report(self) -> Report | None:
        """What is known about its bytes, where some differ."""
        found = self.row.judged
        return found if found is not None and found.differing else None

    @property
    def text(self) -> str:
        """``same``; ``legal 1 (nvidia)``; ``wrong 12``."""
        count = self.report.differing if self.report is not None else 0
        if self.kind == LEGAL:
            return f"legal {count} ({', '.join(self.profiles)})"
        return self.kind if self.kind in (SAME, UNKNOWN, FOLLOWS) else f"{self.kind} {count}"

    @property
    def cause(self) -> str:
        """The likeliest cause in words; empty if there is none."""
        if self.row.cause or self.report is None:
            return self.row.cause
        return str(self.report.causes[0]) if self.report.causes else ""


@dataclass(frozen=True)
class Triage:
    """All operators of one run. ``profile`` explains most of what differs; ``target`` is how layouts were chosen.

    ``why`` says where the target is from, unless it is the default. ``refused``: the values that no exposed file can
    hand out.
    """

    verdicts: tuple[Verdict, ...]
    profile: str
    target: str
    collected: Collected
    refused: frozenset[str] = frozenset()
    why: str = ""

    @property
    def wrong(self) -> list[Verdict]:
        return [v for v in self.verdicts if v.kind == WRONG]

    @property
    def suspects(self) -> list[Verdict]:
        """The operators that differ by themselves, legally or not."""
        return [v for v in self.verdicts if v.kind in (LEGAL, WRONG)]

    @property
    def doubted(self) -> Row | None:
        """The operator that may have had other inputs than these, so that nobody can judge it; see `unblamed`."""
        return next((v.row for v in self.verdicts if v.row.doubt), None)

    @property
    def same(self) -> bool:
        """Whether nothing is wrong that was judged."""
        return not self.wrong and self.doubted is None

    @property
    def needed(self) -> list[str]:
        """The int8 buffers of the run that an exposed file can hand out: a comparison must not leave them out."""
        return [v.row.output for v in self.verdicts if v.row.is_int8 and v.row.output not in self.refused]

    @property
    def judged(self) -> frozenset[str]:
        """The buffers whose operators were judged, or would have been if the device's inputs were known."""
        return frozenset(
            v.row.output for v in self.verdicts if v.row.doubt or v.kind not in (UNKNOWN, FOLLOWS)
        )

    def unknown_inputs(self, v: Verdict) -> list[str]:
        """What an operator reads and no output holds, so that it was compared with the exact run and has no case."""
        if v.row.alone is not None:
            return []
        nodes = self.collected.model.graphs[v.row.delegate].nodes
        read = next(node for node in nodes if node.number == v.row.node and node.outputs).inputs.values()
        return [
            name
            for name in dict.fromkeys(value_name(v.row.delegate, n) for n in read)
            if name not in self.collected
        ]

    def cases(self) -> dict[str, dict[str, bytes]]:
        """A case for each suspect whose inputs are known, by the name of its output, with the device's bytes."""
        found = {}
        for v in self.suspects:
            own, held = v.row.own, self.collected.held.get(v.row.output)
            if own is not None and isinstance(held, PackedBuffer):
                note = (
                    f"node {v.row.node} of delegate {v.row.delegate} on the inputs that it had on the device"
                )
                right = own.call.expected(own.inputs)
                raw = self.collected.beside(v.row.output, right)
                found[v.row.output] = contents(own, right, note) | {ACTUAL: raw.tobytes()}
        return found


@dataclass(frozen=True)
class Repeats:
    """Several runs with the same inputs. ``groups``: numbers of the runs that gave the same bytes everywhere.

    ``first`` is the first value whose elements part, or without one whose padding does; ``elements`` of it differ
    between some of them, of ``of``, and so do ``padding`` bytes of padding. ``pattern`` says what the elements have
    in common, ``region`` which tiles, lanes or channels they fill. ``right``: the groups in which the operator of
    that value is right, or legal, each on its own inputs; ``unjudged``: those in which they are unknown. ``judged``
    is a run in which it is wrong, with whose inputs the pattern was sought; None without one. ``padding_first`` is a
    value before it whose padding alone parts. ``shown`` is the run with most wrong operators. ``verdicts``: value ->
    in which runs its operator is what, where the runs do not agree; ``elsewhere``: value -> the first run in which
    its operator is wrong, and the likeliest cause there, where it is not in the run that is shown.
    """

    groups: tuple[tuple[int, ...], ...]
    first: str = ""
    operator: str = ""
    elements: int = 0
    of: int = 0
    padding: int = 0
    pattern: tuple[str, ...] = ()
    region: str = ""
    right: tuple[int, ...] = ()
    unjudged: tuple[int, ...] = ()
    judged: int | None = None
    padding_first: str = ""
    shown: int = 0
    verdicts: Mapping[str, str] = field(default_factory=dict)
    elsewhere: Mapping[str, tuple[int, str]] = field(default_factory=dict)


def triage(
    given: Sequence[Given],
    inputs: Sequence[np.ndarray],
    limit: int = 10,
    profile: Profile | None = None,
    family: TargetRow | None = None,
    tell: Callable[[], object] = lambda: None,
) -> Triage:
    """Read the outputs of one run of an exposed program and judge each operator.

    ``family`` is the device's; without it, it is the one that the file was exposed for. If none is known, and the file
    leaves layouts to the runtime, that choice is taken under which fewer bytes differ. ``profile`` is that of the
    device; without it, and without one of the family, any that is known may explain what differs. ``tell`` is as for
    `bisect`.
    Raises as `read` and `collect` do, and FormatError for outputs that are exchanged.
    """
    parts = read(given)
    found: list[Triage] = []
    family, why = family_of(parts, family)
    profile = profile or (None if family is None else family.profile)
    for row in distinct() if family is None else [family]:
        collected = collect(parts, row.target(CANONICAL))
        if found and _layouts(collected) == _layouts(found[0].collected):
            continue  # the file leaves nothing open
        rows = bisect(
            collected.model, collected, inputs, tell, unsaid=True, profile=profile, device=True, limit=limit
        )
        verdicts = tuple(_verdicts(rows, profile))
        refused = frozenset(value for part in parts for value in part.manifest.left_out)
        chosen = _profile(verdicts) if profile is None else profile.name
        found.append(Triage(verdicts, chosen, row.name, collected, refused, why))
        if found[-1].same:
            break
    best = min(found, key=_differing)
    if family is not None:
        best = replace(best, why=why + _better(best, parts, inputs))
    elif any(_differing(one) > _differing(best) for one in found):
        others = ", ".join(one.target for one in found if one is not best)
        best = replace(best, why=f"with its layouts fewer bytes differ than with those of {others}")
    _check_exchanged([v.row for v in best.verdicts], parts[0].where)
    return best


def _better(found: Triage, parts: Sequence[Part], inputs: Sequence[np.ndarray]) -> str:
    """The target under whose layouts fewer bytes differ than under those of the one that was taken; empty if none."""
    differing = {found.target: _differing(found)}
    for row in distinct() if not found.same else ():
        if row.name != found.target:
            try:
                collected = collect(parts, row.target(CANONICAL))
            except RefsimError:  # these outputs are not of this target's layouts
                continue
            if _layouts(collected) != _layouts(found.collected):
                rows = bisect(collected.model, collected, inputs, explained=0, unsaid=True, limit=1)
                differing[row.name] = sum(r.judged.differing for r in rows if r.judged is not None)
    best = min(differing, key=lambda name: differing[name])
    return "" if best == found.target else f"; with the layouts of {best} fewer bytes differ"


def _differing(found: Triage) -> int:
    return sum(v.report.differing for v in found.verdicts if v.report is not None)


def _layouts(collected: Collected) -> list[object]:
    return [info["layout"] for info in collected.infos.values()]


def _verdicts(rows: Iterable[Row], profile: Profile | None) -> Iterable[Verdict]:
    diverged = False
    for row in rows:
        judged = row.judged
        if judged is None:
            yield Verdict(row, UNKNOWN)
        elif not judged.differing:
            yield Verdict(row, SAME)
        elif row.doubt or (row.alone is None and diverged):
            yield Verdict(row, FOLLOWS)
        else:
            names = tuple(
                name
                for name, (explained, _) in judged.legal.items()
                if explained == judged.differing and (profile is None or name == profile.name)
            )
            yield Verdict(row, LEGAL if names else WRONG, names)
        diverged |= row.run is not None and row.run.differing > 0


def _profile(verdicts: Iterable[Verdict]) -> str:
    """The profile that explains most of what differs, less what it contradicts."""
    scores = dict.fromkeys(PROFILES, 0)
    for v in verdicts:
        if v.kind in (LEGAL, WRONG) and v.report is not None:
            for name in PROFILES:
                explained, contradicted = v.report.legal.get(name, (0, 0))
                scores[name] += explained - contradicted
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] > 0 else CANONICAL.name


def _elements(cells: np.ndarray, kinds: np.ndarray) -> bytes:
    return hashlib.sha256(cells[kinds == ByteKind.VALUE].tobytes()).digest()


def _check_exchanged(rows: Sequence[Row], where: str) -> None:
    """FormatError if two outputs hold exactly what the other should."""
    want: dict[tuple[object, bytes], Row] = {}
    got: dict[str, tuple[object, bytes]] = {}
    for row in rows:
        if row.run is not None and row.run.differing:
            ev = row.run.evidence
            want[(ev.desc, _elements(ev.want, ev.kinds))] = row
            got[row.output] = (ev.desc, _elements(ev.got, ev.kinds))
    for name, key in got.items():
        other = want.get(key)
        if other is not None and other.output != name:
            back = want.get(got[other.output])
            if back is not None and back.output == name:
                raise FormatError(
                    where, "two outputs are exchanged", need="all outputs in order",
                    got=f"{name} where {other.output} should be, and the other way round",
                )  # fmt: skip


#: Why an output may hold what another value should.
OTHER_FILE = "the outputs may be those of a file that exposes other values"


def taken_for(found: Triage, inputs: Sequence[np.ndarray]) -> list[str]:
    """Of each wrong operator whose output holds exactly what another value should: that it does, as a sentence.

    The outputs of a file that exposes other values look so, if these have the same shapes. Nothing in them says of
    which file they are.
    """
    held: dict[tuple[object, bytes], str] = {}
    for v in found.wrong:
        ev = None if v.report is None else v.report.evidence
        if ev is not None and len(np.unique(ev.got[ev.kinds == ByteKind.VALUE])) > 1:
            held[ev.desc, _elements(ev.got, ev.kinds)] = v.row.output
    notes = []

    def visit(traced: Traced) -> None:
        for name, buffer in traced.outputs.items():
            if isinstance(buffer, PackedBuffer):
                ev = Evidence(buffer, buffer, np.ones(0, bool))
                value = held.get((ev.desc, _elements(ev.got, ev.kinds)))
                if value is not None and value != name:
                    notes.append(f"{value} holds exactly the right bytes of {name}: {OTHER_FILE}")

    if held:
        trace(found.collected.model, inputs, executor_named("cpu"), visit)
    return notes


# --- several runs ----------------------------------------------------------------------------------------


def repeats(runs: Sequence[Triage]) -> Repeats:
    """Which runs gave the same bytes, and where the others part from them."""
    groups: dict[bytes, list[int]] = {}
    for number, run in enumerate(runs):
        groups.setdefault(_digest(run.collected), []).append(number)
    numbered = tuple(tuple(members) for members in groups.values())
    if len(numbered) == 1:
        return Repeats(numbered)
    distinct = [runs[members[0]].collected for members in numbered]
    parted = [name for name in distinct[0].held if len({_raw(one, name) for one in distinct}) > 1]
    first = next((name for name in parted if len({_values(one.held[name]) for one in distinct}) > 1), "")
    spare = "" if first == next(iter(parted), "") else parted[0]
    own = len({b"".join(array.tobytes() for array in one.own) for one in distinct}) > 1
    if not first and own:
        found = Repeats(numbered, first="an output that no delegate gives")
    else:
        found = _parted(numbered, [runs[members[0]] for members in numbered], first or spare)
    before = spare if spare != found.first else ""
    shown = worst(runs)
    return replace(
        found, padding_first=before, shown=shown, verdicts=_disagreed(runs), elsewhere=_elsewhere(runs, shown)
    )


def worst(runs: Sequence[Triage]) -> int:
    """The number of the run with most wrong operators; of equal ones the first."""
    return max(range(len(runs)), key=lambda number: (len(runs[number].wrong), len(runs[number].suspects)))


def _disagreed(runs: Sequence[Triage]) -> dict[str, str]:
    """Value -> the verdicts about its operator other than `SAME`, each with its runs, where they are not all alike."""
    texts: dict[str, dict[str, list[str]]] = {}
    for number, run in enumerate(runs):
        for v in run.verdicts:
            texts.setdefault(v.row.output, {}).setdefault(v.text, []).append(str(number))
    return {
        value: ", ".join(
            f"{text} in {form(len(numbers), 'run', 'runs')} {', '.join(numbers)}"
            for text, numbers in told.items()
            if text != SAME
        )
        for value, told in texts.items()
        if len(told) > 1
    }


def _elsewhere(runs: Sequence[Triage], shown: int) -> dict[str, tuple[int, str]]:
    """Value -> (run, cause): the first run in which its operator is wrong, where it is not in the run ``shown``."""
    here = {v.row.output for v in runs[shown].wrong}
    found: dict[str, tuple[int, str]] = {}
    for number, run in enumerate(runs):
        for v in run.wrong:
            if v.row.output not in here:
                found.setdefault(v.row.output, (number, v.cause))
    return found


def _values(held: PackedBuffer | np.ndarray) -> bytes:
    """The bytes of the elements, without padding."""
    if not isinstance(held, PackedBuffer):
        return held.tobytes()
    ev = Evidence(held, held, np.ones(0, bool))
    return _elements(ev.got, ev.kinds)


def _raw(collected: Collected, name: str) -> bytes:
    held = collected.held[name]
    return held.raw.tobytes() if isinstance(held, PackedBuffer) else held.tobytes()


def _digest(collected: Collected) -> bytes:
    whole = hashlib.sha256()
    for name in collected.held:
        whole.update(_raw(collected, name))
    for array in collected.own:
        whole.update(array.tobytes())
    return whole.digest()


def _parted(groups: tuple[tuple[int, ...], ...], distinct: Sequence[Triage], name: str) -> Repeats:
    """What differs between the groups in the first value at which they part."""
    held = [run.collected.held[name] for run in distinct]
    found = [next((v for v in run.verdicts if v.row.output == name), None) for run in distinct]
    info = distinct[0].collected.infos[name]
    operator = found[0].row.operator if found[0] is not None else str(info.get("operator", ""))
    buffers = [one for one in held if isinstance(one, PackedBuffer)]
    if len(buffers) < len(held):
        cells = np.stack([np.asarray(one).reshape(-1).view(_plain(one)) for one in held])
        apart = (cells != cells[0]).any(axis=0)
        return Repeats(groups, name, operator, int(apart.sum()), apart.size)
    kinds = [UNKNOWN if v is None else v.kind for v in found]
    wrong = next((n for n, v in enumerate(found) if v is not None and v.kind == WRONG and v.row.own), None)
    chosen = found[wrong or 0]
    judged = judge(buffers, None if chosen is None else chosen.row.own)
    return Repeats(
        groups, name, operator, judged.flips, judged.elements, judged.padding, judged.pattern,
        str(judged.region or ""), right=tuple(n for n, kind in enumerate(kinds) if kind in (SAME, LEGAL)),
        unjudged=tuple(n for n, kind in enumerate(kinds) if kind in (UNKNOWN, FOLLOWS)),
        judged=None if wrong is None else groups[wrong][0],
    )  # fmt: skip


def _plain(held: PackedBuffer | np.ndarray) -> np.dtype[np.generic]:
    """A dtype of the same width in which bits are compared: NaN equals itself."""
    return np.dtype(f"u{np.asarray(held).dtype.itemsize}")
