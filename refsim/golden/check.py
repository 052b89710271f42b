"""One case of the corpus on some executors: does each give the bytes of the definition, and the recorded digest?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import numpy as np

from refsim.bytediff import Report, diff
from refsim.bytediff.consensus import agreed
from refsim.bytediff.rank import Cause
from refsim.core import doing
from refsim.core.buffer import GUARD_WORDS, PackedBuffer, guarded
from refsim.core.errors import OutputError, RefsimError
from refsim.core.meanings import CaseName
from refsim.core.plain import plain
from refsim.core.qmath import PROFILES, Profile
from refsim.exec.again import Again, Right, again
from refsim.exec.executor import YOURS, Executor
from refsim.exec.reads import misread_cause
from refsim.formats.cases import Stored
from refsim.golden.judge import KNOWN_DEFECT, LEGAL, SAME, judged
from refsim.golden.store import DigestEntry, digest
from refsim.ops.base.binding import BoundCase, bind

DIFFERENT, ERROR = "different", "error"
CRASHED, TIMEOUT, REFUSED = "crashed", "timeout", "refused"
#: What is no failure. Only kernels that are not refsim's own may be ``legal`` or ``known``, or refuse a call.
ACCEPTED = (SAME, LEGAL, KNOWN_DEFECT, REFUSED)
#: What stands behind a case's name in results where its stored bytes were checked, not its digest.
BYTES = ".bytes"
DEFINE = "define"
#: What an executor gives for a call.
Result = PackedBuffer | RefsimError


@dataclass(frozen=True)
class Checked:
    """A case on an executor, and what is known of it. ``sought``: causes were looked for.

    A kernel of another build may be ``legal`` under other profiles, or show the ``known`` defect of upstream's.
    """

    case: CaseName
    executor: Annotated[str, "`define`: the definition was compared with the corpus."]
    status: Annotated[str, "different, error, crashed, timeout or legal."]
    message: Annotated[str, "What happened, in words."] = ""
    stored: Annotated[bool, "Whether its stored files were read, and not its rule."] = False
    configuration: Annotated[str, "Its shapes, layouts and parameters; empty for a chain."] = ""
    digest: Annotated[str | None, "What the definition gives."] = None
    recorded: Annotated[str | None, "What the corpus has."] = None
    nodes: Annotated[tuple[int, ...], "Of a chain: numbers of the nodes of the first wrong step."] = ()
    operator: Annotated[str | None, "Of a chain: the operator whose output that is."] = None
    differing: Annotated[int | None, "Elements that differ."] = None
    pattern: Annotated[
        tuple[str, ...], "What the differing elements have in common, and which ways to compute it are right."
    ] = ()
    causes: Annotated[tuple[Cause, ...], "The likely causes, best first."] = ()
    profiles: Annotated[tuple[str, ...], "Names of numerics profiles."] = ()
    ours: Annotated[str, "Why refsim's own kernels ran; else empty."] = ""
    sought: bool = False

    @property
    def key(self) -> str:
        """Its name among results, where a case may stand twice."""
        return f"{self.case}{BYTES}" if self.stored else self.case

    def as_json(self) -> dict[str, Any]:
        """What is known, as a line of results has it; `refsim.formats.typed_json` reads it back."""
        known = {row.name: getattr(self, row.name) for row in fields(self)}
        return {row.name: plain(known[row.name]) for row in fields(self) if known[row.name] != row.default}


def fails(results: Sequence[Checked]) -> bool:
    """Whether a case is not as it must be on one of its executors."""
    return any(result.status not in ACCEPTED for result in results)


def check_entries(
    entries: Sequence[DigestEntry],
    executors: Mapping[str, Executor],
    profile: Profile | None = None,
    explained: int | None = None,
) -> Iterator[list[Checked]]:
    """Check cases of the digests: each definition with its digest, then each executor with the definition.

    ``profile``: the executors have to follow this one. Every executor runs several cases at once. The first
    ``explained`` failures, or all, are told with their causes.
    """
    bounds: dict[int, BoundCase] = {}
    for entry in entries:
        with contextlib.suppress(RefsimError):  # it is raised again when the case is checked
            bounds[entry.number] = bind(entry.case)
    ran: dict[str, dict[int, Result]] = {name: {} for name in executors}
    work = [(bound.call, bound.inputs) for bound in bounds.values()]
    for name, executor in executors.items() if len(entries) > 1 else ():
        what = f"{entries[0].name} to {entries[-1].name} on {name}"
        ran[name] = dict(zip(bounds, doing.during(what, executor.run_batch, work), strict=True))
    failed = 0
    for entry in entries:
        explain = explained is None or failed < explained
        try:
            bound = bounds.get(entry.number) or bind(entry.case)
            expected = bound.call.expected(bound.inputs)
            found = [defined(entry.name, digest(bound.call, expected), entry.sha256)]
        except RefsimError as error:
            found = [Checked(entry.name, DEFINE, ERROR, doing.told(error))]
        else:
            for name, executor in executors.items():
                before = ran[name].get(entry.number)
                found.append(run(entry.name, name, executor, bound, expected, profile, explain, before))
        failed += fails(found)
        yield found


def defined(case: str, digest: str, recorded: str) -> Checked:
    """The definition, compared with the corpus."""
    if digest == recorded:
        return Checked(case, DEFINE, SAME)
    return Checked(case, DEFINE, DIFFERENT, digest=digest, recorded=recorded)


def check_stored(
    stored: Stored,
    entry: DigestEntry | None,
    executors: Mapping[str, Executor],
    profile: Profile | None = None,
    explain: bool = True,
) -> Iterator[Checked]:
    """Check a stored case: compare its files with the data of its seed, and definition and executors with out.bin."""
    bound = stored.bound
    detail = compared(bound, stored.expected, bound.call.expected(bound.inputs))
    if not detail and entry is not None:
        detail = _drawn_alike(bound, bind(entry.case))
    yield Checked(stored.name, DEFINE, DIFFERENT if detail else SAME, stored=True, **detail)
    for name, executor in executors.items():
        yield replace(run(stored.name, name, executor, bound, stored.expected, profile, explain), stored=True)


def run(
    case: str,
    name: str,
    executor: Executor,
    bound: BoundCase,
    expected: PackedBuffer,
    profile: Profile | None = None,
    explain: bool = True,
    ran: Result | None = None,
) -> Checked:
    """Run one case on one executor and compare every byte; under ``profile``, if there is one, not the case's own.

    With ``explain`` a difference is told with its causes, which may take seconds. ``ran``: what it gave before.
    """
    given = bound
    if profile is not None and profile != bound.call.target.profile:
        bound = replace(bound, call=bound.call.under(profile))
        expected = bound.call.expected(bound.inputs)
    try:
        bound, expected = asked_of(executor, bound, expected)
        ran = ran if bound is given else None
        done = isinstance(ran, PackedBuffer | OutputError)
        refused = None if done else executor.refusal(bound.call)
        if refused is not None:
            if executor.foreign:
                return Checked(case, name, REFUSED, refused)
            return Checked(case, name, ERROR, f"refused: {refused}")
        before = {argument: buffer.raw.copy() for argument, buffer in bound.inputs.items()}
        with guarded(f"{bound.case.op}: an input", *bound.inputs.values()):
            actual, broken = within(executor, bound, ran)
        for argument, raw in before.items():
            if not np.array_equal(bound.inputs[argument].raw, raw):
                return Checked(case, name, ERROR, f"input {argument} was written to")
        same = np.array_equal(expected.raw, actual.raw)
        source = executor.source(bound.call) if executor.foreign else None
    except RefsimError as error:
        return Checked(case, name, ERROR, doing.told(error))
    yours = source is None or source.whose == YOURS
    ours = "" if yours or source is None else source.why
    if same and broken is None:
        return Checked(case, name, SAME, ours=ours)
    if source is not None and yours and broken is None:
        profiles = PROFILES.values() if profile is None else ()
        found = judged(bound, actual, profiles=profiles, defects=source.forgiven)
        if found.verdict in ACCEPTED:
            return Checked(case, name, found.verdict, str(found), profiles=found.profiles)
    detail = compared(bound, expected, actual, explain, executor)
    told = "" if broken is None else doing.told(broken, place=False)
    return Checked(case, name, ERROR if broken else DIFFERENT, told, ours=ours, **detail)


def ran_again(
    executor: Executor,
    bound: BoundCase,
    actual: PackedBuffer,
    right: Right | None = None,
    fresh: bool = True,
) -> Again:
    """What running a wrong call again shows, see `refsim.exec.again`.

    By default every byte must be right, of kernels that are not refsim's every one that upstream's define.
    """
    expected = bound.call.expected(bound.inputs).raw
    defined = bound.call.device_defined() if executor.foreign else np.ones(len(expected), bool)
    with doing.explaining(f"{bound.case} on {executor.name}"):
        return again(
            executor, bound, actual, right or (lambda out: bool((out.raw == expected)[defined].all())), fresh
        )


def diff_on(
    executor: Executor,
    bound: BoundCase,
    expected: PackedBuffer,
    actual: PackedBuffer,
    fresh: bool = True,
    **options: Any,
) -> Report:
    """The diff of what an executor gave for a call, with what is seen where it runs the call again.

    ``options`` are those of `refsim.bytediff.diff`; ``fresh`` that of `refsim.exec.again.again`.
    """
    same = np.array_equal(expected.raw, actual.raw)
    seen = Again() if same else ran_again(executor, bound, actual, fresh=fresh)
    report = diff(expected, actual, call=bound, seen=seen.told, guards=GUARD_WORDS, **options)
    return answered(replace(report, pattern=(*report.pattern, *seen.ways)), executor, bound)


def answered(report: Report, executor: Executor, bound: BoundCase, others: Sequence[Report] = ()) -> Report:
    """A wrong call's report with what its kernel reads otherwise.

    It is not asked if one edit explains this report and the others, or if running it again showed what is wrong.
    """
    if report.same:
        return report
    best = next(iter(agreed([report, *others])), None)
    sure = best is not None and best.cause.sure
    if best is not None and (best.cause.observed or (sure and best.exact == best.of)):
        return report
    ev = report.evidence
    with doing.explaining(f"{bound.case} on {executor.name}"):
        found = misread_cause(executor, bound, ev.differing[ev.places].reshape(bound.call.out.shape))
    if found is None:
        return report
    names = [cause.name for cause in report.causes]
    at = names.index(best.name) + 1 if best is not None and sure and best.name in names else 0
    cause = Cause.seen(*found, report.differing, asked=True)
    # where a cause is told, facts are not: they are for reports without any
    return replace(report, causes=(*report.causes[:at], cause, *report.causes[at:]), facts=())


def asked_of(executor: Executor, bound: BoundCase, expected: PackedBuffer) -> tuple[BoundCase, PackedBuffer]:
    """A case and its output, as the executor's kernels mean it."""
    call = executor.meant(bound.call)
    return (
        (bound, expected) if call is bound.call else (replace(bound, call=call), call.expected(bound.inputs))
    )


def within(
    executor: Executor, bound: BoundCase, ran: Result | None = None
) -> tuple[PackedBuffer, OutputError | None]:
    """The output of a call, and the error if a dispatch wrote outside of its buffer, or read what was packed wrong.

    ``ran``: what the executor gave before; then it does not run again.
    """
    try:
        if isinstance(ran, RefsimError):
            raise ran
        if ran is not None:
            return ran, None
        what = f"{bound.case} on {executor.name}"
        return doing.during(what, executor.run_call, bound.call, bound.inputs), None
    except OutputError as error:
        if not isinstance(error.buffer, PackedBuffer) or error.buffer.desc != bound.call.out:
            raise
        return error.buffer, error


def compared(
    bound: BoundCase | None,
    expected: PackedBuffer,
    actual: PackedBuffer,
    explain: bool = True,
    executor: Executor | None = None,
) -> dict[str, Any]:
    """Nothing if the buffers are equal; else what `Checked` says of elements, of pattern and causes with ``explain``.

    ``bound``: the call that wrote them; None for a float operator. ``executor``: where it runs again.
    """
    if np.array_equal(expected.raw, actual.raw):
        return {}
    if not explain:
        return {"differing": int(np.count_nonzero(expected.data != actual.data))}
    if executor is None or bound is None:
        report = diff(expected, actual, call=bound, limit=1, guards=GUARD_WORDS)
    else:
        report = diff_on(executor, bound, expected, actual, limit=1)
    return {
        "differing": report.differing, "pattern": report.pattern, "causes": tuple(report.causes), "sought": True,
    }  # fmt: skip


def _drawn_alike(stored: BoundCase, drawn: BoundCase) -> dict[str, Any]:
    """Whether the seed still gives the stored inputs and constants."""
    for name, buffer in stored.inputs.items():
        if not np.array_equal(buffer.raw, drawn.inputs[name].raw):
            return {"message": f"the seed no longer gives the stored input {name}"}
    for name, value in stored.call.consts.items():
        if not np.array_equal(np.asarray(value), np.asarray(drawn.call.consts[name])):
            return {"message": f"the seed no longer gives the stored constant {name}"}
    return {}
