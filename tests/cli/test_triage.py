"""`refsim triage`: from the outputs of an exposed file to a verdict, a page and cases that run alone."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from device.simulated import Runtime

from refsim.device import manifest
from refsim.exec.model import load

DEVICE = Path(__file__).parents[1] / "data" / "device"
GIVEN = (DEVICE / "linear_head.raw.pte", "--outputs", DEVICE / "linear_head.raw.npz")


def test_a_right_run(refsim, models: Path, tmp_path: Path) -> None:
    done = refsim("triage", *GIVEN, "-i", models / "linear_head.io.npz", "--html", tmp_path / "page.html")
    assert done.status == 0 and "all 5 operators are right" in done.out
    assert "all 5 operators are right" in (tmp_path / "page.html").read_text()


@pytest.mark.long
def test_a_wrong_run_and_its_reproducer(refsim, models: Path, tmp_path: Path) -> None:
    outputs = dict(np.load(DEVICE / "linear_head.raw.npz"))
    outputs["out4"] = outputs["out4"].copy()
    outputs["out4"].view(np.uint8)[0] ^= 0x7F
    np.savez(tmp_path / "o.npz", **outputs)
    given = ("triage", GIVEN[0], "-i", models / "linear_head.io.npz", "--outputs", tmp_path / "o.npz")
    folder = tmp_path / "found"
    done = refsim(*given, "--json", "-o", folder)
    assert done.status == 1 and done.json["verb"] == "triage"
    nodes = {node["value"]: node for node in done.json["nodes"]}
    assert nodes["delegate0_v28"]["verdict"] == "wrong" and nodes["delegate0_v24"]["verdict"] == "same"
    assert json.loads((folder / "triage.json").read_text())["summary"] == done.json["summary"]
    page = (folder / "triage.html").read_text()
    wrong = [name for name, node in nodes.items() if node["verdict"] == "wrong"]
    operators, _, _ = page.partition("<h2>Causes")
    assert re.findall('href="#(.*?)"', page) == wrong and operators.count("<tr>") == 1 + len(nodes)
    assert re.findall('<details id="(.*?)"', page) == wrong
    assert re.findall('href="(pages/.*?)"', page) == [f"pages/{name}.html" for name in wrong]
    assert "1 byte differs" in (folder / "pages" / "delegate0_v28.html").read_text()
    assert {path.stem for path in (folder / "pages").iterdir()} == set(wrong)
    for name in wrong:  # each leads back to its line
        text = (folder / "pages" / f"{name}.html").read_text()
        assert f'<a href="../triage.html#{name}">all operators</a>' in text and f'id="{name}"' in page
    assert not re.search(r"https?://|src=|@import|url\(", page)
    command = shlex.split(nodes["delegate0_v28"]["reproduce"])
    replayed = refsim(*command[1:])
    assert replayed.status == 1 and "1 byte differs" in replayed.out
    assert refsim("bisect", models / "linear_head.pte", *given[2:4], "--actual", folder / "dump").status == 1
    several = refsim(*given, "--outputs", GIVEN[2])
    assert several.status == 1 and "2 runs, 2 distinct results (1, 1 runs each)" in several.out
    assert "; the first --outputs are run 0\n" in several.out
    assert "this operator is right in run 1\n" in several.out
    assert re.search(r" 3 .* delegate0_v28 +wrong 1 in run 0$", several.out, re.M)
    assert "run 0: 3 of 5 operators are right on their own inputs; 2 wrong" in several.out
    refsim(*given, "-o", folder).refused("already exists")


@pytest.mark.long
def test_an_operator_whose_inputs_are_not_exposed(refsim, models: Path, tmp_path: Path) -> None:
    """It is said to be compared with the exact run, no case of it is promised, and the fix that is named gives one."""
    x = ("-i", models / "linear_head.io.npz")
    right = dict(np.load(DEVICE / "linear_head.raw.npz"))
    bad = right["out3"].copy()  # of node 2
    bad.view(np.uint8)[0] ^= 0x7F

    def ran(name: str, *values: str, last: np.ndarray = bad) -> list[object]:
        exposed, outputs = tmp_path / f"{name}.pte", tmp_path / f"{name}.npz"
        given = [word for value in values for word in ("--value", value)]
        told = refsim("expose", models / "linear_head.pte", "-o", exposed, *given, "--json").json
        arrays = {"delegate0_v20": right["out2"], "delegate0_v24": last}
        rows = told["manifests"][0]["outputs"]
        np.savez(outputs, **{row["output"]: arrays.get(row["value"], right["out0"]) for row in rows})
        return ["triage", exposed, *x, "--outputs", outputs, "--partial"]

    for more in ((), ("-o", tmp_path / "found")):
        done = refsim(*ran("few", "delegate0_v24"), *more)
        assert done.status == 1 and "runs alone" not in done.out and "own inputs" not in done.out
        assert (
            "2 operators, whose inputs are not exposed, were compared with the exact run; 1 wrong" in done.out
        )
        fix = re.search(
            r"^no case of node 2 q8ta_linear: delegate0_v20, .*; expose it with (.*)$", done.out, re.M
        )
        assert fix is not None
    assert not (tmp_path / "found" / "cases").exists()
    # of two runs, that which is right is found without the inputs too
    *words, _ = ran("few", "delegate0_v24", last=right["out3"])
    shutil.move(words[-1], tmp_path / "right.npz")
    several = refsim(*ran("few", "delegate0_v24"), "--outputs", tmp_path / "right.npz")
    assert several.status == 1 and "this operator is right in run 1\n" in several.out
    done = refsim(*ran("more", *fix[1].replace("--value", "").split()), "-o", tmp_path / "case")
    assert "no case of" not in done.out and (tmp_path / "case" / "cases" / "delegate0_v24").is_dir()


def test_refusals(refsim, models: Path, tmp_path: Path) -> None:
    x = ("-i", models / "linear_head.io.npz")
    refsim("triage", models / "linear_head.pte", *x, *GIVEN[1:]).refused("not an exposed file")
    refsim("triage").refused("Missing EXPOSED, --outputs; for example: refsim triage exposed.pte")
    refsim("triage", *GIVEN).refused("give the inputs either with -i FILE or with --random SEED")
    refsim("triage", GIVEN[0], "--outputs", tmp_path / "o", *x, "-o", tmp_path / "d").refused(
        "no outputs there"
    )
    assert not (tmp_path / "d").exists()


def test_a_file_without_int8(refsim, models: Path, tmp_path: Path) -> None:
    """Its floats are judged; bytes that differ where every device has the same are wrong."""
    program, exposed, outputs = (
        models.parent / "networks" / "upsample.pte",
        tmp_path / "m.pte",
        tmp_path / "o.npz",
    )
    assert refsim("expose", program, "-o", exposed).status == 0
    made = Runtime(exposed.read_bytes()).run(load(program).random_inputs(3))
    arrays = {f"out{number}": array for number, array in enumerate(made)}
    given = ("triage", exposed, "--random", 3, "--outputs", outputs)
    np.savez(outputs, **arrays)
    done = refsim(*given)
    assert done.status == 0 and "all 5 operators are right" in done.out
    held = {
        row.value: row.output for row in manifest.read(exposed)[1].outputs if row.held and row.held.node == 2
    }
    (wrong,) = held
    arrays[held[wrong]].reshape(-1)[5] += 1
    np.savez(outputs, **arrays)
    done = refsim(*given, "--json")
    nodes = {node["value"]: node["verdict"] for node in done.json["nodes"]}
    assert done.status == 1 and nodes[wrong] == "wrong"
