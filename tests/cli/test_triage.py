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
from saved import arrays, with_a_wrong_byte

from refsim.device import manifest
from refsim.exec.model import load

RAW = Path(__file__).parents[1] / "data" / "device" / "linear_head.raw"


@pytest.fixture
def given(head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The exposed program and its inputs."""
    monkeypatch.chdir(tmp_path)
    return f"{RAW}.pte {head.partition(' ')[2]}"


def test_a_right_run(refsim, given: str) -> None:
    done = refsim(f"triage {given} --outputs {RAW}.npz --html page.html")
    assert done.status == 0 and "all 5 operators are right" in done.out
    assert "all 5 operators are right" in Path("page.html").read_text()


@pytest.mark.long
def test_a_wrong_run_and_its_reproducer(refsim, given: str, models: Path) -> None:
    with_a_wrong_byte(Path(f"{RAW}.npz"), "out4", Path("o.npz"))
    line, folder = f"triage {given} --outputs o.npz", Path("found")
    done = refsim(f"{line} --json -o found")
    nodes = {node["value"]: node for node in done.json["nodes"]}
    assert done.status == 1
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
    replayed = refsim(*shlex.split(nodes["delegate0_v28"]["reproduce"])[1:])
    assert replayed.status == 1 and "1 byte differs" in replayed.out
    inputs = given.partition(" ")[2]
    assert refsim(f"bisect {models}/linear_head.pte {inputs} --actual found/dump").status == 1
    several = refsim(f"{line} --outputs {RAW}.npz")
    assert several.status == 1 and "2 runs, 2 distinct results (1, 1 runs each)" in several.out
    assert "; the first --outputs are run 0\n" in several.out
    assert "this operator is right in run 1\n" in several.out
    assert re.search(r" 3 .* delegate0_v28 +wrong 1 in run 0$", several.out, re.M)
    assert "run 0: 3 of 5 operators are right on their own inputs; 2 wrong" in several.out
    refsim(f"{line} -o found").refused("already exists")


@pytest.mark.long
def test_an_operator_whose_inputs_are_not_exposed(refsim, given: str, models: Path) -> None:
    right = dict(np.load(f"{RAW}.npz"))
    bad = right["out3"].copy()  # of node 2
    bad.view(np.uint8)[0] ^= 0x7F

    def ran(name: str, values: str, last: np.ndarray = bad) -> str:
        told = refsim(f"expose {models}/linear_head.pte -o {name}.pte {values} --json").json
        held = {"delegate0_v20": right["out2"], "delegate0_v24": last}
        rows = told["manifests"][0]["outputs"]
        arrays(f"{name}.npz", [held.get(row["value"], right["out0"]) for row in rows])
        return f"triage {name}.pte {given.partition(' ')[2]} --partial --outputs {name}.npz"

    few = ran("few", "--value delegate0_v24")
    for more in ("", "-o found"):
        done = refsim(f"{few} {more}")
        assert done.status == 1 and "runs alone" not in done.out and "own inputs" not in done.out
        said = "2 operators, whose inputs are not exposed, were compared with the exact run; 1 wrong"
        assert said in done.out
        fix = re.search(
            r"^no case of node 2 q8ta_linear: delegate0_v20, .*; expose it with (.*)$", done.out, re.M
        )
        assert fix is not None
    assert not Path("found/cases").exists()
    # of two runs, that which is right is found without the inputs too
    ran("few", "--value delegate0_v24", last=right["out3"])
    shutil.move("few.npz", "right.npz")
    several = refsim(f"{ran('few', '--value delegate0_v24')} --outputs right.npz")
    assert several.status == 1 and "this operator is right in run 1\n" in several.out
    done = refsim(f"{ran('more', fix[1])} -o case")
    assert "no case of" not in done.out and Path("case/cases/delegate0_v24").is_dir()


def test_refusals(refsim, given: str) -> None:
    without = refsim(f"triage {RAW}.pte --outputs {RAW}.npz")
    without.refused("give the inputs either with -i FILE or with --random SEED")
    refsim(f"triage {given} --outputs o -o d").refused("no outputs there")
    assert not Path("d").exists()


def test_a_file_without_int8(refsim, given: str, models: Path) -> None:
    """Its floats are judged; bytes that differ where every device has the same are wrong."""
    program, line = models.parent / "networks" / "upsample.pte", "triage m.pte --random 3 --outputs o.npz"
    assert refsim(f"expose {program} -o m.pte").status == 0
    made = Runtime(Path("m.pte").read_bytes()).run(load(program).random_inputs(3))
    arrays("o.npz", made)
    done = refsim(line)
    assert done.status == 0 and "all 5 operators are right" in done.out
    (row,) = (row for row in manifest.read("m.pte")[1].outputs if row.held and row.held.node == 2)
    made[int(row.output.removeprefix("out"))].reshape(-1)[5] += 1
    arrays("o.npz", made)
    done = refsim(f"{line} --json")
    nodes = {node["value"]: node["verdict"] for node in done.json["nodes"]}
    assert done.status == 1 and nodes[row.value] == "wrong"
