"""`refsim triage`: from the outputs of an exposed file to a verdict, a page and cases; and of many runs."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from device.simulated import Runtime
from saved import arrays, with_a_wrong_byte

from refsim.core.errors import FormatError
from refsim.device import manifest
from refsim.device.repeats import Tendency, tendency
from refsim.device.runs import LIST, results, script
from refsim.device.triage import triage
from refsim.device.verdicts import SAME, WRONG, OperatorVerdict, Triage
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


# --- many runs -------------------------------------------------------------------------------------------

#: Saves the outputs of a device as an .npz; in every fourth run one element of the second linear layer is another one.
DEVICE = """
import re, sys, numpy as np
held = dict(np.load(sys.argv[1]))
if int(re.search("run([0-9]+)$", sys.argv[2])[1]) % 4 == 3:
    held["out3"] = held["out3"].copy()
    held["out3"].view(np.uint8).reshape(-1)[0] ^= 0x15
np.savez(sys.argv[2] + ".npz", **held)
"""


def ran(folder: Path, text: str, *command: str) -> subprocess.CompletedProcess[str]:
    (folder / "m.pte.runs.sh").write_text(text)
    return subprocess.run(
        ["sh", "m.pte.runs.sh", *command], cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_script_keeps_each_result_once(tmp_path: Path) -> None:
    """A command that alternates between two files of output, the second of them in every third run."""
    command = ("sh", "-c", 'n=${0##*run}; echo $((n % 3 == 2)) > "$0-0.bin"; echo x > "$0-1.bin"')
    done = ran(tmp_path, script("some/where/m.pte", 12), *command)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "m.runs"
    kept = sorted(path.name for path in folder.iterdir())
    assert kept == ["last.log", "run0-0.bin", "run0-1.bin", "run2-0.bin", "run2-1.bin", LIST]
    names = [Path(path).name for path in results(str(folder))]
    assert names == ["run0", "run0", "run2"] * 4


@pytest.mark.parametrize("command", ["", "false", "true", "sh -c 'exit 3'"])
def test_the_script_ends_where_a_run_gives_nothing(tmp_path: Path, command: str) -> None:
    assert ran(tmp_path, script("m.pte", 3), *shlex.split(command)).returncode == 2


def test_a_second_call_keeps_the_first_ones_folder(tmp_path: Path) -> None:
    assert ran(tmp_path, script("m.pte", 2), "sh", "-c", 'echo x > "$0-0.bin"').returncode == 0
    assert ran(tmp_path, script("m.pte", 2), "false").returncode == 2
    assert len(results(str(tmp_path / "m.runs"))) == 2


@pytest.mark.parametrize("text", ["", "0 run0\n2 run0\n", "0 ../run0\n", "zero run0\n", "0\n", "\xff\n"])
def test_a_damaged_list_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / LIST).write_text(text, encoding="latin-1")
    with pytest.raises(FormatError):
        results(str(tmp_path))


def test_another_path_stands_for_itself(tmp_path: Path) -> None:
    assert results(str(tmp_path)) == [str(tmp_path)] and results("nothing/there") == ["nothing/there"]


@pytest.mark.long
def test_triage_reads_the_folder_of_the_script(refsim, tmp_path: Path) -> None:
    for suffix in (".pte", ".pte.json"):
        shutil.copy(f"{RAW}{suffix}", tmp_path / f"m{suffix}")
    done = ran(tmp_path, script("m.pte", 8), sys.executable, "-c", DEVICE, f"{RAW}.npz")
    assert done.returncode == 0, done.stderr
    line = f"triage {RAW}.pte -i {RAW.parents[1]}/models/linear_head.io.npz --outputs {tmp_path}/m.runs"
    found = refsim(f"{line} --json")
    assert found.status == 1
    runs = found.json["runs"]
    assert runs["groups"] == [[0, 1, 2, 4, 5, 6], [3, 7]] and runs["rare"] == 2
    assert runs["first"] == "delegate0_v24" and runs["elements"] == 1
    assert runs["tends"]["operator"] == "q8ta_linear" and runs["tends"]["calls"] == 3
    assert "2 of 8 (25 %)" in refsim(line).out


def test_expose_writes_the_script_beside_the_program(refsim, tmp_path: Path) -> None:
    out = tmp_path / "m.pte"
    done = refsim(f"expose {RAW.parents[1]}/models/linear_head.pte -o {out} --runs 7 --json")
    assert done.status == 0 and done.json["script"] == f"{out}.runs.sh"
    text = Path(done.json["script"]).read_text()
    assert text == script(str(out), 7)
    assert subprocess.run(["sh", "-n", done.json["script"]], check=False).returncode == 0


# --- what the calls that change have in common -----------------------------------------------------------


@pytest.fixture(scope="module")
def right() -> Triage:
    """Several calls of each operator, all right."""
    path = RAW.parents[1] / "device" / "refine_seg.raw"
    given = [np.load(RAW.parents[1] / "models/refine_seg.io.npz")["in0"]]
    found = triage([(f"{path}.pte", (f"{path}.npz",))], given)
    return replace(found, verdicts=tuple(OperatorVerdict(v.row, SAME) for v in found.verdicts))


def with_wrong(right: Triage, chosen: list[int]) -> list[Triage]:
    """Two runs: a right one, and one in which the operators at these places are wrong."""
    rows = [OperatorVerdict(v.row, WRONG) if at in chosen else v for at, v in enumerate(right.verdicts)]
    return [right, replace(right, verdicts=tuple(rows))]


def places(right: Triage, operator: str) -> list[int]:
    return [at for at, v in enumerate(right.verdicts) if v.row.operator == operator]


def size(right: Triage, at: int) -> int:
    held = right.collected.held[right.verdicts[at].row.value]
    assert not isinstance(held, np.ndarray)
    return held.desc.numel


@pytest.mark.long
def test_calls_that_change_are_the_large_ones(right: Triage) -> None:
    every = places(right, "q8ta_conv2d_pw")
    limit = sorted({size(right, at) for at in every})[-1]
    found = tendency(with_wrong(right, [at for at in every if size(right, at) >= limit]))
    assert found is not None and found.operator == "q8ta_conv2d_pw" and found.least == limit
    assert 0 < found.changing < found.calls == len(every)


@pytest.mark.long
def test_calls_that_change_are_those_behind_an_operator(right: Triage) -> None:
    every = places(right, "q8ta_conv2d_pw")
    near = [right.verdicts[at - 1].row.operator for at in every]
    behind = sorted(set(near))[0]
    assert len(set(near)) > 1
    found = tendency(with_wrong(right, [at for at, name in zip(every, near, strict=True) if name == behind]))
    assert found is not None and found.behind == (behind,)


def test_calls_that_change_by_chance_go_with_nothing(right: Triage) -> None:
    """Other calls are as large, stand behind the same operator, or before the same one."""
    every, rows = places(right, "q8ta_conv2d_pw"), [v.row.operator for v in right.verdicts]

    def like(at: int, what: Callable[[int], object]) -> bool:
        return any(what(other) == what(at) for other in every if other != at)

    sides: list[Callable[[int], object]] = [
        lambda n: rows[n - 1], lambda n: rows[n + 1], lambda n: size(right, n)
    ]  # fmt: skip
    chosen = next(at for at in every if all(like(at, what) for what in sides))
    found = tendency(with_wrong(right, [chosen]))
    assert found == Tendency("q8ta_conv2d_pw", 1, len(every))


def test_all_calls_change_or_none_where_all_runs_agree(right: Triage) -> None:
    every = places(right, "q8ta_add")
    one = with_wrong(right, every)[1]
    assert tendency([right, one]) == Tendency("q8ta_add", len(every), len(every))
    assert tendency([one, one]) is None and tendency([right, right]) is None
