"""refsim lower: what it writes runs, what it prints is what was decided, and bad input is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from refsim.cli import main
from refsim.core.errors import FormatError
from refsim.core.layout import layout
from refsim.core.status import NOT_LOADED
from refsim.graph.scalars import mended
from refsim.partition import check as checking
from refsim.partition.load import load

from .network import Network, network, same
from .networks import program
from .quantize import quantize

MODELS = Path(__file__).parents[1] / "data" / "models"
MIXED = MODELS / "mixed_ops.pt2"


class Done:
    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> None:
        capsys.readouterr()
        self.status = main([str(a) for a in arguments])
        self.out, self.err = capsys.readouterr()


def exported(row: Network, folder: Path, quantized: bool = True) -> Path:
    """A network as a .pt2 file."""
    module, inputs = row.made("small")
    made = quantize(module, inputs) if quantized else torch.export.export(module.eval(), inputs)
    torch.export.save(made, folder / "small.pt2")
    return folder / "small.pt2"


def test_writes_what_run_and_compare_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, io = tmp_path / "g", MODELS / "mixed_ops.io.npz"
    done = Done(capsys, "lower", MIXED, "-o", folder)
    assert done.status == 0, done.err
    assert sorted(p.name for p in folder.iterdir()) == [
        "delegate0.bin",
        "delegate1.bin",
        "model.pte",
        "report.json",
    ]
    for source in (folder, folder / "model.pte"):
        done = Done(capsys, "run", source, "-i", io, "-o", tmp_path / "out.npz")
        assert done.status == 0, done.err
        assert np.load(tmp_path / "out.npz")["out0"].tobytes() == np.load(io)["upstream_out0"].tobytes()
    assert Done(capsys, "compare", folder, "-x", "cpu", "-x", "cpu:emulated", "-i", io).status == 0
    assert Done(capsys, "inspect", folder / "delegate1.bin").status == 0


def test_writes_only_what_a_runtime_loads_and_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """WebGPU's takes no fused relu, which stays in float, and reads no alpha 1.0 that is stored as an integer."""
    done = Done(capsys, "lower", MIXED, "-o", tmp_path / "mixed", "--runtime", "webgpu", "--json")
    content = json.loads(done.out)
    assert done.status == 0 and not content["runtime_errors"] and content["quantized"]
    kept = {(row["node"], row["code"]) for row in content["unfused"]}
    assert kept == {(name, "runtime") for name in ("convolution", "convolution_1", "convolution_5", "addmm")}
    statistics = content["delegates"][0]["statistics"]
    assert (statistics["int8_operators"], statistics["dispatches"]) == (8, 8)
    outside = {row["node"] for row in content["refused"] if row["code"] == "runtime"}
    assert outside == {"quantize_per_tensor_11", "dequantize_per_tensor_12"}
    assert Done(capsys, "run", tmp_path / "mixed", "--random", "0", "--runtime", "webgpu").status == 0
    data = (tmp_path / "mixed" / "model.pte").read_bytes()
    assert not mended(data, "mixed")[1]

    path = exported(network(lambda m, x: m.conv(x) + x, (1, 8, 4, 8), conv=same(8, 8)), tmp_path)
    done = Done(capsys, "lower", path, "-o", tmp_path / "some", "--runtime", "webgpu")
    assert done.status == 0 and "refused by the runtime webgpu: 0" in done.out
    findings = json.loads(Done(capsys, "check", tmp_path / "some", "--runtime", "webgpu", "--json").out)[
        "findings"
    ]
    assert all(finding["level"] == "note" for finding in findings)


def test_what_cannot_be_avoided_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refsim.cli.lower.refused_values", lambda blob, release: {})
    done = Done(capsys, "lower", MIXED, "-o", tmp_path / "none", "--runtime", "webgpu")
    assert done.status == NOT_LOADED and not (tmp_path / "none").exists()
    forced = Done(capsys, "lower", MIXED, "-o", tmp_path / "none", "--runtime", "webgpu", "--force")
    assert forced.status == 0 and (tmp_path / "none" / "model.pte").is_file()


#: A convolution, and a multiplication in float.
DOUBLED = network(lambda m, x: m.conv(x) * 2, (1, 4, 8, 8), conv=same(4, 4))


def test_a_float_program_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = exported(DOUBLED, tmp_path, quantized=False)
    done = Done(capsys, "lower", path, "-o", tmp_path / "f.pte", "--json")
    assert done.status == 1 and json.loads(done.out)["quantized"] is False and (tmp_path / "f.pte").is_file()


def test_blocked_operators_stay_outside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """But for those of a pattern, as with ExecuTorch's blocklist."""
    path = exported(DOUBLED, tmp_path)
    assert json.loads(Done(capsys, "lower", path, "--json").out)["steps"] == ["delegate 0"]
    both = ("--block", "aten.mul", "--block", "aten.convolution.default")
    content = json.loads(Done(capsys, "lower", path, *both, "--json").out)
    assert content["steps"] == ["delegate 0", "aten.mul.Tensor"]
    assert [row["code"] for row in content["refused"]] == ["blocked"]
    assert content["idle_blocks"] == ["aten.convolution.default"]
    assert Done(capsys, "lower", path, "--block", "aten.nonesuch").status == 2


def test_transitions_and_layouts_are_those_of_inspect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Clones are some of the transitions; each layout has the name that the runtime gives it."""
    torch.export.save(program("Residuals")[0], tmp_path / "q.pt2")
    (lowered,) = json.loads(
        Done(capsys, "lower", tmp_path / "q.pt2", "-o", tmp_path / "m.pte", "--json").out
    )["delegates"]
    (seen,) = json.loads(Done(capsys, "inspect", tmp_path / "m.pte", "--json").out)["delegates"]
    counts = lowered["statistics"]
    assert counts["transitions"] == len(seen["transitions"]) > counts["clones"] == 1
    changed = {(row["before"], row["after"]) for row in seen["transitions"]}
    assert {(layout(row["before"]).name, layout(row["after"]).name) for row in lowered["clones"]} <= changed


def scaled(m: Any, x: torch.Tensor) -> torch.Tensor:
    """A sum with an alpha that is written as an integer."""
    y = m.first(x)
    return torch.add(y, m.second(y), alpha=2)


def test_names_defects_of_the_runtime_that_is_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    webgpu = ("--runtime", "webgpu")
    path = exported(network(scaled, (1, 4, 8, 8), first=same(4, 4), second=same(4, 4)), tmp_path)
    assert "upstream's kernel ignores alpha" in Done(capsys, "lower", path).out
    done = Done(capsys, "lower", path, "-o", tmp_path / "g", *webgpu)
    assert done.status == 0 and "wrong on ExecuTorch's runtime" not in done.out
    for file in ("model.pte", "delegate0.bin"):
        checked = Done(capsys, "check", tmp_path / "g" / file, *webgpu)
        assert checked.status == 0 and "0 errors, 0 warnings" in checked.out


def test_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(Done(capsys, "lower", MIXED, "--json", "-o", tmp_path).out)
    assert content["steps"] == ["delegate 0", "aten.mean.dim", "delegate 1"]
    assert {row["file"]: row["bytes"] for row in content["files"]} == {
        p.name: p.stat().st_size for p in tmp_path.iterdir()
    }
    (refused,) = content["refused"]
    assert (refused["node"], refused["code"]) == ("mean", "arguments")
    first, second = content["delegates"]
    assert [item["operator"] for item in second["fused"]] == ["q8ta_linear_gemv"]
    assert len(first["fused"]) == 9 and first["statistics"]["operators"] == 11
    # im2col is a dispatch of its own
    assert first["statistics"]["dispatches"] == 12 and first["statistics"]["clones"] == 0
    assert first["statistics"]["memory_bytes"] < first["statistics"]["memory_bytes_unshared"]
    stored = json.loads((tmp_path / "report.json").read_text())
    assert stored["delegates"] == content["delegates"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "convolution_3",
            ["q8ta_conv2d_pw_1", "dequantize_per_tensor_5", "the runtime holds its output in 4W4C"],
        ),
        ("addmm", ["q8ta_linear_gemv (q8ta_linear_gemv) made of addmm", "chosen 4W"]),
        ("q8ta_add", ["its users leave {CONV2D}", "argument 1", "the runtime holds its output in 4C"]),
        ("relu_3", ["part of q8ta_conv2d_transposed"]),
        ("mean", ["outside [arguments]", "dims [2, 3]"]),
        ("b__frozen_param0", ["constant"]),
    ],
)
def test_explain(name: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    done = Done(capsys, "lower", MIXED, "--explain", name)
    assert done.status == 0
    for word in words:
        assert word in done.out, word


def test_explain_an_unknown_node(capsys: pytest.CaptureFixture[str]) -> None:
    done = Done(capsys, "lower", MIXED, "--explain", "nonesuch")
    assert done.status == 2 and "no such node; got 'nonesuch'" in done.err and not done.out


def test_check_of_a_right_graph(capsys: pytest.CaptureFixture[str]) -> None:
    done = Done(capsys, "lower", MODELS / "linear_head.pt2", "--check", "--json")
    assert done.status == 0
    check = json.loads(done.out)["check"]
    assert [item["operator"] for item in check] == ["q8ta_linear"] * 3 + ["quantize"]
    assert all(item["worst"] <= 1 and set(item["by_draw"]) > {"run", "uniform"} for item in check)


def test_a_failing_check_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(checking.DRAWS, "uniform", checking.DRAWS["lowest"])
    wrong = checking.Deviation(0, "q8ta_linear", "q8ta_linear")
    wrong.add("uniform", np.array([3, 5]), np.array([3, 7]))
    monkeypatch.setattr(checking, "check", lambda *_, **more: [wrong])
    done = Done(capsys, "lower", MODELS / "linear_head.pt2", "--check", "-o", tmp_path / "g")
    assert done.status == 1 and "1 wrong" in done.out and "rerun: refsim lower" in done.err
    assert not (tmp_path / "g").exists()


def test_bad_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = MIXED.read_bytes()
    cases = {
        "empty.pt2": (b"", "not a .pt2 file"),
        "other.pt2": (b"\0" * 100, "not a .pt2 file"),
        "cut.pt2": (content[: len(content) // 2], "torch cannot read it"),
        "broken.pt2": (content[:2000] + b"\xff" * 2000 + content[4000:], "torch cannot read it"),
    }
    for name, (data, words) in cases.items():
        (tmp_path / name).write_bytes(data)
        done = Done(capsys, "lower", tmp_path / name, "-o", tmp_path / "g")
        assert done.status == 2 and words in done.err and done.err.count("\n") == 1, done.err
        assert not (tmp_path / "g").exists()
    with pytest.raises(FormatError, match="cannot be read"):
        load(tmp_path / "absent.pt2")
