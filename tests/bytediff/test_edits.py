"""Each kind of bug, as an edit of a right kernel that ran: a diff names it first, and its place."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seeded import EDITS
from wrong import Edit, Line

from refsim.bytediff import Cause, diff, search
from refsim.bytediff.search import run
from refsim.bytediff.search.bench import Bench
from refsim.bytediff.search.candidate import Candidate
from refsim.bytediff.search.device import DeviceEdit
from refsim.bytediff.search.schema import schema_of
from refsim.bytediff.search.whole import predicted
from refsim.bytediff.search.words import text_of
from refsim.core.buffer import GUARD_WORDS
from refsim.core.errors import ParameterError
from refsim.core.rng import Rng
from refsim.exec import emulated
from refsim.golden.rules import case
from refsim.ops.base.binding import bind
from refsim.ops.base.registry import OPS, kernel_of


@pytest.mark.few(4)
@pytest.mark.search(10)
@pytest.mark.parametrize("edit", EDITS, ids=[f"{edit.op}: {edit.what}" for edit in EDITS])
def test_the_class_and_the_place_of_an_edit_are_named_first(edit: Edit) -> None:
    bound, wrong = edit.shown()
    report = diff(bound.call.expected(bound.inputs), wrong, call=bound)
    first = report.causes[0]
    assert first.name in edit.names and first.exact, str(report)
    if edit.line is not None and first.place is not None:
        assert any(_within(edit.line, at) for at in _places(first)), str(report)


def _places(cause: Cause) -> list[tuple[str, int]]:
    """(file, line) of a cause, and of the edits with the same bytes."""
    assert cause.place is not None
    texts = [
        text.rpartition("(")[2].rstrip(")") for text in (cause.place.called, *cause.place.others) if text
    ]
    parts = [text.rpartition(":") for text in texts]
    return [(cause.place.file, cause.place.line), *((file, int(line)) for file, _, line in parts)]


def _within(line: Line, place: tuple[str, int]) -> bool:
    """Whether a place is in the edited function."""
    function: Any = getattr(line.module, line.function)
    lines, first = inspect.getsourcelines(getattr(function, "py_func", function))
    file = f"{line.module.__name__.rpartition('.')[2]}.py"
    return place[0].endswith(file) and first <= place[1] < first + len(lines)


def test_the_kernels_without_an_edit_are_right() -> None:
    for shown in {edit.op: edit for edit in EDITS}.values():
        right = Edit("", shown.op)
        bound, _ = shown.shown()
        assert np.array_equal(right.wrong(bound).raw, bound.call.expected(bound.inputs).raw), shown.op


@pytest.mark.long
@pytest.mark.search(10)
def test_an_edit_that_explains_one_buffer_is_tried_first_on_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the next one needs no search, and is told by the same edit."""
    edit = next(edit for edit in EDITS if edit.op == "q8ta_conv2d_dw" and "iw" in edit.what)
    calls = (bind(OPS[edit.op].sample(Rng(seed))) for seed in range(40))
    rows = (
        (bound, bound.call.expected(bound.inputs), edit.wrong(bound))
        for bound in calls
        if bound.call.out.numel < 999
    )
    wrong = (row for row in rows if np.count_nonzero(row[1].raw != row[2].raw) >= 16)
    (bound, expected, actual), (other, right, given) = islice(wrong, 2)
    found = diff(expected, actual, call=bound)
    first = found.causes[0]
    assert first.exact
    monkeypatch.setattr(run, "TRIED", 0.0)  # no time to try another edit
    monkeypatch.setattr(run, "HOPELESS", 0.0)
    without, told = (diff(right, given, call=other, like=[found] * like).causes for like in (0, 1))
    assert not any(cause.exact and cause.name == first.name for cause in without)
    assert told[0].exact and told[0].name == first.name


CLAMP = "clamp(whole + zp, QMIN, QMAX)"
CARRY = "bytes that carry over in word | (np.int64(q) & 255) << 8 * k"


@pytest.mark.search(10)
@pytest.mark.parametrize(
    ("number", "first", "second", "cause"),
    [
        (10, "A_SCALE for B_SCALE", f"clamp(whole + zp, 0, 255) for {CLAMP}", "another tensor's quantization"),
        (48, "True for flags & CLAMP_FIRST", CARRY, "clamp order"),
    ],
)  # fmt: skip
def test_two_edits_at_once_are_told_together(number: int, first: str, second: str, cause: str) -> None:
    """Where one of them gives some of the bytes, and none gives all."""
    bound = bind(case("q8ta_add", number))
    bench = Bench(bound.call, {name: buffer.words for name, buffer in bound.inputs.items()})
    one, other = (
        next(row for row in bench.steps[0].schema.edits if text_of(row) == text) for text in (first, second)
    )
    right = bound.call.expected(bound.inputs)
    rows = (Candidate(0, one), Candidate(0, other), Candidate(0, one, also=other))
    *single, both = (predicted(bench, row, (0,), right.words, 1 << 30) for row in rows)
    assert both is not None and not np.array_equal(both, right.words)
    assert not np.array_equal(both, single[0])
    report = diff(right, both.view(np.int8), call=bound)
    found = [found for found in report.causes if found.exact and search.AND in found.detail]
    assert cause in [each.name for each in found], str(report)


@pytest.mark.search(10)
def test_a_grid_for_another_tile_than_the_shader_has_is_told_by_its_line() -> None:
    bound = bind(case("embedding_q4gsw", 264))
    bench = Bench(bound.call, {name: buffer.words for name, buffer in bound.inputs.items()})
    launch = bench.steps[0].launch
    grid = replace(launch, tile=(5, 1, 1), grid=(0, 0, 0)).grid
    x, y, z = replace(launch, grid=grid).reached
    right = bound.call.expected(bound.inputs)
    device = DeviceEdit("", "", reached=(z, y, x))
    actual = predicted(bench, Candidate(0, device=device), (0,), right.words, 1 << 30)
    assert actual is not None and not np.array_equal(actual, right.words)
    (first, *_) = diff(right, actual.view(np.uint8), call=bound).causes
    assert first.place is not None and (first.place.function, first.place.edit) == ("launch", "5 for 4"), (
        first
    )


@pytest.mark.search(10)
@pytest.mark.parametrize("guards", [pytest.param(0, marks=pytest.mark.long), GUARD_WORDS])
def test_a_read_outside_of_a_buffer_is_explained_by_what_lies_there(
    monkeypatch: pytest.MonkeyPatch, guards: int
) -> None:
    """The executors put guard words there; a diff that is not told of them takes zeros."""
    name = "q8ta_conv2d_dw"
    right, schema = kernel_of(name), schema_of(name)
    (edit,) = (row for row in schema.edits if text_of(row) == "push[OUT + C] without // 4")
    monkeypatch.setattr(emulated, "kernel_of", lambda _: replace(right, run=schema.built(edit)))
    bound = bind(case(name, 1174))
    actual = emulated.EmulatedExecutor().run_call(bound.call, bound.inputs)
    report = diff(bound.call.expected(bound.inputs), actual, call=bound, guards=guards)
    found = [row for row in report.causes if row.exact and row.place and row.place.line == edit.line]
    assert len(found) == bool(guards), str(report)


def test_threads_search_one_after_the_other() -> None:
    """Copies of a kernel hold the edit that is tried."""
    edit = next(edit for edit in EDITS if edit.op == "q8ta_relu")
    bound, actual = edit.shown()

    def told(_: int) -> tuple[Cause, ...]:
        return diff(bound.call.expected(bound.inputs), actual, call=bound, search=1).causes

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(told, range(4))) == {told(0)}


@pytest.mark.parametrize(
    ("variable", "places"), [("0", None), ("", 0)], ids=["the environment", "places of the kernel"]
)
def test_a_search_ends(variable: str, places: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    edit = next(edit for edit in EDITS if edit.op == "q8ta_relu")
    bound, actual = edit.shown()
    expected = bound.call.expected(bound.inputs)
    assert any(cause.place for cause in diff(expected, actual, call=bound).causes)
    monkeypatch.setenv(search.VARIABLE, variable)
    if places is not None:
        monkeypatch.setattr(run, "PLACES_PER_SECOND", places)
    assert not any(cause.place for cause in diff(expected, actual, call=bound).causes)


def test_no_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("soon", "-1", "nan"):
        monkeypatch.setenv(search.VARIABLE, text)
        with pytest.raises(ParameterError, match="REFSIM_SEARCH: is no time"):
            search.allowed()


@pytest.mark.search(10)
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
    source = Path(str(sys.modules[f"refsim.ops.{op}"].__file__)).read_text()
    before, _, after = source.rpartition(right)
    file = tmp_path / f"{op}.py"
    file.write_text(f"{before}{wrong}{after}")
    spec = importlib.util.spec_from_file_location(f"refsim.ops.{op}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(OPS._loaded, op, replace(OPS[op], kernel=module.OP.kernel))
    bound = bind(case(op, number))
    schema_of.cache_clear()
    try:
        actual = emulated.EmulatedExecutor().run_call(bound.call, bound.inputs)
        causes = diff(bound.call.expected(bound.inputs), actual, call=bound, guards=GUARD_WORDS).causes
    finally:
        schema_of.cache_clear()
    places = [cause.place for cause in causes if cause.exact and cause.place is not None]
    every = {(place.line, place.edit) for one in places for place in (one, *one.alike)}
    assert (before.count("\n") + 1, f"right with {told}") in every, causes
    assert all(edit.startswith("right with ") for _, edit in every), causes
