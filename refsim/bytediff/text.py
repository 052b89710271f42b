"""Findings as lines of text: one screen, the verdict first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from refsim.bytediff.findings import Difference, Findings
from refsim.core import choices, table
from refsim.core.counted import counted

MOST_CAUSES = 5
#: What stands above the causes if facts stand before them.
IN_PART = "what fits in part:"


def styled(findings: Findings, width: int | None = None, way: str = "") -> Iterator[tuple[str, str]]:
    """(line, style): verdict, counts, pattern, causes, and the first differences as a table.

    Styles are ``same``, ``different``, ``head``, ``cause`` or none. Only the table is made to fit ``width``.
    ``way`` says how to see what lists leave out.
    """
    yield verdict(findings), "same" if findings.same else "different"
    if findings.configuration and not findings.same:
        yield f"  {findings.configuration}", ""
    for count in findings.counts:
        note = "" if count.compared else " (not compared)"
        yield f"  {count.kind:<20} {count.different:>8} of {counted(count.bytes, 'byte', 'differ')}{note}", ""
    if not findings.differing:
        return
    for name, allowed in findings.legal.items():
        if allowed.explains:
            yield f"  profile {name}: explains {allowed.explains}, contradicts {allowed.contradicts}", ""
    if findings.pattern:
        yield "pattern:", "head"
        yield from ((f"  {line}", "") for line in findings.pattern)
    yield heading(findings), "head"
    yield from ((f"  {line}", "") for line in findings.facts)
    if findings.facts and findings.causes:
        yield IN_PART, "head"
    for number, cause in enumerate(findings.causes[:MOST_CAUSES], 1):
        yield f"  {number}. {cause}", "cause" if number == 1 else ""
    if len(findings.causes) > MOST_CAUSES:
        yield f"  {choices.more(len(findings.causes) - MOST_CAUSES, way)}", ""
    if not findings.differences:
        yield unlisted(findings), "head"
        return
    yield f"first {len(findings.differences)} of {counted(findings.differing, 'difference')}:", "head"
    columns = [name for name, show in COLUMNS.items() if any(map(show, findings.differences))]
    rows = [[COLUMNS[name](d) for name in columns] for d in findings.differences]
    for line in table.lines(columns, rows, width=width and width - 2, drop=DROP):
        yield f"  {line}".rstrip(), ""


def unlisted(findings: Findings) -> str:
    """What stands in place of a table of no rows."""
    return f"{counted(findings.differing, 'difference')}, none listed: the limit is 0"


def heading(findings: Findings) -> str:
    """What stands above the causes, or above the facts where none fits well."""
    if findings.evidence.reversed:
        return "likely cause: none is sought, since the actual bytes are right and the expected ones are not"
    if findings.facts:
        return "likely cause: unknown, but"
    if findings.few:
        only = counted(findings.differing, unit(findings), "differ")
        fits = "; here fits:" if findings.causes else ""
        return f"likely cause: could be many, since only {only}. Another wrong case says more{fits}"
    return "likely cause:" if findings.causes else "likely cause: none of the known ones"


def verdict(findings: Findings) -> str:
    """One sentence."""
    if not findings.differing:
        return f"{findings.title}: the same"
    text = f"{findings.title}: {counted(findings.differing, unit(findings), 'differ')}"
    if findings.profile and findings.same:
        text += f", as profile {findings.profile} allows"
    elif findings.profile:
        text += f", {findings.illegal} of them not as profile {findings.profile} has them"
    return text


def unit(findings: Findings) -> str:
    """What differences are counted in."""
    return "byte" if findings.desc.is_int8 else "element"


#: The columns of the table of differences, and what stands there: who wrote a word only if the call is known.
COLUMNS: dict[str, Callable[[Difference], str]] = {
    "byte": lambda d: str(d.place.byte),
    "index": lambda d: _numbers(d.place.index),
    "word": lambda d: str(d.place.word),
    "lane": lambda d: str(d.place.lane),
    "block": lambda d: str(d.place.block),
    "kind": lambda d: d.kind,
    "expected": lambda d: _value(d.expected),
    "actual": lambda d: _value(d.actual),
    "workgroup": lambda d: _numbers(d.workgroup or ()),
    "invocation": lambda d: _numbers(d.invocation or ()),
    "legal": lambda d: " ".join(d.legal) or "no",
}
#: What a narrow terminal does without: what follows from the byte, then who wrote it.
DROP = ("lane", "word", "block", "invocation", "workgroup")


def _numbers(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


def _value(value: int | float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
