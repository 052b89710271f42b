"""Edits in words, and the line of refsim's own shader that reads the same words as an edited line of a kernel."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refsim.bytediff.search import rules
from refsim.bytediff.search.patterns import Pattern
from refsim.bytediff.search.schema import ROOT, KernelSchema, schema_of
from refsim.bytediff.search.site import Alternative
from refsim.bytediff.search.words import class_of, place_of, text_of
from refsim.ops.base.registry import OPS, kernel_of


def _line(path: str, number: int) -> str:
    return (ROOT / path).read_text().splitlines()[number - 1]


@pytest.mark.parametrize(
    ("kernel", "text", "shader", "found"),
    [
        ("q8ta_conv2d_dw", "(ih < push[X + H])", "include/conv.glsl", "uint(h) < uint(push[X + H])"),
        ("q8ta_conv2d_dw", "j * push[DILATION_W]", "q8ta_conv2d_dw.comp", "j * push[DILATION_W]"),
        ("q8ta_im2col", "splat(push[IN_ZP])", "q8ta_im2col.comp", ": splat(push[IN_ZP])"),
    ],
)
def test_the_shader_s_line_is_told_where_one_line_alone_reads_the_same_words(
    kernel: str, text: str, shader: str, found: str
) -> None:
    places = map(place_of, schema_of(kernel).edits)
    told = {(place.file, place.line): place.shader.rpartition(":") for place in places if place.shader}
    for path, _, line in told.values():
        assert Path(path).parts[0] == "shaders" and _line(path, int(line))
    (there,) = (at for row, at in told.items() if text in _line(*row))
    assert there[0] == f"shaders/{shader}" and found in _line(there[0], int(there[2]))


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ("q8ta_clone", "rows of all planes in one in index.buf_idx(push, X, x_hash, kw, kh, kc, n)"),
        ("nchw_to_int8x4", "((n * push[OUT + W] + kw) * push[OUT + C] + kc) * push[OUT + H] + kh for "
         "((n * push[OUT + C] + kc) * push[OUT + H] + kh) * push[OUT + W] + kw"),
    ],
)  # fmt: skip
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
        "print(*map(words.text_of, schema.schema_of('q8ta_pixel_shuffle').edits))"
    )
    first, second = (
        subprocess.check_output([sys.executable, "-c", source], env=os.environ | {"PYTHONHASHSEED": seed})
        for seed in "12"
    )
    assert first == second


@pytest.mark.long
def test_every_row_of_the_table_fits_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is written another way must not make a row useless unseen."""
    used, alternatives = set[int](), Pattern.alternatives

    def watched(row: Pattern, *given: Any) -> Iterator[Alternative]:
        for made in alternatives(row, *given):
            used.add(id(row))
            yield made

    monkeypatch.setattr(Pattern, "alternatives", watched)
    for op in (op for op in OPS.values() if op.expand is None):
        kernel = kernel_of(op.name)
        KernelSchema(kernel.run, (kernel.push, kernel.spec), lacking=True)
        for function in (kernel.launch, op.prepack):
            if function is not None and not function.__closure__:
                KernelSchema(function, (), host=True)
    rows = {id(row): row for table in rules.TABLES for found in table.values() for row in found}
    assert [ast.unparse(row.sought) for key, row in rows.items() if key not in used] == []
