"""Compare two raw buffers: which bytes differ, where they are, which invocation wrote them, and the likely cause."""

from __future__ import annotations

import click

from refsim.bytediff import diff
from refsim.cli._buffers import (
    described,
    html_option,
    limit_option,
    raw_buffer,
    raw_files,
    show,
)
from refsim.cli._options import device_profile_option, json_option, layout_option, shape_option
from refsim.cli._output import say
from refsim.cli._verb import Lacking, verb
from refsim.core.layout import Layout
from refsim.core.qmath import Profile
from refsim.golden.named import open_case

#: What the bytes alone do not tell.
HINT = "more causes, and who wrote each word: --case CASE, the call that wrote the buffer (refsim extract makes one)"


@verb("diff", "expected.bin actual.bin -l 4W4C -s 1,64,56,56")
@click.argument("expected")
@click.argument("actual")
@layout_option(required=False)
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
@limit_option
@html_option
@json_option
def command(
    expected: str,
    actual: str,
    layout: Layout | None,
    shape: tuple[int, ...] | None,
    case: str | None,
    profile: Profile | None,
    others: tuple[str, ...],
    limit: int,
    html: str | None,
    as_json: bool,
) -> int:
    """Compare ACTUAL with EXPECTED, raw buffers of one tensor, byte by byte."""
    if profile is not None and case is None:
        raise click.UsageError(
            "--profile needs --case CASE: what it allows depends on the call that wrote the buffer"
        )
    bound = open_case(case).bound if case is not None else None
    if bound is not None:
        layout, shape = layout or bound.call.out.layout, shape or bound.call.out.shape
    kind, dims = described(actual, *described(expected, layout, shape))
    if kind is None or dims is None:
        raise Lacking("give --layout and --shape, --case, or a .json beside one of the buffers")
    report = diff(
        raw_buffer(expected, dims, kind),
        raw_buffer(actual, dims, kind),
        kind,
        tuple(dims),
        call=bound,
        profile=profile,
        others=raw_files(others),
        limit=limit,
    )
    status = show("diff", report, as_json, html, expected=expected, actual=actual)
    if bound is None and not report.same and not as_json:
        say(HINT)
    return status
