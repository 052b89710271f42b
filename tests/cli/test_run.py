"""refsim run and demo: statuses, JSON, dumps, comparison, and what bad input leaves behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from saved import arrays, flip

from refsim.cli import demo
from refsim.exec.cpu import NativeExecutor
from refsim.exec.cpu.isa import cpu
from refsim.exec.cpu.plan import CpuPlan
from refsim.formats.dumps import Recorded

MODELS = Path(__file__).parents[1] / "data" / "models"
MIXED, IO, DUMP = (f"{MODELS}/mixed_ops.{suffix}" for suffix in ("pte", "io.npz", "dump.zip"))
RUN = f"run {MIXED} -i {IO}"
MOBILE = f"run {MODELS}/mobilenet_v2_035_96.pte -i {MODELS}/mobilenet_v2_035_96.io.npz"


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_buffer_of_a_real_file_is_as_recorded(threads: int, refsim) -> None:
    done = refsim(f"{RUN} --golden {DUMP} --expect {IO} --threads {threads} --json")
    result = done.json
    assert done.status == 0 and result["same"] is True and result["executors"] == ["cpu"]
    checks = [node["golden"]["cpu"] for node in result["nodes"] if node["golden"]]
    assert len(checks) == 12 and not any(check["different"] for check in checks)
    assert result["golden_without_buffer"] == []
    assert result["outputs"] == [{"output": "out0", "shape": [1, 10], "dtype": "float32", "same": True}]
    assert all(node["ms"]["cpu"] > 0 for node in result["nodes"])


def test_dump_is_read_back_and_a_changed_byte_is_found(tmp_path: Path, refsim) -> None:
    output = tmp_path / "o.npz"
    assert refsim(f"{RUN} --dump q8ta_(add|relu) {tmp_path}/dump -o {output}").status == 0
    assert sorted(Recorded(tmp_path / "dump").entries) == ["delegate0_v55", "delegate0_v66"]
    sidecar = json.loads((tmp_path / "dump/delegate0_v66.json").read_text())
    assert sidecar["layout"] == "PACKED_INT8_4C" and sidecar["shape"] == [1, 32, 16, 16]
    assert sidecar["operator"] == "et_vk.q8ta_add.default" and sidecar["dtype"] == "int8"
    assert sidecar["scale"] > 0 and -128 <= sidecar["zero_point"] <= 127
    assert np.load(output)["out0"].tobytes() == np.load(IO)["upstream_out0"].tobytes()
    flip(tmp_path / "dump/delegate0_v66.bin", 37)
    done = refsim(f"{RUN} --golden {tmp_path}/dump")
    assert done.status == 1
    assert "different 1 of 8192, first byte 37 at 0,5,0,1" in done.out
    assert done.err == f"rerun: refsim {RUN} --golden {tmp_path}/dump\n"
    assert refsim(f"{RUN} --dump q8ta {tmp_path}/every").status == 0
    assert refsim(f"{RUN} --golden {tmp_path}/every").status == 0
    assert refsim(f"{RUN} --dump", "^[^ ]+ et_vk.q8ta_relu", tmp_path / "one").status == 0
    assert len(list((tmp_path / "one").glob("*.bin"))) == 1


def test_no_colour_and_no_traceback_into_a_pipe(tmp_path: Path) -> None:
    named = dict(os.environ)  # readline, which pytest loads, gives COLUMNS to children behind Python's back

    def ran(file: str) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "refsim.cli", "run", file, "-i", IO]
        return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, env=named, check=False)

    done = ran(MIXED)
    said = re.sub(rb"refsim: [^\n]*, \d+ s\n", b"", done.stderr)  # progress, on a busy machine
    assert done.returncode == 0 and b"\x1b" not in done.stdout and said == b""
    assert not [line for line in done.stdout.splitlines() if line.endswith(b" ")]
    truncated = tmp_path / "half.pte"
    truncated.write_bytes(Path(MIXED).read_bytes()[:20000])
    done = ran(str(truncated))
    assert done.returncode == 2 and done.stdout == b""
    assert done.stderr.count(b"\n") == 1 and done.stderr.startswith(f"refsim: {truncated}".encode())


def test_times_are_of_the_steps_that_ran(refsim) -> None:
    # where the processor looks bytes up, the convolution (node 1) is part of the step
    steps, first = (66, 1) if cpu().isa.lookup else (100, 2)
    out = refsim(MOBILE).out.splitlines()
    assert f"cpu: 172 operators in {steps} steps" in out
    lines = {line.split()[1]: line for line in out if line.startswith("0 ")}
    assert [lines[n].split()[-2:] for n in ("3", "4")] == [["with", str(first)]] * 2
    both = refsim(f"{MOBILE} -x cpu,cpu:emulated --json")
    nodes = both.json["nodes"]
    assert both.status == 0 and both.json["outputs"][0]["same"] is True
    assert nodes[3]["steps"] == {"cpu": list(range(first, 5)), "cpu:emulated": [3]}
    assert nodes[first]["ms"]["cpu"] > 0 and nodes[3]["ms"]["cpu"] == 0 < nodes[3]["ms"]["cpu:emulated"]
    small = refsim(f"run {MODELS}/linear_head.pte --random 0 --repeat 20 --json").json["nodes"]
    assert len(small) == 5 and all(node["ms"]["cpu"] > 0 for node in small), "tiny kernels take time too"


def test_kept_buffers_are_said_to_cost_steps(refsim, tmp_path: Path) -> None:
    golden = refsim(f"{MOBILE} --golden {MODELS}/mobilenet_v2_035_96.dump.zip").out
    said = "cpu: 172 operators in 172 steps; 99 buffers were kept, and their operators ran alone"
    assert said in golden.splitlines()
    dump = refsim(f"{MOBILE} --dump", "v235 ", tmp_path)
    steps = 69 if cpu().isa.lookup else 102
    assert f"cpu: 172 operators in {steps} steps; 1 buffer was kept, and its operator ran alone" in dump.out


def test_memory_of_a_whole_run(refsim) -> None:
    memory = refsim(f"run {MIXED} --random 0 --memory --json").json["memory"]["0"]
    assert memory["total"] == memory["constants"] + memory["values"] + memory["scratch"]
    assert 1.0 < memory["ratio"] <= 1.5
    assert "memory of delegate 0 as a whole: " in refsim(f"run {MIXED} --random 0 --memory").out


def test_nan_in_the_inputs_is_said(tmp_path: Path, refsim) -> None:
    x = np.load(MODELS / "linear_head.io.npz")["in0"].copy()
    for count in (0, 3):
        x.reshape(-1)[:count] = np.nan
        given = arrays(tmp_path / "in.npz", [x], "in")
        out = refsim(f"run {MODELS}/linear_head.pte -i {given}").out
        assert (f"{given}: 3 elements are NaN" in out) == ("NaN" in out) == (count > 0)


# --- where nobody watches --------------------------------------------------------------------------------


class Wrong(CpuPlan):
    """Right only if somebody watches."""

    def run(self, inputs, number=0, observe=None):  # type: ignore[no-untyped-def]
        outputs = super().run(inputs, number, observe)
        return outputs if observe is not None else [-array for array in outputs]


@pytest.mark.parametrize("wrong", [False, True])
def test_plans_are_run_as_users_run_them_too(wrong: bool, refsim, tmp_path: Path, monkeypatch) -> None:
    """Verbs that keep buffers tell of outputs that are others where nobody keeps them."""
    if wrong:

        def session(self, graph, watched=frozenset()):  # type: ignore[no-untyped-def]
            return Wrong(graph, self.options, watched)

        monkeypatch.setattr(NativeExecutor, "session", session)
        monkeypatch.setattr(NativeExecutor, "keeps_sessions", False)
    given = f"{MODELS}/linear_head.pte -i {MODELS}/linear_head.io.npz"
    golden = f"run {given} --golden {MODELS}/linear_head.dump.zip"
    for line in (
        golden,
        f"run {given} --dump q8ta {tmp_path}/dumps",
        f"compare {given} -x cpu -x cpu:emulated",  # the other prepares no graphs
    ):
        done = refsim(f"{line} --json")
        assert (done.status, done.json["unwatched"]) == (int(wrong), {"cpu": ["out0"] if wrong else []})
        assert not (wrong and done.json["same"])
    assert refsim(f"run {given} --json").json["unwatched"] == {}
    assert ("DIFFERENT bits in out0" in refsim(golden).out) == wrong
    assert refsim("demo linear_head").status == int(wrong)


def test_a_changed_recording_is_noticed(refsim, models: Path, tmp_path: Path, monkeypatch) -> None:
    for name in ("linear_head.pte", "linear_head.io.npz"):
        shutil.copy(models / name, tmp_path)
    with (
        zipfile.ZipFile(models / "linear_head.dump.zip") as source,
        zipfile.ZipFile(tmp_path / "linear_head.dump.zip", "w") as target,
    ):
        for name in source.namelist():
            content = source.read(name)
            changed = bytes([content[0] ^ 1]) + content[1:]
            target.writestr(name, content if name.endswith(".json") else changed)
    monkeypatch.setattr(demo, "FOLDERS", (tmp_path,))
    done = refsim("demo linear_head")
    assert done.status == 1 and "different 1 of" in done.out
    assert done.err == "rerun: refsim demo linear_head\n"


def test_nothing_bundled_is_said(refsim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "FOLDERS", (tmp_path,))
    refsim("demo").refused("no bundled models")
