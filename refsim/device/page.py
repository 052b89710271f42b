"""A triage as text, as plain data, and as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from refsim.bytediff import Report, html
from refsim.core import choices
from refsim.core.counted import counted, form
from refsim.core.html import rendered
from refsim.device.repeats import Repeats, Tendency
from refsim.device.verdicts import FOLLOWS, LEGAL, SAME, UNKNOWN, WRONG, OperatorVerdict, Triage

COLUMNS = ("delegate", "node", "operator", "output", "verdict", "cause")
#: The further column of the page, if the lines of the model's code are known; and the page's name in a folder.
ORIGIN, PAGE = "origin", "triage.html"
#: How many operators get a page of their own at most: each may have some megabytes.
MOST_PAGES = 20


#: What else there is to say about a report, as lines.
Remarks = Callable[[Report | None], Sequence[str]]


def cells(v: OperatorVerdict, several: Repeats | None = None) -> tuple[object, ...]:
    """A row of the table. Where ``several`` runs do not agree about the operator, the verdict says of each."""
    text = v.text if several is None else several.verdicts.get(v.row.value, v.text)
    cause = v.cause
    if several is not None and v.row.value in several.elsewhere:
        run, why = several.elsewhere[v.row.value]
        cause = f"{why} (run {run})" if why else ""
    return (v.row.delegate, v.row.node, v.row.operator, v.row.value, text, cause)


def summary(found: Triage, several: Repeats | None = None) -> str:
    """One sentence about the whole run, and how many more operators ``several`` runs show to be wrong."""
    judged = [v for v in found.verdicts if v.verdict not in (UNKNOWN, FOLLOWS)]
    if not judged and found.doubted is None:
        return "no operator was judged"
    blind = [v for v in judged if found.unknown_inputs(v)]
    if not found.suspects and not blind and found.doubted is None:
        return form(
            len(judged),
            "the operator is right, on its own inputs",
            f"all {counted(len(judged), 'operator')} are right, each on its own inputs",
        )
    legal = [v for v in found.suspects if v.verdict == LEGAL]
    own = len(judged) - len(blind)
    right = sum(v.verdict == SAME for v in judged if v not in blind)
    how = form(right, "is right on its", "are right on their")
    parts = [f"{right} of {counted(own, 'operator')} {how} own inputs"] if own else []
    if blind:
        what = form(len(blind), "whose inputs are not exposed, was", "whose inputs are not exposed, were")
        parts.append(f"{counted(len(blind), 'operator')}, {what} compared with the exact run")
    if legal:
        under = f" under {found.profile}" if all(found.profile in v.profiles for v in legal) else ""
        parts.append(f"{len(legal)} legal{under}")
    if found.wrong:
        first = found.wrong[0].row
        parts.append(f"{len(found.wrong)} wrong, the first is node {first.node} {first.operator}")
    if several is not None and several.elsewhere:
        parts.append(f"{len(several.elsewhere)} more in other runs")
    if found.doubted is not None:
        parts.append(
            f"node {found.doubted.node} {found.doubted.operator} is right for other inputs than these"
        )
    return "; ".join(parts)


def without_case(found: Triage) -> Iterator[str]:
    """Of each operator that differs and has no case: why it has none, and what to expose so that it has one."""
    for v in found.suspects:
        values = found.unknown_inputs(v)
        if not values:
            continue
        are = form(len(values), "is", "are")
        why = f"no case of node {v.row.node} {v.row.operator}: {', '.join(values)}, which it reads, {are} not exposed"
        never = [value for value in values if value in found.refused]
        fix = " ".join(f"--value {value}" for value in (*values, v.row.value))
        yield (
            f"{why}, and no file can hand out {', '.join(never)}" if never else f"{why}; expose it with {fix}"
        )


def repeats_lines(found: Repeats) -> Iterator[str]:
    """Sentences about several runs."""
    runs = sum(map(len, found.groups))
    if len(found.groups) == 1:
        yield f"{counted(runs, 'run')}, the same bytes in all of them"
        return
    sizes = ", ".join(str(len(group)) for group in found.groups)
    distinct = f"{len(found.groups)} distinct results ({sizes} runs each)"
    yield f"{counted(runs, 'run')}, {distinct}; the first --outputs are run 0"
    share = f"{100 * found.rare / runs:.0f} %"
    yield f"{found.rare} of {runs} ({share}) gave another result than the most common one"
    if found.of and not found.elements:
        padding = counted(found.padding, "byte")
        yield f"they part in padding alone: {padding} of {found.first}, {found.operator}; no element differs"
    elif found.of:
        share = f"{found.elements} of {counted(found.of, 'element', 'differ')} between them"
        yield f"they part at {found.first}, {found.operator or 'an input of a delegate'}: {share}"
    else:
        yield f"they part at {found.first}"
    if found.padding and found.elements:
        yield f"  {counted(found.padding, 'byte')} of padding {form(found.padding, 'differs', 'differ')} too"
    if found.padding_first:
        yield f"  padding alone parts before it, from {found.padding_first} on"
    yield from (f"  {line}" for line in found.pattern)
    if found.right:
        yield f"this operator is right in {_runs(found, found.right)}"
    elif found.of and not found.unjudged:
        yield "this operator is right in none of them"
    if found.of and found.unjudged and found.operator:
        yield f"whether it is right in {_runs(found, found.unjudged)} is not known: its inputs are not exposed"
    if found.judged is not None:
        yield f"it is judged with the inputs of run {found.judged}, in which it is wrong"
    if found.tends is not None:
        yield _tends(found.tends)
    yield f"each report is of run {found.shown}"
    for value, (run, _) in found.elsewhere.items():
        yield f"{value} is wrong in run {run}; triage with the --outputs of that run alone reports on it"


def _tends(found: Tendency) -> str:
    """Whether it goes with the size of a call, or with what stands beside it."""
    if found.changing == found.calls:
        each = f"each of the {found.calls} calls" if found.calls > 1 else "the only call"
        return f"{each} of {found.operator} changes, so size and neighbours tell nothing"
    said = [f"of {found.least} elements and more, and no smaller one"] if found.least else []
    said += [f"behind {choices.listed(found.behind)}, and no other one"] if found.behind else []
    said += [f"before {choices.listed(found.before)}, and no other one"] if found.before else []
    told = "; ".join(f"each {text}" for text in said) or "with neither their size nor their neighbours"
    return f"{found.changing} of {found.calls} calls of {found.operator} change: {told}"


def _runs(found: Repeats, groups: Sequence[int]) -> str:
    """``run 1``, ``runs 0, 2``: the runs of some groups."""
    numbers = [str(run) for group in groups for run in found.groups[group]]
    return f"{form(len(numbers), 'run', 'runs')} {', '.join(numbers)}"


def render(
    file: str,
    found: Triage,
    several: Repeats | None,
    commands: Mapping[str, str],
    pages: Mapping[str, str] | None = None,
    made: Mapping[tuple[int, int], Sequence[str]] | None = None,
    remarks: Remarks = lambda report: (),
    kernels: Sequence[Sequence[str]] = (),
) -> str:
    """The page: a line per operator, and a part for each that differs. MissingDependencyError without jinja2.

    ``pages``: output of an operator -> where the page of its diff lies. ``made``: (delegate, node) -> what made it;
    None if nobody asked. ``kernels``: the table of what is wrong with each kernel, its head first.
    """
    elsewhere = () if several is None else several.elsewhere
    links, columns = pages or {}, COLUMNS if made is None else (*COLUMNS, ORIGIN)

    def row(v: OperatorVerdict) -> list[tuple[str, object]]:
        lines = (made or {}).get(v.row.at, ("-",))
        return list(zip(columns, (*cells(v, several), lines[0]), strict=False))

    return rendered(
        "html page",
        "refsim.device",
        "triage.html",
        file=file,
        found=found,
        summary=summary(found, several),
        columns=columns,
        rows=[(v, row(v), WRONG if v.row.value in elsewhere else v.verdict) for v in found.verdicts],
        made=made or {},
        kernels=kernels,
        linked={v.row.value for v in found.suspects},
        runs=[] if several is None else list(repeats_lines(several)),
        details=[
            (
                v,
                "\n".join((str(v.report), *remarks(v.report))),
                commands.get(v.row.value, ""),
                links.get(v.row.value, ""),
            )
            for v in found.suspects
        ],
    )


def diff_pages(found: Triage, remarks: Remarks) -> dict[str, str]:
    """The page of a diff for each operator that differs, of the first MOST_PAGES, by the name of its output.

    Each leads back to `PAGE`, which lies in the folder above.
    """
    return {
        v.row.value: html.render(v.report, (f"../{PAGE}#{v.row.value}", "all operators"), remarks(v.report))
        for v in found.suspects[:MOST_PAGES]
        if v.report is not None
    }
