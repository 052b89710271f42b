"""refsim inspect: what it says of the bundled files is what the recordings of those files say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from examples import BINARY, UNARY

NAMES = ("linear_head", "linear_head_gemv", "mixed_ops", "mobilenet_v2_035_96", "refine_seg")


@pytest.mark.parametrize("name", NAMES)
def test_operators_and_layouts_are_upstreams(name: str, models: Path, refsim) -> None:
    delegates = refsim(f"inspect {models}/{name}.pte --json").json["delegates"]
    chain = json.loads((models / f"{name}.chain.json").read_text())
    assert len(delegates) == len(chain)
    for ours, theirs in zip(delegates, chain.values() if isinstance(chain, dict) else chain, strict=True):
        operators = theirs["chain"] if isinstance(theirs, dict) else theirs
        assert [o["name"] for o in ours["operators"]] == [o["op"] for o in operators]


def test_facts_of_one_operator(models: Path, refsim) -> None:
    facts = refsim(f"inspect {models}/mixed_ops.pte --json").json
    assert facts["plan"] == ["delegate 0", "aten::mean.out", "delegate 1"]
    first, second = facts["delegates"]
    conv = first["operators"][7]
    assert conv["kernels"] == "q8ta_im2col, q8ta_conv2d_pw" and conv["inputs"] == ["delegate0_v66"]
    assert conv["parameters"]["stride"] == [1, 1] and conv["parameters"]["in_scale"] > 0
    assert [d["shader"] for d in conv["dispatches"]] == ["q8ta_im2col", "q8ta_conv2d_pw"]
    assert all(min(d["grid"]) >= 1 and d["push_words"] for d in conv["dispatches"])
    for dispatch in (d for operator in first["operators"] for d in operator["dispatches"]):
        for words in ("push", "specialization"):
            assert len(dispatch[f"{words}_names"]) == len(dispatch[f"{words}_words"])
        assert "OUT_W" in dispatch["push_names"]
    (out,) = conv["outputs"]
    assert out["layout"] == "PACKED_INT8_4C" and out["shape"] == [1, 64, 16, 16] and out["bytes"] == 16384
    assert first["constants"]["count"] == 24 and second["constants"]["count"] == 4
    assert first["memory"]["bytes"] < first["memory"]["bytes_unshared"]
    between = dict(before="PACKED_INT8_4W4C", after="PACKED_INT8_4C", bytes=8192)
    assert dict(node=6, operator="q8ta_add", **between) in first["transitions"]


def test_operators_outside_of_the_packed_ones_are_called_float(models: Path, refsim) -> None:
    (one,) = refsim(f"inspect {models}/mobilenet_v2_035_96.pte --json").json["delegates"]
    named = {row["operator"]: row["kernels"] for row in one["operators"]}
    assert named["aten.hardtanh"] == "float" and named["q8ta_add"] == "q8ta_add"


def test_text_has_a_row_per_operator(models: Path, refsim) -> None:
    done = refsim(f"inspect {models}/mixed_ops.pte")
    assert done.status == 0
    assert len(re.findall(r"^ +\d+  (?:q8ta|aten)", done.out, re.M)) == 14
    assert "memory: 335872 bytes in 3 objects" in done.out


def test_files_of_other_verbs(tmp_path: Path, models: Path, refsim) -> None:
    refsim(f"inspect {models}").refused(f"got a folder, need a file of it, such as {models}/linear_head.pte")
    (tmp_path / "x.pt2").write_bytes(b"PK\3\4")
    refsim(f"inspect {tmp_path}/x.pt2").refused("refsim lower")
    content = (models / "mixed_ops.pte").read_bytes()
    for verb in ("inspect", "check"):
        for size in (0, 7, 40, 5000, len(content) - 1):
            (tmp_path / "x.pte").write_bytes(content[:size])
            refsim(f"{verb} {tmp_path}/x.pte").refused("x.pte")


def test_plan_tells_routes_and_memory_and_takes_others(refsim, models: Path) -> None:
    file = models / "mixed_ops.pte"
    text = refsim(f"inspect {file} --plan")
    assert "memory: " in text.out and "times the weights" in text.out
    asked = ("--route", f"{BINARY.name}=via_nhwc", "--route", f"{UNARY.name}=emulated")
    facts = refsim(f"inspect {file} --plan", *asked, "--json").json
    routes = {step["operator"]: step["route"] for step in facts["delegates"][0]["steps"]}
    assert routes[BINARY.name] == "via_nhwc" and routes[UNARY.name] == "emulated"


def test_the_kernels_of_another_executor(refsim, models: Path) -> None:
    line = f"inspect {models}/linear_head.pte"
    own, taken = (refsim(f"{line} --json {more}").json["delegates"] for more in ("", "-x cpu:emulated"))
    assert [row["kernels"] for row in taken[0]["operators"]] == [
        row["kernels"] for row in own[0]["operators"]
    ]
    assert "--executor excludes" in refsim(f"{line} -x cpu --plan").err
