"""A compiled kernel does not say where it fails: the emulated executor finds out, and says which kernel it was."""

from __future__ import annotations

import traceback
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from refsim.core import doing
from refsim.core.buffer import GUARD, GUARD_WORDS
from refsim.core.jit import emulated_kernel, jitable
from refsim.exec import emulated
from refsim.exec.emulated import EmulatedExecutor
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import kernel_of


@jitable
def _fifth(four: Any, k: Any) -> Any:
    return four[k + 1]


@emulated_kernel
def _reads_a_fifth_lane(reached, spec, push, x, out):  # type: ignore[no-untyped-def]
    for _, _, i in np.ndindex(reached):
        four = [x[i], 0, 0, 0]
        for k in range(4):
            out[i] += _fifth(four, k)


@emulated_kernel
def _reads_elsewhere(reached, spec, push, x, out):  # type: ignore[no-untyped-def]
    for _, _, i in np.ndindex(reached):
        out[i] = x[push[0]]


def _bound() -> BoundCase:
    params = {"in_scale": 0.05, "in_zp": 3, "out_scale": 0.04, "out_zp": -9}
    return bind(Case("q8ta_relu", params, {"x": ((1, 8, 5, 6), "4C1W")}, "4C1W", 11))


@pytest.mark.parametrize("most", [1 << 12, 0])
def test_an_error_of_a_kernel_says_where_it_was(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """The functions in its traceback, unless the kernel is too large to run as plain Python; the kernel always."""
    monkeypatch.setattr(emulated, "MOST_PLAIN", most)
    broken = replace(kernel_of("q8ta_relu"), run=_reads_a_fifth_lane)
    monkeypatch.setattr(emulated, "kernel_of", {"q8ta_relu": broken}.__getitem__)
    bound = _bound()
    with pytest.raises(IndexError) as stopped:
        EmulatedExecutor().run_call(bound.call, bound.inputs)
    told = f"kernel of {__name__.replace('.', '/')}.py: q8ta_relu"
    assert f"while {told} ran" in doing.notes(stopped.value)
    inner = [frame.name for frame in traceback.extract_tb(stopped.value.__traceback__)]
    assert (inner[-2:] == ["_reads_a_fifth_lane", "_fifth"]) == bool(most), inner


@pytest.mark.parametrize(
    ("at", "found"), [(0, GUARD), (GUARD_WORDS - 1, GUARD), (GUARD_WORDS, 0), (60_000, 0)], ids=str
)
@pytest.mark.parametrize("behind", [True, False])
def test_a_read_outside_finds_guard_words_and_then_zeros(
    monkeypatch: pytest.MonkeyPatch, at: int, found: int, behind: bool
) -> None:
    """As it does on a device, whatever else lies in this process' memory."""
    op = kernel_of("q8ta_relu")
    bound = _bound()
    place = bound.inputs["x"].words.size + at if behind else -1 - at
    monkeypatch.setattr(emulated, "kernel_of", lambda name: replace(op, run=_reads_elsewhere))
    (dispatch,) = bound.call.dispatches()
    launch = replace(dispatch.launch, push=(place & 0xFFFFFFFF,))
    out = EmulatedExecutor().run(launch, [bound.inputs["x"].words])
    assert set(out.words[: launch.reached[0]].tolist()) == {found}
