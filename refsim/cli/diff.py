"""Compare two raw buffers: which bytes differ, where they are, which invocation wrote them, and the likely cause."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import click

from refsim.bytediff import Report, diff
from refsim.cli.kit.document import Document
from refsim.cli.kit.options import (
    actual_layout_option,
    device_profile_option,
    layout_option,
    report_options,
    shape_option,
)
from refsim.cli.kit.report import write_html
from refsim.cli.kit.text import remark
from refsim.cli.kit.verb import PROGRAM, Lacking, verb
from refsim.core.errors import FormatError
from refsim.core.layout import Layout
from refsim.core.qmath import Profile
from refsim.core.result import Command, Text
from refsim.formats.cases import Stored
from refsim.formats.sidecars import described, in_case, says, unlike_case, unlike_each_other
from refsim.golden.named import is_dump, open_case, pair_of, raw_buffer, raw_files
from refsim.golden.told import BufferCompared, ToldReport

#: What the bytes alone do not tell.
MORE = "more causes, and who wrote each word: --case "
HINT = f"{MORE}CASE, the call that wrote the buffer (refsim extract makes one)"


def _whole(expected: str, actual: str, dump: str) -> FormatError:
    """The error for a folder or zip file: how to compare one buffer, and which verbs compare all."""
    pair, where = pair_of(expected, actual), shlex.quote(dump)
    hints = [shlex.join(["refsim", "diff", *pair])] if pair is not None else []
    for verb_and_option in ("bisect MODEL -i IN.npz --actual", "run MODEL -i IN.npz --golden"):
        hints.append(f"refsim {verb_and_option} {where}")
    what = "a folder" if os.path.isdir(dump) else "a zip file"
    need = "one raw buffer; bisect and run compare all buffers of a dump with the right ones"
    return FormatError(dump, what, need=need, hints=hints)


def _of_case(report: Report, expected: str, actual: str, case: str) -> list[str]:
    """Lines about buffers of which the first is not what the case expects."""
    if report.evidence.expected_right or (report.profile is not None and report.same):
        return []
    if report.evidence.reversed:
        other = f"{actual} is what {case} expects, {expected} is not: are they the wrong way round? "
        return [Command(other + shlex.join([PROGRAM, *_swapped(expected, actual)]))]
    right = shlex.join([PROGRAM, "replay", case, "--actual", actual])
    return [Command(f"{expected} is not what {case} expects; to compare {actual} with that: {right}")]


def _unlike(expected: str, actual: str, stored: Stored | None, case: str, same: bool) -> list[str]:
    """What the .json files beside the buffers say that keeps them from being one value of one run, and the case's."""
    notes = unlike_each_other(expected, actual, same)
    if stored is not None:
        notes += [line for path in (expected, actual) for line in unlike_case(path, stored, case, same)]
    return list(dict.fromkeys(notes))


def _swapped(expected: str, actual: str) -> list[str]:
    """The words of this command line with the two buffers the other way round."""
    document = click.get_current_context().find_object(Document)
    words = ["diff", expected, actual] if document is None else list(document.given)
    first, second = words.index(expected), words.index(actual)
    words[first], words[second] = actual, expected
    return words


@dataclass(frozen=True, kw_only=True)
class Diffed(BufferCompared):
    """Two buffers."""

    expected: Annotated[str, "The file of the right bytes."]
    of_case: Annotated[
        Sequence[str], "With --case: that the expected buffer is not what the case expects; else empty."
    ]
    hint: str

    def text(self) -> Text:
        yield from super().text()
        if self.hint:
            yield self.hint


@verb("diff", "expected.bin actual.bin -l 4W4C -s 1,64,56,56")
@click.argument("expected")
@click.argument("actual")
@layout_option(required=False)
@actual_layout_option
@shape_option(required=False)
@click.option(
    "--case",
    metavar="CASE",
    help="The case whose output the two buffers are, named as for replay. --profile needs it.",
)
@device_profile_option
@click.option(
    "--other",
    "others",
    multiple=True,
    metavar="FILE",
    help="Another raw buffer that may have been mixed up with this one.",
)
@report_options
def command(
    expected: str,
    actual: str,
    layout: Layout | None,
    actual_layout: Layout | None,
    shape: tuple[int, ...] | None,
    case: str | None,
    profile: Profile | None,
    others: tuple[str, ...],
    limit: int,
    html: str | None,
) -> Diffed:
    """Compare ACTUAL with EXPECTED, buffers of one tensor in any form that replay --actual reads, byte by byte."""
    if dump := next((path for path in (actual, expected) if is_dump(path)), None):
        raise _whole(expected, actual, dump)
    if profile is not None and case is None:
        raise click.UsageError(
            "--profile needs --case CASE: what it allows depends on the call that wrote the buffer"
        )
    stored = open_case(case) if case is not None else None
    bound = stored.bound if stored is not None else None
    options: dict[str, object] = {"layout": layout, "shape": shape}
    sources = {what: f"--case {case}" for what, held in options.items() if held is None and bound is not None}
    if bound is not None:
        layout, shape = layout or bound.call.out.layout, shape or bound.call.out.shape
    kind, dims = described(expected, layout, shape, sources)
    found = {what: sources.get(what, says(expected)) for what, held in options.items() if held is None}
    if actual_layout is None:
        kind, dims = described(actual, kind, dims, found)
    if kind is None or dims is None:
        lacking = " and ".join(
            option for option, held in (("--layout", kind), ("--shape", dims)) if held is None
        )
        raise Lacking(f"give {lacking}, --case, or a .json beside one of the buffers")
    report = diff(
        raw_buffer(expected, dims, kind, remark),
        raw_buffer(actual, dims, actual_layout or kind, remark),
        kind,
        tuple(dims),
        actual_layout=actual_layout,
        call=bound,
        profile=profile,
        others=raw_files(others),
        limit=limit,
    )
    of_case = [] if case is None else _of_case(report, expected, actual, case)
    unlike = _unlike(expected, actual, stored, case or "", report.same)
    told = ToldReport.of(report)
    write_html(told, html, [*of_case, *unlike])
    beside = next((path for path in (expected, actual) if in_case(path)), None)
    hint = HINT if beside is None else MORE + shlex.quote(os.path.dirname(beside) or os.curdir)
    return Diffed(
        expected=expected, actual=actual, of_case=of_case, of_run=unlike, told=told,
        notes=[*of_case, *unlike],
        hint="" if bound is not None or report.same else hint,
    )  # fmt: skip
