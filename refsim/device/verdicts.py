"""The verdict about one run of a device: each operator the same, legal or wrong, or not to be judged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

from refsim.bytediff import Report
from refsim.core.buffer import PackedBuffer
from refsim.core.plain import FLAT
from refsim.core.qmath import CANONICAL, PROFILES, Profile
from refsim.device.collect import Collected
from refsim.device.dumped import Row
from refsim.device.floats import OWN, UNBOUNDED
from refsim.formats.cases import ACTUAL, contents
from refsim.formats.dumps import value_name

SAME, LEGAL, WRONG, FOLLOWS, UNKNOWN = "same", "legal", "wrong", "unknown inputs", "not exposed"


@dataclass(frozen=True)
class OperatorVerdict:
    """One operator. ``profiles``: those that explain every byte of it that differs."""

    row: Annotated[Row, FLAT]
    verdict: Annotated[str, "same, legal, wrong, unknown inputs or not exposed."]
    profiles: Annotated[tuple[str, ...], "Profiles that explain every element that differs."] = ()

    @property
    def own_inputs(self) -> Annotated[bool, "Whether it was judged on the inputs that it had."]:
        return self.row.alone is not None

    @property
    def report(self) -> Report | None:
        """What is known about its bytes, where some differ."""
        found = self.row.judged
        return found if found is not None and found.differing else None

    @property
    def text(self) -> str:
        """``same``; ``legal 1 (nvidia)``; ``wrong 12``."""
        count = self.report.differing if self.report is not None else 0
        if self.verdict == LEGAL:
            return f"legal {count} ({', '.join(self.profiles)})"
        return self.verdict if self.verdict in (SAME, UNKNOWN, FOLLOWS) else f"{self.verdict} {count}"

    @property
    def cause(self) -> Annotated[str, "The likeliest cause in words; empty if there is none."]:
        if self.row.cause or self.report is None:
            return self.row.cause
        return str(self.report.causes[0]) if self.report.causes else ""


@dataclass(frozen=True)
class Triage:
    """All operators of one run. ``profile`` explains most of what differs; ``target`` is how layouts were chosen.

    ``why`` says where the target is from, unless it is the default. ``refused``: the values that no exposed file can
    hand out.
    """

    verdicts: tuple[OperatorVerdict, ...]
    profile: str
    target: str
    collected: Collected
    refused: frozenset[str] = frozenset()
    why: str = ""

    @property
    def wrong(self) -> list[OperatorVerdict]:
        return [v for v in self.verdicts if v.verdict == WRONG]

    @property
    def suspects(self) -> list[OperatorVerdict]:
        """The operators that differ by themselves, legally or not."""
        return [v for v in self.verdicts if v.verdict in (LEGAL, WRONG)]

    @property
    def doubted(self) -> Row | None:
        """The first operator that other inputs explain; see `refsim.device.other_inputs`."""
        return next((v.row for v in self.verdicts if v.row.excused), None)

    @property
    def doubts(self) -> list[str]:
        """What there is to say about the inputs of operators that read them."""
        return [v.row.doubt for v in self.verdicts if v.row.doubt]

    @property
    def same(self) -> bool:
        """Whether nothing is wrong that was judged."""
        return not self.wrong and self.doubted is None

    @property
    def needed(self) -> list[str]:
        """The int8 buffers of the run that an exposed file can hand out: a comparison must not leave them out."""
        return [v.row.value for v in self.verdicts if v.row.is_int8 and v.row.value not in self.refused]

    @property
    def judged(self) -> frozenset[str]:
        """The buffers whose operators were judged, or would have been if the device's inputs were known."""
        return frozenset(
            v.row.value for v in self.verdicts if v.row.excused or v.verdict not in (UNKNOWN, FOLLOWS)
        )

    def unknown_inputs(self, v: OperatorVerdict) -> list[str]:
        """What an operator reads and no output holds, so that it was compared with the exact run and has no case."""
        if v.row.alone is not None:
            return []
        graph = self.collected.model.graphs[v.row.delegate]
        read = (number for number in graph.writer(v.row.node).reads if graph.tensors[number].data is None)
        return [
            name
            for name in dict.fromkeys(value_name(v.row.delegate, n) for n in read)
            if name not in self.collected
        ]

    def cases(self) -> dict[str, dict[str, bytes]]:
        """A case for each suspect whose inputs are known, by the name of its output, with the device's bytes."""
        found = {}
        for v in self.suspects:
            own, held = v.row.own, self.collected.held.get(v.row.value)
            if own is not None and isinstance(held, PackedBuffer):
                note = (
                    f"node {v.row.node} of delegate {v.row.delegate} on the inputs that it had on the device"
                )
                right = own.call.expected(own.inputs)
                raw = self.collected.beside(v.row.value, right)
                found[v.row.value] = contents(own, right, note, value=v.row.value) | {ACTUAL: raw.tobytes()}
        return found


def judged(rows: Iterable[Row], profile: Profile | None) -> Iterator[OperatorVerdict]:
    """The verdict about each operator, in order. Without a ``profile`` of the device, any may explain what differs."""
    for row in rows:
        found = row.judged
        if found is None:
            yield OperatorVerdict(row, UNKNOWN)
        elif not found.differing:
            yield OperatorVerdict(row, SAME)
        elif row.excused or not (row.wrong or row.alone is not None or found.same):
            yield OperatorVerdict(row, FOLLOWS)
        else:
            names = tuple(
                name
                for name, allowed in found.legal.items()
                if allowed.explains == found.differing
                and (profile is None or name in (profile.name, OWN, UNBOUNDED))
            )
            yield OperatorVerdict(row, LEGAL if names else WRONG, names)


def likeliest_profile(verdicts: Iterable[OperatorVerdict]) -> str:
    """The profile that explains most of what differs, less what it contradicts."""
    scores = dict.fromkeys(PROFILES, 0)
    for v in verdicts:
        if v.verdict in (LEGAL, WRONG) and v.report is not None:
            for name in PROFILES:
                if (allowed := v.report.legal.get(name)) is not None:
                    scores[name] += allowed.explains - allowed.contradicts
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] > 0 else CANONICAL.name
