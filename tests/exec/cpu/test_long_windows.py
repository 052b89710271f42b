"""A depthwise kernel of a window of any width is as short as another: long ones have loops."""

from __future__ import annotations

import pytest

from refsim.exec.cpu.depthwise.kernel import depthwise, is_long
from refsim.exec.cpu.dot import DOTS
from refsim.exec.cpu.ir import ModuleText

WIDTHS = (128, 129, 256, 1024)


@pytest.mark.parametrize("dot", DOTS)
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_wider_windows_make_no_longer_kernels(dot: str, stride: int) -> None:
    lengths = []
    for extent in WIDTHS:
        assert is_long(DOTS[dot], 8, extent, stride)
        module = ModuleText()
        depthwise(
            module, "k", dot=dot, lanes=4, ranges=1, words=4, taps_h=8, extent_w=extent, stride_w=stride, clamp="full",
            float_zp=False, packs=False,
        )  # fmt: skip
        lengths.append(str(module).count("\n"))
    assert max(lengths) - min(lengths) <= 0.1 * min(lengths), lengths
