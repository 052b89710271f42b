"""Winograd's tiles are stored where they belong only if all of them lies inside the output, along each dim."""

from __future__ import annotations

import pytest
from cases import conv

from refsim.exec.cpu import NativeExecutor
from refsim.ops.base.binding import bind
from refsim.ops.base.prepared import Prepared


@pytest.mark.parametrize("route", ["winograd2", "winograd4"])
@pytest.mark.parametrize("size", [(9, 24), (24, 9), (5, 8), (8, 5), (8, 8), (3, 40), (40, 3)], ids=str)
@pytest.mark.parametrize("out", [20, 64])
def test_outputs_that_end_within_a_tile(route: str, size: tuple[int, int], out: int) -> None:
    bound = bind(conv("q8ta_conv2d_im2col", (2, 32, *size), out, 3))
    executor = NativeExecutor(force={"q8ta_conv2d_im2col": route})
    choice = executor.choose(Prepared(bound.call))
    assert choice.route == route, dict(choice.rejected)
    assert executor.run_call(bound.call, bound.inputs) == bound.call.expected(bound.inputs)
