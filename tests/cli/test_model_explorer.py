"""Files for Model Explorer: the graph of a program, and the verdicts of bisect and triage as colours of its nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from saved import flip, with_a_wrong_byte

import refsim as api
from refsim.devtools.model_explorer import COLOURS, GRAPH

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


def test_an_operator_says_what_it_is(refsim, models: Path, tmp_path: Path) -> None:
    nodes = {node["id"]: node for node in exported(refsim, models / "mixed_ops.pte", tmp_path)}
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
