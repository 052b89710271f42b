"""refsim run: statuses, JSON, dumps, comparison, and what bad input leaves behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from refsim.cli import main
from refsim.dump import Recorded

MODELS = Path(__file__).parents[1] / "data" / "models"
MIXED = str(MODELS / "mixed_ops.pte")
MIXED_IO = str(MODELS / "mixed_ops.io.npz")
MIXED_DUMP = str(MODELS / "mixed_ops.dump.zip")


def test_every_buffer_of_a_real_file_is_as_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["run", MIXED, "-i", MIXED_IO, "--golden", MIXED_DUMP, "--expect", MIXED_IO, "--json"])
    result = json.loads(capsys.readouterr().out)
    assert status == 0 and result["same"] is True
    checks = [node["golden"]["cpu"] for node in result["nodes"] if node["golden"]]
    assert len(checks) == 12 and not any(check["different"] for check in checks)
    assert result["golden_without_buffer"] == []
    assert [output["same"] for output in result["outputs"]] == [True]


def test_dump_is_read_back_and_a_changed_byte_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["run", MIXED, "-i", MIXED_IO]
    assert main([*arguments, "--dump", "q8ta_(add|relu)", str(tmp_path), "-o", str(tmp_path / "o.npz")]) == 0
    assert sorted(Recorded(tmp_path).entries) == ["delegate0_v55", "delegate0_v66"]
    sidecar = json.loads((tmp_path / "delegate0_v66.json").read_text())
    assert sidecar["layout"] == "PACKED_INT8_4C" and sidecar["shape"] == [1, 32, 16, 16]
    assert sidecar["operator"] == "et_vk.q8ta_add.default" and sidecar["dtype"] == "int8"
    assert sidecar["scale"] > 0 and -128 <= sidecar["zero_point"] <= 127
    assert np.load(tmp_path / "o.npz")["out0"].shape == (1, 10)

    raw = bytearray((tmp_path / "delegate0_v66.bin").read_bytes())
    raw[37] ^= 1
    (tmp_path / "delegate0_v66.bin").write_bytes(raw)
    capsys.readouterr()
    arguments += ["--golden", str(tmp_path)]
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert "different 1 of 8192, first byte 37 at 0,5,0,1" in captured.out
    assert captured.err.splitlines()[-1] == f"rerun: refsim {' '.join(arguments)}"


def test_no_colour_and_no_traceback_into_a_pipe(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "refsim.cli", "run", MIXED, "-i", MIXED_IO]
    done = subprocess.run(command, capture_output=True, check=True)
    assert b"\x1b" not in done.stdout and done.stderr == b""
    truncated = tmp_path / "half.pte"
    truncated.write_bytes(Path(MIXED).read_bytes()[:20000])
    command[4] = str(truncated)
    done = subprocess.run(command, capture_output=True, check=False)
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
        ([MIXED, "-i", MIXED_IO, "--golden", MIXED], "not a folder or zip file"),
        ([MIXED, "-i", MIXED_IO, "--dump", "(", "OUT/d"], "not a regular expression"),
        ([MIXED, "-i", MIXED_IO, "-o", "OUT/no/such/folder/o.npz"], "cannot be written"),
        (["--bogus"], "No such option"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_file(
    arguments: list[str], match: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [a.replace("OUT", str(tmp_path)) for a in arguments]
    if "-o" not in arguments and "--bogus" not in arguments:
        arguments += ["-o", str(tmp_path / "out.npz")]
    assert main(["run", *arguments]) == 2
    captured = capsys.readouterr()
    assert match in captured.err and captured.err.count("\n") == 1
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]
