"""The lines of code behind the operators of a delegate: every one found, and none where it cannot be known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from refsim.devtools.origins import origins
from refsim.devtools.program import ExportedProgram
from refsim.devtools.record import read_exported
from refsim.exec.model import load
from refsim.graph.origin import Origin

DATA = Path(__file__).parents[1] / "data"
NET = DATA / "devtools"
#: Delegate and node of net.pte -> the lines of net.py, and the module.
LINES = {
    (0, 0): ([], ""), (0, 1): ([28], "stem"),
    (0, 2): ([14], "first.narrow"), (0, 3): ([15], "first.wide"), (0, 4): ([16], "first"),
    (0, 5): ([14], "second.narrow"), (0, 6): ([15], "second.wide"), (0, 7): ([16], "second"),
    (0, 8): ([16], "second"), (0, 9): ([30], ""),
    (1, 0): ([31], ""), (1, 1): ([31], ""), (1, 2): ([32], "head"), (1, 3): ([32], "head"),
}  # fmt: skip


def lines(found: dict[tuple[int, int], Origin]) -> dict[tuple[int, int], tuple[list[int], str]]:
    return {place: ([f.line for f in origin.frames], origin.module) for place, origin in found.items()}


@pytest.mark.parametrize("record", ["net.pt2", "net.etrecord"])
def test_every_operator(record: str) -> None:
    given = read_exported(NET / record)
    found = origins(load(NET / "net.pte").graphs, given.program)
    assert lines(found) == LINES
    assert found[0, 0].input == "x" and str(found[0, 0]) == "input x"
    assert str(found[0, 3]) == "net.py:15 first.wide"
    text = (NET / "net.py").read_text().splitlines()
    frames = [frame for origin in found.values() for frame in origin.frames]
    assert all(frame.code == text[frame.line - 1].strip() for frame in frames)


def test_what_instructions_stand_for() -> None:
    """Debug handles of an ETRecord say which operators are in a delegate; they agree with what is found without."""
    given = read_exported(NET / "net.etrecord")
    assert sorted(given.handles) == [0, 1, 2] and given.handles[1] == {34}
    handles = {0: given.handles[0], 1: given.handles[2]}
    assert lines(origins(load(NET / "net.pte").graphs, given.program, handles)) == LINES
    nothing = {0: frozenset[int](), 1: frozenset[int]()}
    assert not origins(load(NET / "net.pte").graphs, given.program, nothing)


@pytest.mark.parametrize("record", ["net.pt2", "net.etrecord"])
def test_by_dataflow_alone(record: str) -> None:
    """Two blocks that are quantized alike are told apart by what they read."""
    program = read_exported(NET / record).program
    alike = replace(program, nodes=tuple(replace(node, numbers={}) for node in program.nodes))
    assert lines(origins(load(NET / "net.pte").graphs, alike)) == LINES


def requantized(program: ExportedProgram, number: int) -> ExportedProgram:
    """The program with another scale in every quantize and dequantize of one value."""
    quantizes = [node for node in program.nodes if node.target.endswith("quantize_per_tensor.default")]
    old = quantizes[number].numbers
    nodes = [
        replace(node, numbers={**node.numbers, "scale": 3.25}) if node.numbers == old else node
        for node in program.nodes
    ]
    return replace(program, nodes=tuple(nodes))


@pytest.mark.parametrize("number", range(0, 14, 3))
def test_of_another_program_nothing_wrong_is_said(number: int) -> None:
    """A value that differs is not found, nor is what reads it. What is found is right."""
    program = requantized(read_exported(NET / "net.pt2").program, number)
    found = lines(origins(load(NET / "net.pte").graphs, program))
    assert len(found) < len(LINES)
    assert all(LINES[place] == said for place, said in found.items())


def test_modules_without_lines() -> None:
    model = load(DATA / "models" / "refine_seg.pte")
    found = origins(model.graphs, read_exported(DATA / "models" / "refine_seg.pt2").program)
    assert len(found) == len(list(model.nodes()))
    assert [found[0, node].module for node in (1, 2, 3, 4, 17, 28)] == [
        "stem", "res.0.a", "res.0.b", "res.0", "up.0", "out",
    ]  # fmt: skip
    assert found[0, 4].lines() == ["res.0 (Res)"] and str(found[0, 19]) == "aten.add.Tensor"
