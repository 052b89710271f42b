"""The line of refsim's own shader that reads the same words as an edited line of a kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from refsim.bytediff.search.schema import ROOT, schema_of
from refsim.bytediff.search.words import place_of

#: (kernel, file, text of a line) -> (shader, text of its line).
LINES = {
    ("q8ta_conv2d_dw", "base/conv", "(ih < push[X + H])"): (
        "include/conv.glsl",
        "uint(h) < uint(push[X + H])",
    ),
    ("q8ta_conv2d_dw", "base/conv", "j * push[DILATION_W]"): ("q8ta_conv2d_dw.comp", "j * push[DILATION_W]"),
    ("q8ta_im2col", "q8ta_im2col", "splat(push[IN_ZP])"): ("q8ta_im2col.comp", ": splat(push[IN_ZP])"),
}


@pytest.mark.parametrize(("kernel", "file", "text"), LINES)
def test_the_shader_s_line_is_told_where_one_line_alone_reads_the_same_words(
    kernel: str, file: str, text: str
) -> None:
    places = map(place_of, schema_of(kernel).edits)
    told = {(place.file, place.line): place.shader for place in places if place.shader}
    for at in told.values():
        shader, _, line = at.rpartition(":")
        assert Path(shader).parts[0] == "shaders" and (ROOT / shader).read_text().splitlines()[int(line) - 1]
    source = f"refsim/ops/{file}.py"
    (number,) = (n for n, row in enumerate((ROOT / source).read_text().splitlines(), 1) if text in row)
    written, _, line = told[source, number].rpartition(":")
    shader, found = LINES[kernel, file, text]
    assert (
        written == f"shaders/{shader}" and found in (ROOT / written).read_text().splitlines()[int(line) - 1]
    )
