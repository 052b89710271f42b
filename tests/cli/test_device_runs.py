"""Many runs on a device that answers differently each time: the script, the folder that it leaves, and what it says."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from refsim.core.errors import FormatError
from refsim.device.repeats import Tendency, tendency
from refsim.device.runs import LIST, results, script
from refsim.device.triage import triage
from refsim.device.verdicts import SAME, WRONG, OperatorVerdict, Triage

DATA = Path(__file__).parents[1] / "data"
HEAD = DATA / "device" / "linear_head.raw"
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
        shutil.copy(f"{HEAD}{suffix}", tmp_path / f"m{suffix}")
    done = ran(tmp_path, script("m.pte", 8), sys.executable, "-c", DEVICE, f"{HEAD}.npz")
    assert done.returncode == 0, done.stderr
    line = f"triage {HEAD}.pte -i {DATA}/models/linear_head.io.npz --outputs {tmp_path}/m.runs"
    found = refsim(f"{line} --json")
    assert found.status == 1
    runs = found.json["runs"]
    assert runs["groups"] == [[0, 1, 2, 4, 5, 6], [3, 7]] and runs["rare"] == 2
    assert runs["first"] == "delegate0_v24" and runs["elements"] == 1
    assert runs["tends"]["operator"] == "q8ta_linear" and runs["tends"]["calls"] == 3
    assert "2 of 8 (25 %)" in refsim(line).out


def test_expose_writes_the_script_beside_the_program(refsim, tmp_path: Path) -> None:
    out = tmp_path / "m.pte"
    done = refsim(f"expose {DATA}/models/linear_head.pte -o {out} --runs 7 --json")
    assert done.status == 0 and done.json["script"] == f"{out}.runs.sh"
    text = Path(done.json["script"]).read_text()
    assert text == script(str(out), 7)
    assert subprocess.run(["sh", "-n", done.json["script"]], check=False).returncode == 0


# --- what the calls that change have in common -----------------------------------------------------------


@pytest.fixture(scope="module")
def right() -> Triage:
    """Several calls of each operator, all right."""
    path = DATA / "device" / "refine_seg.raw"
    given = [np.load(DATA / "models/refine_seg.io.npz")["in0"]]
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


def test_nothing_changes_where_all_runs_agree(right: Triage) -> None:
    one = with_wrong(right, places(right, "q8ta_add"))[1]
    assert tendency([one, one]) is None and tendency([right, right]) is None


def test_all_calls_change(right: Triage) -> None:
    every = places(right, "q8ta_add")
    assert tendency(with_wrong(right, every)) == Tendency("q8ta_add", len(every), len(every))
