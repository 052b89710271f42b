"""extract, replay, compare, bisect: a bug in a real model's run is brought down to one dispatch and named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from device.simulated import Runtime
from examples import UNARY
from saved import flip

from refsim.core.buffer import PackedBuffer
from refsim.exec.emulated import EmulatedExecutor
from refsim.formats.cases import read_folder
from refsim.formats.dumps import Recorded
from refsim.golden.named import open_case
from refsim.golden.store import Corpus, default_root

RELU, ADD = "delegate0_v55", "delegate0_v66"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def wrong_relu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a device of the other byte order would have left, of one operator."""
    honest = EmulatedExecutor.run

    def run(self, launch, inputs):
        out = honest(self, launch, inputs)
        if launch.shader == UNARY.name:
            out.words.byteswap(inplace=True)
        return out

    monkeypatch.setattr(EmulatedExecutor, "run", run)


# --- extract and replay ----------------------------------------------------------------------------------


def test_extract_makes_a_case_that_replays(mixed: str, refsim) -> None:
    done = refsim(f"extract {mixed} --node {ADD} -o add --json")
    assert done.status == 0 and done.json["operator"] == "q8ta_add" and done.json["delegate"] == 0
    stored = read_folder("add")
    assert stored.bound.call.op.name == "q8ta_add" and len(stored.bound.inputs) == 2
    again = refsim("replay add -x cpu,cpu:emulated --json")
    assert again.status == 0 and list(again.json["executors"]) == ["cpu", "cpu:emulated"]
    refsim(f"extract {mixed} --node {ADD} -o add").refused("already exists")
    for name in ("v74", "0:7"):  # as inspect shows it, and by its number
        row = refsim(f"extract {mixed} -n {name} -o {name[1:]} --json").json
        assert (row["delegate"], row["node"]) == (0, 7)


@pytest.mark.long
@pytest.mark.parametrize("way", ["words", "constants"])
def test_each_call_runs_alone_on_a_runtime(way: str, mixed: str, models: Path, refsim) -> None:
    for name in Recorded(models / "mixed_ops.dump.zip").entries:
        folder = Path(name)
        assert refsim(f"extract {mixed} -n {name} -o {name} --pte {way}").status == 0
        inputs = []
        if (folder / "inputs.npz").exists():
            with np.load(folder / "inputs.npz") as held:
                inputs = [held[key] for key in held.files]
        assert bool(inputs) == (way == "words")
        runtime = Runtime((folder / "program.pte").read_bytes())
        (words,) = runtime.run(inputs)
        assert not runtime.hazards()
        words.tofile("words.bin")
        assert refsim(f"replay {name} --actual words.bin").status == 0
        flip("words.bin")
        assert refsim(f"replay {name} --actual words.bin").status == 1


def test_every_int8_node_can_be_extracted_and_agrees_with_the_recording(mixed: str, models, refsim) -> None:
    recorded = Recorded(models / "mixed_ops.dump.zip")
    for name in recorded.entries:
        assert refsim(f"extract {mixed} -n {name} -o {name}").status == 0
        raw = recorded.raw(name, read_folder(name).expected.desc)
        Path("raw.bin").write_bytes(raw.tobytes())
        assert refsim(f"replay {name} --actual raw.bin").status == 0


def test_extract_writes_a_case_of_the_corpus_for_a_device(refsim) -> None:
    name = "q8ta_conv2d_pw/1045"
    done = refsim(f"extract {name} -o case --pte words")
    assert done.status == 0 and done.out.startswith(f"case: {name}\n")
    assert {"program.pte", "inputs.npz", "in_x.bin", "case.json"} <= {x.name for x in Path("case").iterdir()}
    assert read_folder("case").expected.raw.tobytes() == open_case(name).expected.raw.tobytes()
    assert refsim("replay case --actual case/out.bin").status == 0
    content = refsim(f"extract {name} -o again --json").json
    assert content["file"] == name and "node" not in content


@pytest.mark.long
def test_a_captured_buffer_is_judged(refsim) -> None:
    case = "q8ta_conv2d_dw/0011"
    expected = open_case(case).expected
    expected.raw.tofile("dump.bin")
    assert refsim(f"replay {case} --actual dump.bin").status == 0
    PackedBuffer(expected.desc).raw.tofile("dump.bin")
    done = refsim(f"replay {case} --actual dump.bin --profile nvidia --json")
    found = done.json["report"]
    assert done.status == 1 and found["profile"] == "nvidia"
    assert found["causes"][0]["name"] == "nothing written"
    assert found["differences"][0]["invocation"] is not None
    assert f"rerun: refsim replay {case}" in done.err
    Path("dump.bin").write_bytes(b"short")
    refsim(f"replay {case} --actual dump.bin").refused(f"dump.bin: raw buffer for {expected.desc}: wrong")


def test_a_stored_case_of_the_corpus_replays(refsim) -> None:
    name = min(Corpus(default_root()).stored_names("q8ta_add")).rpartition("/")[2]
    assert refsim(f"replay {default_root()}/cases/q8ta_add.zip!{name}").status == 0


# --- compare and bisect ----------------------------------------------------------------------------------


def test_compare_two_executors(mixed: str, refsim) -> None:
    done = refsim(f"compare {mixed} -x cpu -x cpu:emulated --json")
    assert done.status == 0 and done.json["same"] and done.json["first"] is None
    assert len(done.json["buffers"]) == 14 and all(row["different"] == 0 for row in done.json["buffers"])


@pytest.mark.search(2)
def test_compare_names_the_first_buffer_that_differs(mixed: str, wrong_relu: None, refsim) -> None:
    done = refsim(f"compare {mixed} -x cpu,cpu:emulated")
    assert done.status == 1 and f"first: node 4 {UNARY.name}, {RELU}" in done.out
    assert "1. byte order: output bytes reversed: insert(word, 3 - k, " in done.out


def test_a_right_run_is_the_same(mixed: str, models: Path, refsim) -> None:
    assert refsim(f"run {mixed} --dump . dump").status == 0
    for actual in ("dump", models / "mixed_ops.dump.zip"):
        done = refsim(f"bisect {mixed} --actual {actual} --json")
        assert done.status == 0 and done.json["same"] and done.json["wrong"] == []


def test_the_guilty_operator_is_told_from_its_victims(mixed: str, wrong_relu: None, refsim) -> None:
    assert refsim(f"run {mixed} -x cpu:emulated --dump . dump").status == 0
    done = refsim(f"bisect {mixed} --actual dump --json")
    assert done.status == 1 and done.json["first"] == RELU and done.json["wrong"] == [RELU]
    rows = {row["value"]: row for row in done.json["nodes"]}
    assert rows[ADD]["run"]["differing"] > 0 and rows[ADD]["alone"]["same"]
    assert done.json["report"]["causes"][0]["name"] == "byte order"
    text = refsim(f"bisect {mixed} --actual dump")
    assert f"wrong: node 4 {UNARY.name}, {RELU} (on its own dumped inputs)" in text.out


def test_a_partial_dump_is_enough(mixed: str, wrong_relu: None, refsim) -> None:
    assert refsim(f"run {mixed} -x cpu:emulated --dump {RELU} dump").status == 0
    done = refsim(f"bisect {mixed} --actual dump")
    assert done.status == 1 and "1 of 12 int8 buffers dumped" in done.out
    assert f"wrong: node 4 {UNARY.name}, {RELU} (its inputs were not all dumped)" in done.out


def test_a_dump_of_something_else_is_refused(mixed: str, refsim) -> None:
    Path("other").mkdir()
    Path("other/a.bin").write_bytes(b"1234")
    Path("other/a.json").write_text('{"value": "a", "shape": [1, 4], "layout": "PACKED_INT8_4C"}')
    refsim(f"bisect {mixed} --actual other").refused("holds none of the model's buffers")
    assert refsim(f"run {mixed} --dump . dump").status == 0
    shutil.copytree("dump", "cut")
    Path(f"cut/{RELU}.bin").write_bytes(bytes(100))
    short = refsim(f"bisect {mixed} --actual cut --json")
    short.refused(f"refsim: cut/{RELU}.bin: raw buffer for 1x32x16x16 4W4C: wrong size; got 100 bytes")
    assert short.json["error"]["where"].startswith(f"cut/{RELU}.bin: ")
    sidecar = Path(f"dump/{RELU}.json")
    sidecar.write_text(json.dumps(json.loads(sidecar.read_text()) | {"shape": [1, 1, 1, 1]}))
    lying = refsim(f"bisect {mixed} --actual dump")
    assert lying.status == 2 and "recorded as 1x1x1x1 in 4W4C, not 1x32x16x16 in 4W4C" in lying.out
    assert "buffers does not fit target desktop" in lying.out
