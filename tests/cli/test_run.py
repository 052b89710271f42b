"""refsim run: statuses, JSON, dumps, comparison, and what bad input leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from refsim.exec.cpu.isa import cpu
from refsim.formats.dumps import Recorded

MODELS = Path(__file__).parents[1] / "data" / "models"
MIXED = str(MODELS / "mixed_ops.pte")
MIXED_IO = str(MODELS / "mixed_ops.io.npz")
MIXED_DUMP = str(MODELS / "mixed_ops.dump.zip")


def test_every_buffer_of_a_real_file_is_as_recorded(refsim) -> None:
    done = refsim("run", MIXED, "-i", MIXED_IO, "--golden", MIXED_DUMP, "--expect", MIXED_IO, "--json")
    result = done.json
    assert done.status == 0 and result["same"] is True and result["executors"] == ["cpu"]
    checks = [node["golden"]["cpu"] for node in result["nodes"] if node["golden"]]
    assert len(checks) == 12 and not any(check["different"] for check in checks)
    assert result["golden_without_buffer"] == []
    assert result["outputs"] == [{"output": "out0", "shape": [1, 10], "dtype": "float32", "same": True}]
    assert all(node["ms"]["cpu"] > 0 for node in result["nodes"])


def test_table_names_the_kernels_and_the_verdict(refsim) -> None:
    done = refsim("run", MIXED, "-i", MIXED_IO, "--golden", MIXED_DUMP, "--repeat", "2")
    head, *lines = done.out.splitlines()
    assert " ".join(head.split()) == "delegate node operator kernels output shape layout bytes cpu ms golden"
    (im2col,) = (line for line in lines if "q8ta_im2col, q8ta_conv2d_pw" in line)
    assert im2col.split()[0:3] == ["0", "7", "q8ta_conv2d"] and im2col.endswith("same")
    assert f"12 buffers, 143388 bytes compared with {MIXED_DUMP}: 0 bytes differ" in lines


def test_dump_is_read_back_and_a_changed_byte_is_found(tmp_path: Path, refsim) -> None:
    arguments = ["run", MIXED, "-i", MIXED_IO]
    output = tmp_path / "o.npz"
    assert refsim(*arguments, "--dump", "q8ta_(add|relu)", tmp_path, "-o", output).status == 0
    assert sorted(Recorded(tmp_path).entries) == ["delegate0_v55", "delegate0_v66"]
    sidecar = json.loads((tmp_path / "delegate0_v66.json").read_text())
    assert sidecar["layout"] == "PACKED_INT8_4C" and sidecar["shape"] == [1, 32, 16, 16]
    assert sidecar["operator"] == "et_vk.q8ta_add.default" and sidecar["dtype"] == "int8"
    assert sidecar["scale"] > 0 and -128 <= sidecar["zero_point"] <= 127
    expected = np.load(MIXED_IO)["upstream_out0"]
    assert np.load(output)["out0"].tobytes() == expected.tobytes()

    raw = bytearray((tmp_path / "delegate0_v66.bin").read_bytes())
    raw[37] ^= 1
    (tmp_path / "delegate0_v66.bin").write_bytes(raw)
    done = refsim(*arguments, "--golden", tmp_path)
    assert done.status == 1
    assert "different 1 of 8192, first byte 37 at 0,5,0,1" in done.out
    assert done.err == f"rerun: refsim {' '.join(arguments)} --golden {tmp_path}\n"


def test_another_expected_output_is_a_difference(tmp_path: Path, refsim) -> None:
    wrong = np.load(MIXED_IO)["upstream_out0"].copy()
    wrong.view(np.int32)[0, 3] ^= 1
    np.savez(tmp_path / "wrong.npz", out0=wrong)
    done = refsim("run", MIXED, "-i", MIXED_IO, "--expect", tmp_path / "wrong.npz")
    assert done.status == 1 and "DIFFERENT bits" in done.out


def test_executors_are_held_against_each_other(refsim) -> None:
    done = refsim("run", MIXED, "--random", "7", "-x", "cpu,cpu:emulated", "--json")
    assert done.status == 0 and done.json["outputs"][0]["same"] is True
    assert all(set(node["ms"]) == {"cpu", "cpu:emulated"} for node in done.json["nodes"])


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_byte(threads: int, refsim) -> None:
    arguments = [
        "run",
        MIXED,
        "-i",
        MIXED_IO,
        "--golden",
        MIXED_DUMP,
        "--expect",
        MIXED_IO,
        "--threads",
        threads,
    ]
    assert refsim(*arguments).status == 0


def test_no_colour_and_no_traceback_into_a_pipe(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "refsim.cli", "run", MIXED, "-i", MIXED_IO]
    named = dict(os.environ)  # readline, which pytest loads, gives COLUMNS to children behind Python's back
    done = subprocess.run(command, capture_output=True, check=True, stdin=subprocess.DEVNULL, env=named)
    assert b"\x1b" not in done.stdout and done.stderr == b""
    assert not [line for line in done.stdout.splitlines() if line.endswith(b" ")]
    truncated = tmp_path / "half.pte"
    truncated.write_bytes(Path(MIXED).read_bytes()[:20000])
    command[4] = str(truncated)
    done = subprocess.run(command, capture_output=True, check=False, env=named)
    assert done.returncode == 2 and done.stdout == b""
    assert done.stderr.count(b"\n") == 1 and done.stderr.startswith(f"refsim: {truncated}".encode())


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["no-such-file.pte", "--random", "0"], "no-such-file.pte: cannot be read"),
        ([MIXED], "-i FILE or with --random SEED"),
        ([MIXED, "-i", MIXED_IO, "--random", "0"], "-i FILE or with --random SEED"),
        ([MIXED, "-i", str(MODELS / "linear_head.io.npz")], "does not fit; got float32 [6, 64]"),
        ([MIXED, "-i", MIXED], "not a readable array file"),
        ([MIXED, "-i", MIXED_IO, "-x", "tpu"], "executor: unknown; got 'tpu'"),
        ([MIXED, "-i", MIXED_IO, "-x", "cpu,cpu"], "named twice"),
        ([MIXED, "-i", MIXED_IO, "--golden", MIXED], "not a folder or zip file"),
        ([MIXED, "-i", MIXED_IO, "--golden", "OUT"], "holds no recorded buffers"),
        ([MIXED, "-i", MIXED_IO, "--dump", "(", "OUT/d"], "not a regular expression"),
        ([MIXED, "-i", MIXED_IO, "-o", "OUT/no/such/folder/o.npz"], "cannot be written"),
        ([MIXED, "-i", MIXED_IO, "--threads", "0"], "0 is no whole number from 1 to 1024"),
        (["--bogus"], "No such option"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_file(
    arguments: list[str], match: str, tmp_path: Path, refsim
) -> None:
    arguments = [a.replace("OUT", str(tmp_path)) for a in arguments]
    if "-o" not in arguments and "--bogus" not in arguments:
        arguments += ["-o", str(tmp_path / "out.npz")]
    done = refsim("run", *arguments)
    assert done.status == 2 and done.err.count("\n") == 1 and match in done.err
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_a_golden_folder_that_lies_is_refused(tmp_path: Path, refsim) -> None:
    assert refsim("run", MIXED, "-i", MIXED_IO, "--dump", "v66", tmp_path).status == 0
    sidecar = tmp_path / "delegate0_v66.json"
    good = sidecar.read_text()
    for content, match in [
        (good.replace("PACKED_INT8_4C", "PACKED_INT8_4W4C"), "recorded with another shape or layout"),
        (good.replace("PACKED_INT8_4C", "4Q"), "not a sidecar"),
        ("{", "not a sidecar"),
        ('{"value": "delegate0_v66", "shape": "x", "layout": null}', "not a shape"),
    ]:
        sidecar.write_text(content)
        refsim("run", MIXED, "-i", MIXED_IO, "--golden", tmp_path).refused(match)
    sidecar.write_text(good)
    (tmp_path / "delegate0_v66.bin").write_bytes(bytes(8000))
    refsim("run", MIXED, "-i", MIXED_IO, "--golden", tmp_path).refused(
        f"refsim: {tmp_path / 'delegate0_v66.bin'}: raw buffer for 1x32x16x16 4C: wrong size; got 8000 bytes"
    )
    (tmp_path / "delegate0_v66.bin").write_bytes(bytes(9000))
    refsim("run", MIXED, "-i", MIXED_IO, "--golden", tmp_path).refused("too large; got 9000 bytes")
    (tmp_path / "delegate0_v66.bin").unlink()
    refsim("run", MIXED, "-i", MIXED_IO, "--golden", tmp_path).refused("delegate0_v66.bin: is missing")
    os.mkfifo(tmp_path / "delegate0_v66.bin")  # opening it would never end
    refsim("run", MIXED, "-i", MIXED_IO, "--golden", tmp_path).refused("is missing")
    refsim("run", MIXED, "-i", MIXED_IO, "--golden", tmp_path / "delegate0_v66.bin").refused(
        "no regular file"
    )


def test_times_are_of_the_steps_that_ran(refsim, models: Path) -> None:
    file, given = models / "mobilenet_v2_035_96.pte", models / "mobilenet_v2_035_96.io.npz"
    done = refsim("run", file, "-i", given)
    # where the processor looks bytes up, the convolution (node 1) is part of the step
    steps, first = (66, 1) if cpu().isa.lookup else (100, 2)
    assert f"cpu: 172 operators in {steps} steps" in done.out.splitlines()
    lines = {line.split()[1]: line for line in done.out.splitlines() if line.startswith("0 ")}
    assert [lines[n].split()[-2:] for n in ("3", "4")] == [["with", str(first)]] * 2
    nodes = refsim("run", file, "-i", given, "-x", "cpu,cpu:emulated", "--json").json["nodes"]
    assert nodes[3]["steps"] == {"cpu": list(range(first, 5)), "cpu:emulated": [3]}
    assert nodes[first]["ms"]["cpu"] > 0 and nodes[3]["ms"]["cpu"] == 0 < nodes[3]["ms"]["cpu:emulated"]


def test_kept_buffers_are_said_to_cost_steps(refsim, models: Path, tmp_path: Path) -> None:
    file, given = models / "mobilenet_v2_035_96.pte", models / "mobilenet_v2_035_96.io.npz"
    golden = refsim("run", file, "-i", given, "--golden", models / "mobilenet_v2_035_96.dump.zip")
    said = "cpu: 172 operators in 172 steps; 99 buffers were kept, and their operators ran alone"
    assert said in golden.out.splitlines()
    dump = refsim("run", file, "-i", given, "--dump", "v235 ", tmp_path)
    steps = 69 if cpu().isa.lookup else 102
    assert f"cpu: 172 operators in {steps} steps; 1 buffer was kept, and its operator ran alone" in dump.out


def test_memory_of_a_whole_run(refsim, models: Path) -> None:
    arguments = ("run", models / "mixed_ops.pte", "--random", 0, "--memory")
    assert "memory of delegate 0 as a whole: " in refsim(*arguments).out
    memory = refsim(*arguments, "--json").json["memory"]["0"]
    assert memory["total"] == memory["constants"] + memory["values"] + memory["scratch"]
    assert 1.0 < memory["ratio"] <= 1.5


def test_a_dump_is_chosen_by_the_operators_of_the_table(tmp_path: Path, refsim) -> None:
    """README's own two commands: what --dump q8ta wrote is all that --golden needs."""
    assert refsim("run", MIXED, "-i", MIXED_IO, "--dump", "q8ta", tmp_path / "dumps").status == 0
    done = refsim("run", MIXED, "-i", MIXED_IO, "--golden", tmp_path / "dumps")
    assert done.status == 0 and "0 bytes differ" in done.out
    assert (
        refsim("run", MIXED, "-i", MIXED_IO, "--dump", "^[^ ]+ et_vk.q8ta_relu", tmp_path / "one").status == 0
    )
    assert len(list((tmp_path / "one").glob("*.bin"))) == 1


def test_times_of_tiny_kernels_are_not_all_zero(refsim) -> None:
    done = refsim("run", str(MODELS / "linear_head.pte"), "--random", "0", "--repeat", "20")
    times = [line.split()[-1] for line in done.out.splitlines() if "q8ta_" in line]
    assert len(times) == 5 and all(float(time) > 0 for time in times), done.out


def test_nan_in_the_inputs_is_said(models: Path, tmp_path: Path, refsim) -> None:
    arrays = dict(np.load(models / "linear_head.io.npz"))
    given = [models / "linear_head.pte", "-i", tmp_path / "in.npz"]
    np.savez(tmp_path / "in.npz", **arrays)
    assert "NaN" not in refsim("run", *given).out
    arrays["in0"].reshape(-1)[:3] = np.nan
    np.savez(tmp_path / "in.npz", **arrays)
    assert f"{tmp_path / 'in.npz'}: 3 elements are NaN" in refsim("run", *given).out
