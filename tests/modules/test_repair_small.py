"""Edits of small kernels of our own: what a macro, a declaration and a matrix become."""

from __future__ import annotations

from pathlib import Path

import pytest

from modules import build
from modules.test_modules_build import needs_tools
from modules.test_repair import BINDING, NOTHING
from refsim.modules.repair.code import Code
from refsim.modules.repair.edits import edits, parts
from refsim.modules.repair.found import FoundRepair
from refsim.modules.repair.schema import Given, Schema, edited, selectable
from refsim.modules.repair.search import BATCH
from refsim.modules.repair.validator import refused, tool
from refsim.spirv.module import Module
from refsim.spirv.reflect import interface


def compiled(source: str, folder: Path, options: tuple[str, ...]) -> Code:
    (folder / "small.comp").write_text(source)
    return Code(Module.parse(build.compiled(build.Module("m", "small"), folder, options, folder), "m"))


MACRO = """#version 450
layout(local_size_x = 4) in;
layout(set = 0, binding = 0) buffer Out { int out_words[]; };
layout(set = 0, binding = 1) readonly buffer In { int in_words[]; };
#define NEXT(AT) out_words[AT] = in_words[AT] - 7
void main() {
    const uint i = gl_GlobalInvocationID.x;
    NEXT(2u * i);
    NEXT(2u * i + 1u);
}
"""


@needs_tools
@pytest.mark.parametrize("options", [build.RELEASE, build.DEBUG])
def test_what_a_macro_holds_is_edited_on_all_lines_that_use_it(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    code = compiled(MACRO, tmp_path, options)
    found = [edit.changes for edit in next(parts(code)) if edit.said == '"+" in place of "-"']
    lines = [[line.line for one in changes if (line := code.line(one.site))] for changes in found]
    assert ([8, 9] in lines) == ("-g" in options), lines


MATRIX = """#version 450
layout(local_size_x = 4) in;
layout(set = 0, binding = 0) buffer Out { float out_words[]; };
layout(set = 0, binding = 1) readonly buffer In { float in_words[]; };
void main() {
    const uint i = gl_GlobalInvocationID.x;
    mat4 held;
    for (uint k = 0u; k < 4u; k++) {
        held[k] = vec4(in_words[4u * i + k]);
    }
    const mat4 other = held * in_words[i];
    out_words[i] = held[i % 4u][i / 4u % 4u] + other[1][2];
}
"""


@needs_tools
def test_the_number_of_a_binding_is_told_with_the_line_that_declares_it(tmp_path: Path) -> None:
    """No instruction stands there. A number that two have is mended by one that none has."""
    code = compiled(MATRIX.replace("binding = 1", "binding = 0"), tmp_path, build.DEBUG)
    found = [
        FoundRepair("m", edit, code)
        for edit in next(parts(code))
        if edit.said.startswith("binding 1 in place")
    ]
    assert [f"{one.line}: {one.change}" for one in found] == [
        f"{tmp_path}/small.comp:{line}: binding 1 in place of 0 for {name}"
        for line, name in ((4, "In"), (3, "Out"))
    ]
    assert [row.number for row in interface(edited(code, found[0].edit)).bindings] == [0, 1]


@needs_tools
@pytest.mark.parametrize("options", [build.RELEASE, build.DEBUG])
def test_the_columns_of_a_matrix_are_edited_like_components(options: tuple[str, ...], tmp_path: Path) -> None:
    code = compiled(MATRIX, tmp_path, options)
    every = [edit for edit in edits(code) if selectable(code, edit)]
    found = [edit for edit in every if edit.said.startswith("component ")]
    assert found or options == build.DEBUG
    module = Schema(code, (found or every)[:BATCH], Given(code, NOTHING), BINDING).module
    assert tool() is None or refused(module.to_bytes()) is None
