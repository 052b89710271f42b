"""What joins other tools: `etdump`, --origin, and the files for Model Explorer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device.simulated import Runtime
from saved import arrays, flip, with_a_wrong_byte

import refsim as api
from refsim.core.errors import MissingDependencyError, ParameterError
from refsim.devtools.etdump_file import read_etdump
from refsim.devtools.etdump_schema import ETDUMP
from refsim.devtools.inspector import inspector_comparator
from refsim.devtools.model_explorer import COLOURS, GRAPH
from refsim.exec.model import load
from refsim.formats.flatbuffer.encode import encode

NET = Path(__file__).parents[1] / "data" / "devtools"
FILE, DUMP, BUFFER = NET / "net.pte", NET / "net.etdp", NET / "net.bin"


def added(path: Path, more: float, element: int, instruction: int, sizes: tuple[int, ...]) -> Path:
    """The debug buffer with more in one element of the last tensor that an instruction gave."""
    (run,) = read_etdump(DUMP, BUFFER).executions()
    found = [event.debug for event in run.events if event.debug and event.debug.instruction == instruction]
    tensor = [one.value.tensor for one in found if one.value and not one.value.is_output][-1]
    assert tensor is not None and tensor.sizes == sizes
    raw = np.frombuffer(BUFFER.read_bytes(), np.float32).copy()
    raw[tensor.offset // 4 + element] += np.float32(more)
    raw.tofile(path)
    return path


def test_a_right_recording(refsim) -> None:
    content = refsim(f"etdump {FILE} {DUMP} --buffer {BUFFER} --json").json
    assert content["same"]
    assert [row["value"] for row in content["calls"]] == ["delegate0_v77", "delegate1_v19"]
    assert [(row["instruction"], row["steps"]) for row in content["calls"]] == [(0, None), (2, 0)]


def test_a_wrong_delegate(refsim, tmp_path: Path) -> None:
    wrong = added(tmp_path / "wrong.bin", 0.25, 137, 0, (1, 8, 8, 8))
    done = refsim(f"etdump {FILE} {DUMP} --buffer {wrong} --origin {NET}/net.etrecord")
    assert done.status == 1 and "522 elements: 1 differ" in done.out
    first = "first that differs in run 0, delegate0_v77: element 0,2,1,1"
    assert f"{first}\nmade by: net.py:30 in forward" in done.out
    first, second = refsim(f"etdump {FILE} {DUMP} --buffer {wrong} --json").json["calls"]
    assert (first["differing"], first["first"]) == (1, [0, 2, 1, 1])
    assert first["largest"] == pytest.approx(0.25, abs=1e-6) and second["differing"] == 0


def test_steps(refsim, tmp_path: Path) -> None:
    added(tmp_path / "w.bin", 5 * 0.0024581081726971796, 3, 2, (1, 10))
    row = refsim(f"etdump {FILE} {DUMP} --buffer {tmp_path}/w.bin --json").json["calls"][1]
    assert (row["differing"], row["steps"], row["first"]) == (1, 5, [0, 3])


def test_other_etdumps_and_buffers_are_refused(refsim, models: Path, tmp_path: Path, monkeypatch) -> None:
    refsim(f"etdump {FILE} {DUMP}").refused(f"a file of its own, --buffer; did you mean {BUFFER}?\n")
    monkeypatch.chdir(tmp_path)  # whose name is long
    short, some = Path("short.bin"), Path("some.etdp")
    short.write_bytes(bytes(9)), some.write_bytes(DUMP.read_bytes())
    done = refsim(f"etdump {FILE} {some} --buffer {short}")
    done.refused(f"need as many bytes as the runtime wrote: {short} has 9\n")
    for name in ("a.bin", "b.raw"):
        Path(name).write_bytes(BUFFER.read_bytes())
    done = refsim(f"etdump {FILE} {some} --buffer {short}")
    done.refused("; did you mean one of a.bin, b.raw?\n")
    done = refsim(f"etdump {FILE} {NET}/runtime.etdp --buffer {NET}/runtime.bin")
    done.refused("not the arguments of this")
    done = refsim(f"etdump {models}/mixed_ops.pte {DUMP} --buffer {BUFFER}")
    done.refused("not the arguments of this delegate")
    refsim(f"etdump {FILE} {FILE}").refused("not an ETDump; got a .pte, need what")


def test_a_call_that_was_not_recorded(refsim, tmp_path: Path) -> None:
    whole = read_etdump(DUMP).dump
    loading, run = whole.runs
    kept = tuple(event for event in run.events if event.debug is None or event.debug.instruction != 2)
    part = tmp_path / "part.etdp"
    part.write_bytes(encode(replace(whole, runs=(loading, replace(run, events=kept))), ETDUMP))
    given = f"etdump {FILE} {part} --buffer {BUFFER}"
    done = refsim(given)
    assert done.status == 2 and "got 1 of 2; delegate1_v19 not compared" in done.err
    assert refsim(f"{given} --json").json["not_compared"] == ["delegate1_v19"]
    assert refsim(f"{given} --partial").status == 0


def test_the_comparator_without_executorch(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ParameterError, match="need differing, steps, largest"):
        inspector_comparator(FILE, "mean")
    monkeypatch.setattr("refsim.devtools.inspector.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="ExecuTorch is not installed"):
        inspector_comparator(FILE)


RECORD = ("--origin", NET / "net.etrecord")
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


def test_bisect_says_the_line(refsim, tmp_path: Path) -> None:
    refsim(f"run {FILE} --random 0 --dump . {tmp_path}/dump")
    flip(tmp_path / "dump" / f"{VALUE}.bin")
    done = refsim(f"bisect {FILE} --random 0 --actual {tmp_path}/dump", *RECORD)
    assert done.status == 1 and MADE in done.out
    assert "origin: 14 of 14 operators found" in done.out


@pytest.mark.long
def test_triage_and_its_page_say_it(refsim, tmp_path: Path) -> None:
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


DEVICE = Path(__file__).parents[1] / "data" / "device"


def exported(refsim, file: Path, folder: Path) -> list[dict[str, Any]]:
    """The nodes of a graph file, whose form is checked: what Model Explorer's `Graph` and `GraphNode` have."""
    done = refsim(f"inspect {file} --model-explorer {folder}/graph.json")
    assert done.status == 0 and "operator" in done.out  # the table is printed as ever
    content = json.loads((folder / "graph.json").read_text())
    assert content.keys() == {"label", "graphs"} and content["label"] == file.name
    (graph,) = content["graphs"]
    assert graph.keys() == {"id", "nodes"} and graph["id"] == GRAPH
    nodes = graph["nodes"]
    ids = {node["id"] for node in nodes}
    assert len(ids) == len(nodes)
    for node in nodes:
        assert node.keys() == {"id", "label", "namespace", "incomingEdges", "attrs", "outputsMetadata"}
        assert all(edge["sourceNodeId"] in ids for edge in node["incomingEdges"])
        rows = [node["attrs"], *(output["attrs"] for output in node["outputsMetadata"])]
        assert all(type(pair["value"]) is str for row in rows for pair in row)
    return list(nodes)


@pytest.mark.parametrize("name", ["mixed_ops", "refine_seg"])
def test_every_operator_and_every_edge(refsim, models: Path, tmp_path: Path, name: str) -> None:
    nodes = {node["id"]: node for node in exported(refsim, models / f"{name}.pte", tmp_path)}
    model = api.load(models / f"{name}.pte")
    for number, node in model.nodes():
        shown = nodes[f"delegate{number}_v{node.outputs[0]}"]
        assert (shown["label"], shown["namespace"]) == (node.operator, f"delegate {number}")
    # all of it hangs together: from the output, every node but prepacked constants is reached
    seen, left = set(), ["output 0"]
    while left:
        at = left.pop()
        if at not in seen:
            seen.add(at)
            left += [edge["sourceNodeId"] for edge in nodes[at]["incomingEdges"]]
    assert "input 0" in seen and len(seen) == len(nodes)
    if name == "mixed_ops":
        says_what_it_is(nodes)


def says_what_it_is(nodes: dict[str, dict[str, Any]]) -> None:
    node = nodes["delegate0_v66"]
    assert [edge["sourceNodeId"] for edge in node["incomingEdges"]] == ["delegate0_v54", "delegate0_v63"]
    attrs = {pair["key"]: pair["value"] for pair in node["attrs"]}
    assert attrs["kernels"] == "q8ta_add" and attrs["out_zp"] == "9"
    facts = {pair["key"]: pair["value"] for pair in node["outputsMetadata"][0]["attrs"]}
    assert (facts["tensor_name"], facts["layout"], facts["shape"]) == ("delegate0_v66", "4C", "1x32x16x16")
    assert nodes["instruction 1"]["label"] == "aten::mean.out"


def results(path: Path, nodes: set[str]) -> dict[str, dict[str, str]]:
    """Node data for a graph of these nodes; a number or a text is a value."""
    (held,) = json.loads(path.read_text()).values()
    assert held.keys() == {"name", "results"} and held["results"].keys() <= nodes
    assert all(row.keys() <= {"value", "bgColor", "textColor"} for row in held["results"].values())
    return dict(held["results"])


@pytest.mark.long
def test_verdicts_of_bisect(refsim, head: str, models: Path, tmp_path: Path) -> None:
    nodes = {node["id"] for node in exported(refsim, models / "linear_head.pte", tmp_path)}
    assert refsim(f"run {head} --dump . {tmp_path}/dump").status == 0
    flip(tmp_path / "dump" / "delegate0_v24.bin")
    line = f"bisect {head} --actual {tmp_path}/dump --node-data {tmp_path}/data.json"
    assert refsim(line).status == 1
    found = results(tmp_path / "data.json", nodes)
    wrong, right = found["delegate0_v24"], found["delegate0_v20"]
    assert wrong == {"value": "wrong", "bgColor": COLOURS["wrong"][0], "textColor": "#ffffff"}
    assert right["value"] == "same" and right["bgColor"] == COLOURS["same"][0]


def test_verdicts_of_triage(refsim, models: Path, tmp_path: Path) -> None:
    outputs = with_a_wrong_byte(DEVICE / "linear_head.raw.npz", "out4", tmp_path / "o.npz")
    given = f"-i {models}/linear_head.io.npz --outputs {outputs} --node-data {tmp_path}/data.json"
    assert refsim(f"triage {DEVICE}/linear_head.raw.pte {given}").status == 1
    for file in (models / "linear_head.pte", DEVICE / "linear_head.raw.pte"):
        nodes = {node["id"] for node in exported(refsim, file, tmp_path)}
        found = results(tmp_path / "data.json", nodes)
    assert found["delegate0_v28"]["value"] == "wrong" and found["delegate0_v24"]["value"] == "same"
