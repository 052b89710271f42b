"""Edits in words, and the line of refsim's own shader that reads the same words as an edited line of a kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from refsim.bytediff.search.schema import ROOT, schema_of
from refsim.bytediff.search.words import class_of, place_of, text_of

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


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (
            "q8ta_add",
            "index.word_idx(push, A, a_hash, w, h, c, n) for index.word_idx(push, B, b_hash, w, h, c, n)",
        ),
        ("q8ta_clone", "rows of all planes in one in index.buf_idx(push, X, x_hash, kw, kh, kc, n)"),
        ("q8ta_im2col", "push[STRIDE_H] without oh *, and push[STRIDE_W] without ow *"),
        ("linear_dq8ca_q4gsw", "no line in (row // m, row % m)"),
    ],
)
def test_what_people_get_wrong_in_several_places_is_one_edit(op: str, words: str) -> None:
    assert words in map(text_of, schema_of(op).edits)


def test_the_step_of_a_row_is_no_scale() -> None:
    edits = {text_of(edit): class_of(edit) for edit in schema_of("quantize_and_pack_4h4w").edits}
    assert edits["push[OUT + H] for height"] == "address"


def test_only_a_part_that_is_left_is_told_as_what_is_left() -> None:
    """What stands for a sum otherwise is told whole: twice the greater bound is no bound without the other."""
    told = {text_of(edit) for edit in schema_of("choose_qparams_affine").edits}
    assert "np.float32(2.0) * max(-lo, hi) for hi - lo" in told
    assert [text for text in told if text.endswith("without - lo")] == ["hi without - lo"]


def test_edits_have_the_same_numbers_in_every_process() -> None:
    """They are tried in this order, so that a search says the same."""
    source = (
        "from refsim.bytediff.search import schema, words\n"
        "print([words.text_of(edit) for edit in schema.schema_of('q8ta_pixel_shuffle').edits])"
    )
    first, second = (
        subprocess.run(
            [sys.executable, "-c", source], env=os.environ | {"PYTHONHASHSEED": seed}, check=True,
            stdout=subprocess.PIPE, text=True,
        ).stdout
        for seed in "12"
    )  # fmt: skip
    assert first == second
