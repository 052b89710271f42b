"""When a diagnosis names the part of a source that was changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from mutants.frames import through
from mutants.generated import naming
from mutants.generated.change import Change
from refsim.bytediff import Cause, Report, diff
from refsim.bytediff.consensus import Agreed
from refsim.bytediff.search.words import Place
from refsim.core import doing
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import ParameterError
from refsim.exec.cpu import routes
from refsim.exec.cpu.job import Job
from refsim.golden.rules import case
from refsim.ops.base.binding import bind


def test_names_tell_what_code_is_about() -> None:
    def named(original: str, statement: str = "", scope: str = "f") -> set[str]:
        source = f"{original}\n"
        change = Change("f.py", source, 0, len(original), "0", "constant", scope, statement)
        return {role.name for role in naming.roles(change)}

    assert "zero point" in named("push[IN_ZP]")
    assert "window" in named("push[STRIDE_H]") and "window" in named("pad_w")
    assert "bias" in named("3", "t = t + bias[n]")
    assert "lanes" in named("3", "17", "insert_lane") and named("3", "17", "f") == set()
    assert "weights" in named("b", "return c + (a + b)", "_weights4")  # single letters say little
    assert "memory" in named("8", "guards = 8 * GUARD_WORDS if value in pinned else 0")
    assert "weights" not in named("stride_h", "return stride_h", "_weights4")


def test_a_cause_counts_only_if_it_is_of_the_code_that_was_changed() -> None:
    change = Change("f.py", "in_zp", 0, 5, "out_zp", "index", "f", "acc - in_zp")
    assert naming.cause(change, ["byte order", "zero point not folded"]) == "zero point not folded"
    assert naming.cause(change, ["byte order"]) == ""
    one = agreed_cause("zero point not folded")
    assert naming.named(change, [one]) == "zero point not folded"
    assert naming.named(change, [replace(one, cause=replace(one.cause, contradicted=9))]) == ""
    assert naming.named(change, [agreed_cause("byte order")]) == ""


def agreed_cause(name: str) -> Agreed:
    """A cause that explains 20 of 30 wrong elements of one case, and none of another."""
    return Agreed(Cause(name, "so", 20, 30, 0), 0, 1, 2, 0.6)


def test_a_kernel_that_never_ends_is_told_by_its_file() -> None:
    file = "refsim/exec/cpu/relayout/transpose.py"
    change = Change(file, "4", 0, 1, "0", "constant", "f", "at += 4")
    said = f"no end: Current thread | in kernel of {file}: transpose_lanes4 | in during"
    outside = f"GuardError: q8ta_add: wrote behind the buffer | after kernel of {file}: transpose_lanes4 | in during"
    assert naming.way(change, said) == naming.way(change, outside) == f"wrong by {file}"
    assert not naming.way(replace(change, file="refsim/exec/cpu/gemm/kernel.py"), said)
    assert not naming.way(change, said.removeprefix("no end: "))


def test_a_cause_that_predicts_everything_counts_whatever_its_class() -> None:
    change = Change("f.py", "in_zp", 0, 5, "out_zp", "index", "f", "acc - in_zp")
    row = agreed_cause("byte order")
    whole = replace(row.cause, explained=30)
    assert naming.named(change, [replace(row, cause=whole, exact=2)]) == "byte order"
    assert naming.named(change, [replace(row, cause=whole, exact=1, of=1)]) == "byte order"
    few = replace(whole, explained=3, differing=3)
    assert naming.named(change, [replace(row, cause=few, exact=1, of=1)]) == ""


_PLACE = Place("add_dot4", "refsim/core/lanes.py", 40, "x for y", shader="shaders/include/dot.glsl:9")
_KERNEL = Place(
    "q8ta_relu", "refsim/ops/q8ta_relu.py", 1, "x for y", called="lane(x) (refsim/ops/q8ta_relu.py:70)"
)


@pytest.mark.parametrize(
    ("file", "scope", "line", "place", "found"),
    [
        ("refsim/core/lanes.py", "add_dot4", 90, _PLACE, naming.RIGHT),
        ("refsim/core/lanes.py", "insert", 42, _PLACE, naming.RIGHT),
        ("refsim/core/lanes.py", "insert", 43, _PLACE, naming.ELSEWHERE),
        ("refsim/ops/q8ta_add.py", "kernel", 40, _PLACE, naming.ELSEWHERE),
        ("shaders/include/dot.glsl", "f", 8, _PLACE, naming.RIGHT),
        ("shaders/include/wide.glsl", "add_dot4", 80, _PLACE, naming.RIGHT),
        ("refsim/ops/q8ta_relu.py", "kernel", 90, _KERNEL, naming.RIGHT),
        ("refsim/ops/q8ta_relu.py", "_relu", 70, _KERNEL, naming.RIGHT),
        ("shaders/q8ta_relu.comp", "main", 90, _KERNEL, naming.RIGHT),
        ("shaders/q8ta_add.comp", "main", 1, _KERNEL, naming.ELSEWHERE),
        ("refsim/core/index.py", "f", 9, replace(_PLACE, others=("y (refsim/core/index.py:9)",)), naming.AMONG_EQUALS),
        ("refsim/ops/q8ta_relu.py", "kernel", 1, None, naming.UNTOLD),
        ("refsim/exec/cpu/relu/kernel.py", "kernel", 1, _KERNEL, ""),
    ],
)  # fmt: skip
def test_the_place_is_that_of_the_change(
    file: str, scope: str, line: int, place: Place | None, found: str
) -> None:
    source = "\n" * (line - 1) + "zp\n"
    change = Change(file, source, line - 1, line + 1, "x", "index", scope, "zp")
    row = agreed_cause("byte order")
    assert naming.located(change, [row, replace(row, cause=replace(row.cause, place=place))]) == found


def test_a_region_counts_if_it_says_where_the_error_is() -> None:
    change = Change("f.py", "in_zp", 0, 5, "out_zp", "index", "f", "acc - in_zp")
    expected = PackedBuffer.pack(np.arange(2 * 8 * 4 * 6).reshape(2, 8, 4, 6).astype(np.int8), "4W4C")

    def report(wrong: Callable[[np.ndarray], Any]) -> Report:
        actual = PackedBuffer.from_raw(expected.raw.copy(), expected.desc.shape, expected.desc.layout)
        wrong(actual.raw)
        return diff(expected, actual)

    def lane(raw: np.ndarray) -> None:
        raw[3::4] ^= np.arange(len(raw) // 4, dtype=np.uint8) | 1

    def scattered(raw: np.ndarray) -> None:
        raw[::7] ^= 1

    told = naming.region(change, [report(lane)])
    assert told.startswith("only in lane 3: ") and told in report(lane).facts
    assert naming.region(change, [report(lane), report(scattered)]) == ""
    assert naming.region(change, [report(lambda raw: raw.__setitem__(slice(0, 4), 9))]) == ""


KERNEL = [("refsim/exec/emulated.py", "run"), ("refsim/ops/x.py", "kernel")]
DEEPER = [("refsim/core/index.py", "buf_idx")] * 3
LOWER = [("refsim/exec/cpu/gemm/prepack.py", "lower"), ("refsim/exec/cpu/ir.py", "loop")]
PREPARED = "while x was prepared for the native route gemm"
WRITTEN = (
    "RuntimeError: Invalid user of intrinsic instruction! | `%v3 = call i16 @f()` was written by "
    "refsim/exec/cpu/narrow.py: narrow, called by refsim/exec/cpu/epilogue.py: narrowed | while the native kernel"
)
LOST = "DeviceError: q8ta_add: Kompute failed; got vkWaitForFences failed: VkResult -4 (the device was lost), need"


@pytest.mark.parametrize(
    ("file", "scope", "said", "frames", "found"),
    [
        ("refsim/ops/x.py", "kernel", "", KERNEL, "refsim/ops/x.py: kernel"),
        ("refsim/ops/x.py", "kernel", "", KERNEL + DEEPER, ""),
        ("refsim/exec/cpu/gemm/kernel.py", "tiles", PREPARED, LOWER, "preparing refsim/exec/cpu/gemm/prepack.py"),
        ("refsim/exec/cpu/gemm/kernel.py", "tiles", "ValueError", LOWER, ""),
        ("refsim/exec/cpu/winograd/kernel.py", "tiles", PREPARED, LOWER, ""),
        ("refsim/exec/cpu/ir.py", "tiles", PREPARED, LOWER, ""),
        ("refsim/exec/cpu/epilogue.py", "Requant.narrowed", WRITTEN, [], "refsim/exec/cpu/epilogue.py: narrowed"),
        ("refsim/exec/cpu/epilogue.py", "Requant.wide", WRITTEN, [], ""),
        ("refsim/exec/cpu/epilogue.py", "Requant.narrowed", WRITTEN.replace("was written by", "is near"), [], ""),
        ("shaders/q8ta_add.comp", "main", LOST, [], "device lost in q8ta_add"),
        ("shaders/q8ta_relu.comp", "main", LOST, [], ""),
        ("shaders/q8ta_add.comp", "main", "DeviceError: q8ta_add: no such device", [], ""),
    ],
)  # fmt: skip
def test_an_error_names_what_it_came_from(
    file: str, scope: str, said: str, frames: list[tuple[str, str]], found: str
) -> None:
    """A function, the sources of a kernel that was prepared, who wrote what LLVM refuses, a shader."""
    assert naming.error(replace(changed(file), scope=scope), said, frames) == found


def test_the_frames_of_what_an_error_came_of_are_the_innermost() -> None:
    """A StopIteration that leaves a generator becomes another error, whose own frames end in the generator."""

    def several() -> Iterator[Job]:
        yield Job("x", 0, "no block", 1, 0, ())  # type: ignore[arg-type]

    with pytest.raises(ValueError) as caught:
        try:
            list(several())
        except ParameterError as error:
            doing.note(error, "inside")
            raise ValueError("outside") from error
    assert through(caught.value)[-1] == ("refsim/exec/cpu/job.py", "__post_init__")
    assert doing.notes(caught.value) == ["inside"]


def changed(file: str) -> Change:
    return Change(file, "in_zp", 0, 5, "out_zp", "index", "f", "acc - in_zp")


def test_an_error_in_choosing_a_route_names_its_sources() -> None:
    """As it is told: the note that `choose` puts on an error of a rule."""
    call = bind(case("q8ta_conv2d_pw", 0)).call
    with (
        pytest.raises(ValueError) as caught,
        mock.patch.object(routes, "_why_not", side_effect=ValueError("x")),
    ):
        routes.choose(call)
    (note,) = doing.notes(caught.value)
    assert "the native route amx was asked whether it takes q8ta_conv2d_pw (x " in note
    frames = [("refsim/exec/cpu/routes.py", "choose"), ("refsim/exec/cpu/amx/prepack.py", "slower")]
    assert naming.prepared(changed("refsim/exec/cpu/amx/prepack.py"), f"ValueError: x | {note}", frames)
    assert not naming.prepared(changed("refsim/exec/cpu/gemm/prepack.py"), f"ValueError: x | {note}", frames)


def test_what_several_threads_alone_get_wrong_is_of_what_they_run() -> None:
    said = f"no end: Current thread | {naming.ALONE}"
    assert naming.together(changed("refsim/exec/cpu/wake.py"), said)
    assert not naming.together(changed("refsim/exec/cpu/wake.py"), "no end: Current thread")
    assert not naming.together(changed("refsim/exec/cpu/gemm/kernel.py"), said)
