"""A report as lines of text: one screen, the verdict first."""

from __future__ import annotations

from collections.abc import Iterator

from refsim.bytediff.report import Difference, Report

MOST_CAUSES = 5


def lines(report: Report) -> Iterator[str]:
    """The text without styles."""
    return (line for line, _ in styled(report))


def styled(report: Report) -> Iterator[tuple[str, str]]:
    """(line, style): verdict, counts, pattern, causes, and the first differences as a table.

    Styles are ``same``, ``different``, ``head``, ``cause`` or none.
    """
    yield verdict(report), "same" if report.same else "different"
    for count in report.counts:
        note = "" if count.compared else " (not compared)"
        yield f"  {count.kind:<20} {count.differing:>8} of {count.bytes} bytes differ{note}", ""
    if not report.differing:
        return
    for name, (explained, contradicted) in report.legal.items():
        if explained:
            yield f"  profile {name}: explains {explained}, contradicts {contradicted}", ""
    if report.pattern:
        yield "pattern:", "head"
        yield from ((f"  {line}", "") for line in report.pattern)
    yield ("likely cause:" if report.causes else "likely cause: none of the known ones"), "head"
    for number, cause in enumerate(report.causes[:MOST_CAUSES], 1):
        yield f"  {number}. {cause}", "cause" if number == 1 else ""
    yield f"first {len(report.differences)} of {report.differing} differences:", "head"
    rows = [COLUMNS, *(cells(d) for d in report.differences)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    for row in rows:
        yield (
            "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(),
            "",
        )


def verdict(report: Report) -> str:
    """One sentence."""
    if not report.differing:
        return f"{report.title}: the same"
    unit = "bytes" if report.desc.is_int8 else "elements"
    text = f"{report.title}: {report.differing} {unit} differ"
    if report.profile:
        text += f", {report.illegal} of them not as profile {report.profile} has them"
    return text


COLUMNS = (
    "byte",
    "index",
    "word",
    "lane",
    "block",
    "kind",
    "expected",
    "actual",
    "workgroup",
    "invocation",
    "legal",
)


def cells(d: Difference) -> tuple[str, ...]:
    """One difference as the cells of a table."""
    place, writer = d.place, d.writer
    return (
        str(place.byte),
        ",".join(map(str, place.index)),
        str(place.word),
        str(place.lane),
        str(place.block),
        d.kind,
        f"{d.expected:g}" if isinstance(d.expected, float) else str(d.expected),
        f"{d.actual:g}" if isinstance(d.actual, float) else str(d.actual),
        "" if writer is None else ",".join(map(str, writer.workgroup)),
        "" if writer is None else ",".join(map(str, writer.invocation)),
        " ".join(d.legal) or "no",
    )
