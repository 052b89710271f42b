"""Each kind of bug, as an edit of a right kernel that ran: a diff names it first, and its place."""

from __future__ import annotations

import inspect
import re
import runpy
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from seeded import EDITS
from wrong import Edit, Line, bench_of, predicted_by

from refsim.bytediff import Cause, diff, search
from refsim.bytediff.search import run
from refsim.bytediff.search.candidate import Candidate
from refsim.bytediff.search.device import DeviceEdit
from refsim.bytediff.search.schema import schema_of
from refsim.bytediff.search.words import text_of
from refsim.core.buffer import GUARD_WORDS
from refsim.core.errors import ParameterError
from refsim.core.rng import Rng
from refsim.exec.emulated import EmulatedExecutor
from refsim.golden.rules import case
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.registry import OPS, kernel_of

pytestmark = pytest.mark.search(10)
RELU = next(edit for edit in EDITS if edit.op == "q8ta_relu")


@pytest.mark.few(4)
@pytest.mark.parametrize("edit", EDITS, ids=[f"{edit.op}: {edit.what}" for edit in EDITS])
def test_the_class_and_the_place_of_an_edit_are_named_first(edit: Edit) -> None:
    bound, wrong = edit.shown()
    report = diff(bound.call.expected(bound.inputs), wrong, call=bound)
    first = report.causes[0]
    assert first.name in edit.names and first.exact, str(report)
    assert edit.line is None or first.place is None or _is_named(edit.line, first), str(report)


def _is_named(line: Line, cause: Cause) -> bool:
    """Whether the place of a cause, or of an edit with the same bytes, is in the edited function."""
    function, place = getattr(line.module, line.function), cause.place
    assert place is not None
    lines, first = inspect.getsourcelines(getattr(function, "py_func", function))
    file = f"{line.module.__name__.rpartition('.')[2]}.py"
    told = re.findall(r"([\w/.]+):(\d+)\b", " ".join((str(place), place.called, *place.others)))
    return any(path.endswith(file) and first <= int(at) < first + len(lines) for path, at in told)


@pytest.mark.long
def test_an_edit_that_explains_one_buffer_is_tried_first_on_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the next one needs no search, and is told by the same edit."""
    edit = next(edit for edit in EDITS if edit.op == "q8ta_conv2d_dw" and "iw" in edit.what)
    calls = (bind(OPS[edit.op].sample(Rng(seed))) for seed in range(40))
    rows = ((b, b.call.expected(b.inputs), edit.wrong(b)) for b in calls if b.call.out.numel < 999)
    wrong = (row for row in rows if np.count_nonzero(row[1].raw != row[2].raw) >= 16)
    (bound, expected, actual), (other, right, given) = islice(wrong, 2)
    found = diff(expected, actual, call=bound)
    first = found.causes[0]
    assert first.exact
    monkeypatch.setattr(run, "TRIED", (0.0, 0.0))  # no time to try another edit
    monkeypatch.setattr(run, "HOPELESS", (0.0, 0.0))
    without, told = (diff(right, given, call=other, like=[found] * like).causes for like in (0, 1))
    assert not any(cause.exact and cause.name == first.name for cause in without)
    assert told[0].exact and told[0].name == first.name


CLAMP = "clamp(whole + zp, QMIN, QMAX)"


@pytest.mark.parametrize(
    ("number", "edits", "cause"),
    [
        (
            10,
            ("A_SCALE for B_SCALE", f"clamp(whole + zp, 0, 255) for {CLAMP}"),
            "another tensor's quantization",
        ),
    ],
)
def test_two_edits_at_once_are_told_together(number: int, edits: tuple[str, str], cause: str) -> None:
    """Where one of them gives some of the bytes, and none gives all."""
    bound = bind(case("q8ta_add", number))
    bench, right = bench_of(bound), bound.call.expected(bound.inputs)
    one, other = (next(row for row in bench.steps[0].schema.edits if text_of(row) == text) for text in edits)
    single, both = (predicted_by(bench, Candidate(0, one, also=also), right) for also in (None, other))
    assert both is not None and not np.array_equal(both, right.words) and not np.array_equal(both, single)
    report = diff(right, both.view(np.int8), call=bound)
    together = [found.name for found in report.causes if found.exact and search.AND in found.detail]
    assert cause in together, str(report)


def test_a_grid_for_another_tile_than_the_shader_has_is_told_by_its_line() -> None:
    bound = bind(case("embedding_q4gsw", 264))
    bench, right = bench_of(bound), bound.call.expected(bound.inputs)
    launch = bench.steps[0].launch
    x, y, z = replace(launch, grid=replace(launch, tile=(5, 1, 1), grid=(0, 0, 0)).grid).reached
    actual = predicted_by(bench, Candidate(0, device=DeviceEdit("", "", reached=(z, y, x))), right)
    assert actual is not None and not np.array_equal(actual, right.words)
    place = diff(right, actual.view(np.uint8), call=bound).causes[0].place
    assert place is not None and (place.function, place.edit) == ("launch", "5 for 4")


@pytest.mark.parametrize("guards", [pytest.param(0, marks=pytest.mark.long), GUARD_WORDS])
def test_a_read_outside_of_a_buffer_is_explained_by_what_lies_there(
    monkeypatch: pytest.MonkeyPatch, guards: int
) -> None:
    """The executors put guard words there; a diff that is not told of them takes zeros."""
    name = "q8ta_conv2d_dw"
    right, schema = kernel_of(name), schema_of(name)
    (edit,) = (row for row in schema.edits if text_of(row) == "push[OUT + C] without // 4")
    monkeypatch.setattr("refsim.exec.emulated.kernel_of", lambda _: replace(right, run=schema.built(edit)))
    causes = _explained(bind(case(name, 1174)), guards)
    found = [cause for cause in causes if cause.exact and cause.place and cause.place.line == edit.line]
    assert len(found) == bool(guards), causes


def _explained(bound: BoundCase, guards: int) -> tuple[Cause, ...]:
    """The causes of what the emulated kernels write."""
    actual = EmulatedExecutor().run_call(bound.call, bound.inputs)
    return diff(bound.call.expected(bound.inputs), actual, call=bound, guards=guards).causes


def test_threads_search_one_after_the_other() -> None:
    """Copies of a kernel hold the edit that is tried."""
    bound, actual = RELU.shown()

    def told(_: int) -> tuple[Cause, ...]:
        return diff(bound.call.expected(bound.inputs), actual, call=bound, search=1).causes

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(told, range(4))) == {told(0)}


@pytest.mark.parametrize("seconds", [0, 10])
def test_a_search_ends(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its time, or with the places of the kernel."""
    bound, actual = RELU.shown()
    expected = bound.call.expected(bound.inputs)
    assert any(cause.place for cause in diff(expected, actual, call=bound).causes)
    monkeypatch.setenv(search.VARIABLE, str(seconds))
    monkeypatch.setattr(run, "PLACES_PER_SECOND", run.PLACES_PER_SECOND * (not seconds))
    assert not any(cause.place for cause in diff(expected, actual, call=bound).causes)


@pytest.mark.parametrize("text", ["soon", "-1", "nan"])
def test_no_time_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(search.VARIABLE, text)
    with pytest.raises(ParameterError, match="REFSIM_SEARCH: is no time"):
        search.allowed()


@pytest.mark.parametrize(
    ("op", "number", "right", "wrong", "told"),
    [
        ("q8ta_relu", 656, "push[IN_ZP]", "push[ZP]", "IN_ZP for ZP"),
        ("q8ta_conv2d_dw", 1174, "push[KERNEL_W]", "push[KERNEL_H]", "KERNEL_W for KERNEL_H"),
        ("q8ta_conv2d_general", 502, "4 * oc4", "oc4", "4 * oc4 for oc4"),
        ("q8ta_im2col", 456, "(group * push[IC4] + channel)", "group * push[IC4] + channel",
         "4 * (group * push[IC4] + channel) for 4 * group * push[IC4] + channel"),
    ],
)  # fmt: skip
def test_a_kernel_that_was_edited_in_place_is_told_by_what_makes_it_right(
    op: str, number: int, right: str, wrong: str, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It gives the wrong bytes as it is: what changes none of them would explain them all."""
    before, _, after = Path(str(sys.modules[f"refsim.ops.{op}"].__file__)).read_text().rpartition(right)
    file = tmp_path / f"{op}.py"
    file.write_text(f"{before}{wrong}{after}")
    edited = runpy.run_path(str(file), run_name=f"refsim.ops.{op}")
    monkeypatch.setitem(OPS._loaded, op, replace(OPS[op], kernel=edited["OP"].kernel))
    schema_of.cache_clear()
    try:
        causes = _explained(bind(case(op, number)), GUARD_WORDS)
    finally:
        schema_of.cache_clear()
    places = [cause.place for cause in causes if cause.exact and cause.place is not None]
    every = {(place.line, place.edit) for one in places for place in (one, *one.alike)}
    assert (before.count("\n") + 1, f"right with {told}") in every, causes
    assert all(edit.startswith("right with ") for _, edit in every), causes
