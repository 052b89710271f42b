"""extract, replay, compare, bisect, repeat: a bug in a real model's run is brought down to one dispatch and named."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from device.simulated import Runtime
from examples import UNARY
from saved import flip

from refsim.core.buffer import PackedBuffer
from refsim.exec.model import Model
from refsim.formats.cases import read_folder
from refsim.formats.dumps import Recorded
from refsim.golden.named import open_case

RELU, ADD = "delegate0_v55", "delegate0_v66"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def wrong_relu(miscomputed) -> None:
    """What a device of the other byte order would have left, of one operator."""
    miscomputed(UNARY.name, lambda out: out.words.byteswap(inplace=True))


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


def test_a_float_operator_has_no_case_and_others_are_named(models: Path, refsim) -> None:
    done = refsim(f"extract {models}/mobilenet_v2_035_96.pte --random 0 -o case -n 3")
    done.refused("need an int8 operator, which has a case, as refsim inspect lists them: node 0 ")


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


# --- compare and bisect ----------------------------------------------------------------------------------


@pytest.mark.search(2)
def test_compare_names_the_first_buffer_that_differs(mixed: str, wrong_relu: None, refsim) -> None:
    done = refsim(f"compare {mixed} -x cpu,cpu:emulated")
    assert done.status == 1 and f"first: node 4 {UNARY.name}, {RELU}" in done.out
    assert "1. byte order: output bytes reversed: insert(word, 3 - k, " in done.out


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


# --- repeat ----------------------------------------------------------------------------------------------

DEPTHWISE = "q8ta_conv2d_dw"


@pytest.fixture
def flaky(miscomputed) -> None:
    """In the second run, and in each fifth one from there, a channel of the depthwise convolution is wrong."""
    calls = itertools.count()

    def spoil(out: PackedBuffer) -> None:
        if next(calls) % 5 == 1:
            array = out.unpack()
            array[:, 3] ^= 0x40
            out.raw[:] = PackedBuffer.pack(array, out.desc.layout).raw

    miscomputed(DEPTHWISE, spoil)


def test_a_model_that_repeats_itself(mixed: str, refsim) -> None:
    content = refsim(f"repeat {mixed} -n 2 -x cpu --threads 2 --json").json
    assert content["same"] is True and content["first"] is content["report"] is None
    assert (content["runs"], content["results"]) == (2, [2])
    assert content["outputs"] == [{"output": "out0", "distinct": 1}]
    assert {row["distinct"] for row in content["buffers"]} == {1}


def test_a_channel_that_flips(flaky, mixed: str, refsim) -> None:
    done = refsim(f"repeat {mixed} -x cpu:emulated -n 6 --html page.html")
    assert done.status == 1 and done.err.startswith("rerun: refsim repeat")
    lines = [line.strip() for line in done.out.splitlines()]
    assert "6 runs on cpu:emulated: 2 distinct results, 2 of the outputs" in lines
    assert f"first: node 2 {DEPTHWISE}, delegate0_v46: 2 distinct results (runs: 5, 1)" in lines
    assert "256 of 4096 elements flip" in lines and "only at c = 3" in lines
    assert "result 1, in 5 of 6 runs, first in run 0: right" in lines
    assert "result 2, in 1 of 6 runs, first in run 1: wrong, 256 cells" in lines
    assert "256 bytes differ" in done.out and "delegate0_v46" in Path("page.html").read_text()


def test_the_same_as_json(flaky, mixed: str, refsim) -> None:
    done = refsim(f"repeat {mixed} -x cpu:emulated -n 6 --json")
    content = done.json
    assert done.status == 1 and content["same"] is False and content["results"] == [5, 1]
    first = content["first"]
    assert (first["operator"], first["value"], first["counts"]) == (DEPTHWISE, "delegate0_v46", [5, 1])
    assert first["examples"] == [{"runs": 5, "first_run": 0}, {"runs": 1, "first_run": 1}]
    judgement = first["judgement"]
    assert judgement["right"] == [0] and [v["verdict"] for v in judgement["versions"]] == ["right", "wrong"]
    assert judgement["pattern"][0].startswith("only at c = ")
    assert content["report"]["differing"] == 256
    assert [row["distinct"] for row in content["buffers"]][:4] == [1, 1, 1, 2]


def test_an_output_that_no_delegate_gives(mixed: str, refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    honest, calls = Model.run, [0]

    def run(self, *arguments):
        outputs = honest(self, *arguments)
        calls[0] += 1
        return [array + np.float32(calls[0] == 2) for array in outputs]

    monkeypatch.setattr(Model, "run", run)
    done = refsim(f"repeat {mixed} -n 3")
    assert done.status == 1
    assert "first: output of the model, out0: 2 distinct results (runs: 2, 1)" in done.out
