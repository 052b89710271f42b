"""Bytes that move between layouts: whole tiles move as such. In parts they would be the same bytes, only later."""

from __future__ import annotations

import pytest

from refsim.exec.cpu import NativeExecutor, tile4x4
from refsim.exec.cpu.ir import ModuleText
from refsim.exec.cpu.relayout import repack as kernel
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.prepared import Prepared

repack = kernel.repack
PACK_CHANNELS = ("4C", "4C1W", "4W4C")


def whole_tiles_alone(module: ModuleText, name: str, *, source: str, to: str, at_once: int) -> None:
    """The kernel, but what is done in parts is not stored."""
    store = tile4x4.store_inside
    tile4x4.store_inside = lambda *rest: None
    try:
        repack(module, name, source=source, to=to, at_once=at_once)
    finally:
        tile4x4.store_inside = store


@pytest.mark.parametrize("shape", [(2, 16, 3, 4), (1, 20, 2, 16), (1, 80, 3, 12)], ids=str)
@pytest.mark.parametrize("to", PACK_CHANNELS)
@pytest.mark.parametrize("source", PACK_CHANNELS)
def test_whole_tiles_are_not_done_in_parts(
    source: str, to: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = bind(Case("q8ta_clone", {}, {"x": (shape, source)}, to, 1))
    executor = NativeExecutor(force={"q8ta_clone": "repack"})
    if executor.choose(Prepared(bound.call)).route != "repack":
        assert source == to
        return
    monkeypatch.setattr(kernel, "repack", whole_tiles_alone)
    assert executor.run_call(bound.call, bound.inputs) == bound.call.expected(bound.inputs)


@pytest.mark.parametrize("width", [1, 2, 3, 5, 6, 7, 10, 11, 23])
@pytest.mark.parametrize("to", PACK_CHANNELS)
@pytest.mark.parametrize("source", PACK_CHANNELS)
def test_rows_that_end_within_a_tile(source: str, to: str, width: int) -> None:
    executor = NativeExecutor(force={"q8ta_clone": "repack"})
    for channels in (4, 7, 21):
        bound = bind(Case("q8ta_clone", {}, {"x": ((2, channels, 3, width), source)}, to, 1))
        if executor.choose(Prepared(bound.call)).route != "repack":
            assert source == to
            return
        assert executor.run_call(bound.call, bound.inputs) == bound.call.expected(bound.inputs)
