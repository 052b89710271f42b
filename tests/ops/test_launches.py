"""Nobody changes by accident which build of a shader is dispatched, or in what workgroups: no byte would show it.

After a change on purpose: ``python tests/ops/launched.py --write``, and look at what it changed.
"""

from __future__ import annotations

import launched
import told

from refsim.ops.base.registry import OPS


def test_what_is_dispatched_is_what_is_written_down() -> None:
    written, found = launched.FILE.read_text().splitlines(), launched.lines()
    other = told.choices(written, found, launched.chosen_in)
    assert not other, other


def test_the_record_has_every_operator_and_both_sides_of_a_choice() -> None:
    lines = list(launched.dispatched())
    assert {line.partition(" ")[0] for line in lines} == set(OPS)
    depthwise = [line for line in lines if line.startswith("q8ta_conv2d_dw ")]
    for build in (" plain ", ".r2 ", ".r4 ", "k5x5", "k3x3"):
        assert any(build in line for line in depthwise), build
    gemv = {line.split()[-3] for line in lines if " q8ta_linear_gemv " in line}
    assert {"1x8x8", "1x8x64"} <= gemv, gemv


def test_another_choice_leads_to_the_function_that_made_it() -> None:
    """The workgroup of many operators comes from one function, a tile from a table: not from the operator's file."""
    lines = list(launched.dispatched())
    relu = next(line for line in lines if line.startswith("q8ta_relu ") and " 1x4x4 " in line)
    local = relu.split()[6]
    said = launched.chosen_in(relu, relu.replace(f" {local} ", " 9x9x9 "), relu)
    assert said.startswith(
        "refsim/core/launch.py: column_local, handed on by refsim/ops/base/elementwise.py: tiled"
    )
    build = next(line for line in lines if " k5x5." in line)
    said = launched.chosen_in(build, build.replace(build.split()[4], "plain"), build)
    assert told.CHOSEN.findall(f"chosen in {said}")[:2] == [
        "refsim/ops/base/conv.py",
        "refsim/ops/q8ta_conv2d_dw.py",
    ]
    tiles, matrices = next(launched.tiles()), next(launched.matrices())
    assert launched.chosen_in(tiles, "", tiles) == "refsim/ops/base/gemm.py"
    assert launched.chosen_in(matrices, "", matrices) == "refsim/ops/base/coopmat.py"
