"""--origin: every verb that names an operator shows the line of code that made it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from device.simulated import Runtime
from saved import arrays, flip, with_a_wrong_byte

from refsim.exec.model import load

NET = Path(__file__).parents[1] / "data" / "devtools"
FILE, RECORD = NET / "net.pte", ("--origin", NET / "net.etrecord")
MADE = "made by: first.wide (Conv2d)\n  net.py:15 in forward: y = self.wide(y)\n"
#: The output of that operator.
VALUE = "delegate0_v50"


@pytest.mark.parametrize(
    "verb", [("inspect",), ("run", "--random", "0"), ("compare", "--random", "0", "-x", "cpu,cpu:emulated")]
)
def test_a_column(refsim, monkeypatch: pytest.MonkeyPatch, verb: tuple[str, ...]) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    done = refsim(f"{verb[0]} {FILE}", *verb[1:], *RECORD)
    assert done.status == 0
    rows = [line for line in done.out.splitlines() if line.endswith("net.py:15 first.wide")]
    assert len(rows) == 1 and "q8ta_conv2d" in rows[0] and VALUE.partition("_")[2] in rows[0]
    found = refsim(f"{verb[0]} {FILE}", *verb[1:], *RECORD, "--json").json["origins"]
    assert len(found) == 14 and found[VALUE]["module"] == "first.wide"
    (line,) = found[VALUE]["frames"]
    assert line == {"file": "net.py", "line": 15, "function": "forward", "code": "y = self.wide(y)"}
    assert refsim(f"{verb[0]} {FILE}", *verb[1:], "--json").json["origins"] is None


def test_a_record_that_is_not_there_is_one_of_its_kind(refsim) -> None:
    done = refsim(f"inspect {FILE} --origin {NET}/net.pt")
    done.refused(f"got no such file; did you mean {NET / 'net.pt2'}?")
    refsim(f"inspect {FILE} --origin {NET}/net.etrecor").refused(f"did you mean {NET / 'net.etrecord'}?")


def test_bisect(refsim, tmp_path: Path) -> None:
    refsim(f"run {FILE} --random 0 --dump . {tmp_path}/dump")
    flip(tmp_path / "dump" / f"{VALUE}.bin")
    done = refsim(f"bisect {FILE} --random 0 --actual {tmp_path}/dump", *RECORD)
    assert done.status == 1 and MADE in done.out
    assert "origin: 14 of 14 operators found" in done.out


@pytest.mark.long
def test_triage(refsim, tmp_path: Path) -> None:
    assert refsim(f"expose {FILE} -o {tmp_path}/e.pte").status == 0
    made = Runtime((tmp_path / "e.pte").read_bytes()).run(load(FILE).random_inputs(0))
    manifest = json.loads((tmp_path / "e.pte.json").read_text())
    name = f"out{[row['value'] for row in manifest['outputs']].index(VALUE)}"
    with_a_wrong_byte(arrays(tmp_path / "right.npz", made), name, tmp_path / "o.npz")
    given = f"triage {tmp_path}/e.pte --random 0 --outputs {tmp_path}/o.npz"
    done = refsim(given, *RECORD)
    assert done.status == 1 and MADE in done.out
    assert refsim(given, *RECORD, "--json").json["origins"][VALUE]["module"] == "first.wide"
    page = tmp_path / "page.html"
    refsim(f"{given} --html {page}", *RECORD)
    shown = page.read_text()
    assert '<th scope="col">origin</th>' in shown and ">net.py:15 first.wide</td>" in shown
    assert "made by: <code>first.wide (Conv2d)</code>" in shown
    assert "<code>net.py:15 in forward: y = self.wide(y)</code>" in shown
    refsim(f"{given} --html {page}")
    assert "made by" not in page.read_text() and ">origin<" not in page.read_text()


def test_modules_are_groups_in_model_explorer(refsim, tmp_path: Path) -> None:
    refsim(f"inspect {FILE}", *RECORD, "--model-explorer", tmp_path / "g.json")
    (graph,) = json.loads((tmp_path / "g.json").read_text())["graphs"]
    node = next(node for node in graph["nodes"] if node["id"] == VALUE)
    assert node["namespace"] == "delegate 0/first/wide"
    made = "first.wide (Conv2d)\nnet.py:15 in forward: y = self.wide(y)"
    assert {"key": "made by", "value": made} in node["attrs"]


def test_the_record_of_another_program(refsim, models: Path) -> None:
    refsim(f"inspect {models}/mixed_ops.pte", *RECORD).refused("none of the operators are in this program")
    refsim(f"inspect {FILE} --origin {FILE}").refused("not an ETRecord")
