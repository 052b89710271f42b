"""What `refsim shaders` prints: the verdict, the explanation of the first wrong case, the folder's modules, JSON."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from refsim.cli._shaders_build import MOST_NAMES, Build
from refsim.cli.kit.apart import print_kernels
from refsim.cli.kit.buffers import print_report, written_by
from refsim.cli.kit.text import MOST_SHOWN, print_table, say, say_all, say_rest
from refsim.core import choices
from refsim.core.counted import counted
from refsim.golden.judge import SAME
from refsim.modules import inventory
from refsim.modules.trial import FAILED, UNSAFE, VERDICTS, Explained, Tried
from refsim.modules.verification import FolderOutcome, tally

MOST_REASONS = 3


def print_modules(build: Build, once: bool, verbose: bool) -> None:
    """How many modules there are, or with ``verbose`` the table of them; ``once``: no further variants."""
    if verbose:
        rows = [_row(build, row, once) for row in build.rows]
        print_table(("operator", "module", "variant", "state", "runs"), rows, drop=("variant", "state"))
        return
    states = Counter(row.state for row in build.rows)
    say(f"modules: {', '.join(f'{count} {state}' for state, count in states.items())}; -v lists them")


def print_folder(build: Build) -> None:
    """What is odd about the folder, and what is about to run."""
    for row in build.rows:
        if row.note:
            say(f"damaged: {row.note}")
    strangers = inventory.strangers(build.folder.names(), build.own)
    near = [row for row in strangers if row[1]]
    for name, meant in near[:MOST_NAMES]:
        say(f"unknown: {name}{build.suffix}, did you mean {meant}{build.suffix}?")
    if len(near) > MOST_NAMES:
        say(f"unknown: {choices.more(len(near) - MOST_NAMES)}")
    others = sum(not meant for _, meant in strangers)
    if others:
        say(f"{counted(others, 'other module')} of operators that refsim has no reference for")
    allowed = " or ".join(profile.name for profile in build.profiles)
    say(f"device {build.device.index}: {build.device.name}; numerics: {allowed}")


def _row(build: Build, row: inventory.ModuleRow, once: bool) -> tuple[str, ...]:
    return row.operator, row.module, row.variant, row.state, _runs(build, row, once)


def _runs(build: Build, row: inventory.ModuleRow, once: bool) -> str:
    """Whether a module runs, and what runs instead."""
    if row.variant == inventory.PACKS:
        return "no, refsim packs"
    taken = inventory.chosen(row.operator, build.host)
    if row.module in taken:
        return "yes"
    if row.state == inventory.FOUND and not once:
        return "later"
    return f"no, {taken[0]} does" if taken else "no, refsim's own does"


# --- the verdict -----------------------------------------------------------------------------------------


def so_far(operators: Sequence[str], outcome: FolderOutcome, seconds: float) -> str:
    """One line, when the first cases of some operators are right."""
    return f"{called(operators)}: {verdict(outcome, False, operators)}, {seconds:.3f} s"


def called(operators: Sequence[str]) -> str:
    """Operators by name, or how many they are."""
    return ", ".join(operators) if len(operators) <= MOST_NAMES else counted(len(operators), "operator")


def first_word(tried: Tried, seconds: float) -> str:
    """One line about a bad case, before its cause is looked for."""
    name = tried.candidate.name
    if tried.verdict == UNSAFE:
        return f"{name} has the right bytes, but not for certain; {seconds:.3f} s"
    if tried.verdict == FAILED or tried.actual is None:
        return f"{name} {_failure(tried)}{tried.message}; {seconds:.3f} s"
    kind = np.int8 if tried.actual.desc.is_int8 else np.uint8
    expected, actual = (buffer.raw.view(kind) for buffer in (tried.candidate.expected, tried.actual))
    at = int(np.flatnonzero((expected != actual) & tried.candidate.bound.call.device_defined())[0])
    return f"{name} is wrong: byte {at} is {actual[at]}, not {expected[at]}; {seconds:.3f} s"


def print_outcome(build: Build, outcome: FolderOutcome, everything: bool) -> None:
    """One sentence, what is known or legal, what is wrong, and a row per operator."""
    say(sentence(build, outcome))
    print_findings(build, outcome)
    shown = [name for name in VERDICTS if any(count[name] for count in outcome.counts.values())]
    rows = [(op, *(count[name] for name in shown)) for op, count in sorted(outcome.counts.items())]
    if rows:
        print_table(("operator", *(f"{name} count" for name in shown)), rows)
    print_kernels([found.kernel for found in outcome.wrong])
    if everything:
        for tried in outcome.bad[:MOST_SHOWN]:
            say(f"{tried.verdict}: {tried.candidate.name}")
        say_rest(len(outcome.bad))


def print_findings(build: Build, outcome: FolderOutcome) -> None:
    """Everything that is not the same: legal bytes, known defects, the first wrong case of an operator."""
    for names, count in outcome.legal.items():
        say(f"legal: {counted(count, 'case')} with the bytes of {names}")
    for name, (note, count) in outcome.known.items():
        say(f"known defect {name}: {counted(count, 'case')}; {note}")
    for op, reasons in outcome.skipped.items():
        why = [f"{reason.removeprefix(f'{op}: ')} ({n})" for reason, n in reasons.most_common()]
        named = choices.first(why, MOST_REASONS, choices.IN_JSON)
        say(f"skipped: {counted(reasons.total(), 'case')} of {op}: {named}")
    for (kind, module, what), cases in outcome.notes.items():
        say(f"note: {kind}: {module} {what}, in {counted(cases, 'case')}")
    for tried in outcome.unsafe:
        say(f"{tried.candidate.name} has the right bytes, but not for certain")
        say(f"  {tried.candidate.bound.case.configuration}")
        print_faults(tried)
        say(f"  again: {again(build, tried)}", command=True)
    explained = {id(found.first) for found in outcome.wrong}
    for tried in outcome.failed:
        say(f"{tried.candidate.name} {_failure(tried)}{tried.message}")
        say(f"  {tried.candidate.bound.case.configuration}")
        print_faults(tried)
        say_all(written(build, tried))
        if id(tried) not in explained:
            if tried.actual is not None:
                say("  the bytes of its output are right")
            say(f"  again: {again(build, tried)}", command=True)
    for found in outcome.wrong:
        print_explained(build, found, faults=id(found.tried) not in set(map(id, outcome.failed)))


def _failure(tried: Tried) -> str:
    """A case without a result did not run; one with an output, although it wrote outside of it, did."""
    return "did not run: " if tried.actual is None else "ran, but: "


def print_explained(build: Build, found: Explained, faults: bool = True) -> None:
    """The diff of a wrong case, and what more is known of its kernel; without ``faults`` they have been said."""
    say_all(remarks(found))
    print_report(found.report)
    say_all(written(build, found.tried))
    if faults:
        print_faults(found.tried)
    say(f"  again: {again(build, found.tried)}", command=True)


def print_faults(tried: Tried) -> None:
    """What the sanitizers say of a case."""
    for one in tried.findings:
        say(f"  {one}")


def remarks(found: Explained) -> Iterator[str]:
    """What the diff of one case does not say."""
    if found.tried is not found.first:
        yield f"no known cause fits {found.first.candidate.name}; one fits another wrong case of the kernel:"


def written(build: Build, tried: Tried) -> Iterator[str]:
    """The module that wrote the output, and the lines of its source that did."""
    module = build.writer(tried.candidate.bound.call)
    for line in written_by(module, build.stores(module), build.suffix):
        yield f"  {line}"


def again(build: Build, tried: Tried) -> str:
    """The command that runs a case again, on the same modules, and says the same of it."""
    more = ["--sanitize"] if tried.findings else []
    words = ["refsim", "shaders", build.path, tried.candidate.op, "--case", tried.candidate.name]
    return shlex.join([*words, *build.options, *more])


def sentence(build: Build, outcome: FolderOutcome) -> str:
    """One line: right or wrong, how many cases, how long."""
    count = tally(outcome.counts)
    took = f"{counted(outcome.cases, 'case')} of {counted(len(outcome.counts), 'operator')}, {outcome.seconds:.3f} s"
    if outcome.right and build.broken:
        return f"wrong: {', '.join(f'{name}{build.suffix}' for name in build.broken)} cannot be read; {took}"
    if not outcome.cases:
        return f"nothing ran: {nothing(build)}"
    if outcome.right:
        more = [f"{count[name]} {name}" for name in VERDICTS if count[name]]
        more += [f"{outcome.sanitized} sanitized"] if outcome.sanitized else []
        return f"right: {', '.join(more)}; {took}"
    first = outcome.bad[0]
    failed = "did not run" if first.actual is None else "writes out of bounds"
    what = {FAILED: failed, UNSAFE: "is unsafe"}.get(first.verdict, "is wrong")
    rest = f", {len(outcome.bad)} in all" if len(outcome.bad) > 1 else ""
    return f"wrong: {first.candidate.name} {what}{rest}; {took}"


def nothing(build: Build) -> str:
    """Why no case of the operators ran."""
    pattern = build.verification.pattern
    fits = f" that {pattern!r} fits" if pattern else ""
    return f"no case of {choices.listed(build.operators)}{fits} can run on these modules"


def verdict(outcome: FolderOutcome, whole: bool, operators: Collection[str] | None = None) -> str:
    """The verdict on operators in a few words, as a line of --watch has it; ``whole``: all their cases have run."""
    count = tally({op: row for op, row in outcome.counts.items() if operators is None or op in operators})
    cases = sum(count.values())
    if outcome.failed and outcome.failed[0].actual is not None:
        return f"wrong in {outcome.failed[0].candidate.name}: {outcome.failed[0].message}"
    if outcome.wrong:
        first = outcome.wrong[0]
        causes = first.kernel.causes
        cause = str(causes[0]) if causes else "no known cause fits"
        return f"wrong in {first.tried.candidate.name}: {cause}"
    if outcome.failed:
        return f"{outcome.failed[0].candidate.name} did not run"
    if outcome.unsafe:
        return f"unsafe in {outcome.unsafe[0].candidate.name}: {outcome.unsafe[0].findings[0].kind}"
    if not cases:
        return "no case ran"
    more = [f"{count[name]} {name}" for name in VERDICTS if count[name] and name != SAME]
    return f"right{'' if whole else ' so far'}, {', '.join((counted(cases, 'case'), *more))}"


# --- JSON ------------------------------------------------------------------------------------------------


def content(build: Build, outcome: FolderOutcome) -> dict[str, Any]:
    """The verdict as plain data; docs/json.md lists the keys."""
    return {
        "folder": build.path,
        "executor": build.executor.name,
        "device": build.device.name,
        "profiles": [profile.name for profile in build.profiles],
        "modules": [{**vars(row), "runs": _runs(build, row, True)} for row in build.rows],
        "unknown": [
            {"module": name, "meant": meant}
            for name, meant in inventory.strangers(build.folder.names(), build.own)
        ],
        "operators": {op: dict(count) for op, count in outcome.counts.items()},
        "cases": outcome.cases,
        "seconds": round(outcome.seconds, 3),
        "legal": dict(outcome.legal),
        "known": {name: {"what": note, "cases": count} for name, (note, count) in outcome.known.items()},
        "wrong": [_explained(build, found) for found in outcome.wrong],
        "causes": [found.kernel.as_json() for found in outcome.wrong],
        "skipped": {op: dict(reasons) for op, reasons in outcome.skipped.items()},
        "failed": [
            {"case": row.candidate.name, "message": row.message, "findings": _findings(row)}
            for row in outcome.failed
        ],
        "unsafe": [{"case": row.candidate.name, "findings": _findings(row)} for row in outcome.unsafe],
        "notes": [
            {"kind": kind, "module": module, "what": what, "cases": cases}
            for (kind, module, what), cases in outcome.notes.items()
        ],
        "sanitized": outcome.sanitized,
        "bad": [row.candidate.name for row in outcome.bad],
        "same": outcome.right and outcome.cases > 0 and not build.broken,
    }


def _findings(tried: Tried) -> list[dict[str, Any]]:
    return [one.as_json() for one in tried.findings]


def _explained(build: Build, found: Explained) -> dict[str, Any]:
    module = build.writer(found.tried.candidate.bound.call)
    return {
        "case": found.tried.candidate.name,
        "module": module,
        "lines": [{"place": place, "source": source} for place, source in build.stores(module)],
        "first": found.first.candidate.name,
        "cases": list(found.cases),
        "distinct": found.distinct,
        "again": again(build, found.tried),
        "findings": _findings(found.tried),
        "report": found.report.as_json(),
    }
