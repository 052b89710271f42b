"""extract, replay, compare, bisect: a bug in a real model's run is brought down to one dispatch and named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from device.simulated import Runtime
from examples import UNARY

from refsim.core.buffer import PackedBuffer
from refsim.exec.cpu import EmulatedExecutor
from refsim.formats.cases import read_folder
from refsim.golden.named import open_case

RELU, ADD = "delegate0_v55", "delegate0_v66"


@pytest.fixture
def mixed(models: Path) -> list[object]:
    return [models / "mixed_ops.pte", "-i", models / "mixed_ops.io.npz"]


@pytest.fixture
def dumped(mixed, tmp_path: Path, refsim) -> Path:
    """Every buffer of a right run, as a device's owner would dump them."""
    folder = tmp_path / "dump"
    folder.mkdir()
    assert refsim("run", *mixed, "--dump", ".", folder).status == 0
    return folder


def reversed_bytes(path: Path) -> None:
    """What a device of the other byte order would have left."""
    words = np.fromfile(path, np.uint32)
    words.byteswap().tofile(path)


# --- extract and replay ----------------------------------------------------------------------------------


def test_extract_makes_a_case_that_replays(mixed, tmp_path: Path, refsim) -> None:
    done = refsim("extract", *mixed, "--node", ADD, "-o", tmp_path / "add", "--json")
    assert done.status == 0 and done.json["operator"] == "q8ta_add" and done.json["delegate"] == 0
    stored = read_folder(tmp_path / "add")
    assert stored.bound.call.op.name == "q8ta_add" and len(stored.bound.inputs) == 2
    again = refsim("replay", tmp_path / "add", "-x", "cpu,cpu:emulated", "--json")
    assert again.status == 0 and list(again.json["executors"]) == ["cpu", "cpu:emulated"]
    refsim("extract", *mixed, "--node", ADD, "-o", tmp_path / "add").refused("already exists")


@pytest.mark.long
@pytest.mark.parametrize("way", ["words", "constants"])
def test_each_call_runs_alone_on_a_runtime(way: str, mixed, models, tmp_path: Path, refsim) -> None:
    """On the simulated runtime each call gives the recorded words, from the words that it got in the model."""
    from refsim.formats.dumps import Recorded

    for name in Recorded(models / "mixed_ops.dump.zip").entries:
        folder = tmp_path / name
        assert refsim("extract", *mixed, "-n", name, "-o", folder, "--pte", way).status == 0
        inputs = []
        if (folder / "inputs.npz").exists():
            with np.load(folder / "inputs.npz") as held:
                inputs = [held[key] for key in held.files]
        assert bool(inputs) == (way == "words")
        runtime = Runtime((folder / "program.pte").read_bytes())
        (words,) = runtime.run(inputs)
        assert not runtime.hazards()
        words.tofile(tmp_path / "words.bin")
        assert refsim("replay", folder, "--actual", tmp_path / "words.bin").status == 0
        words[0] ^= 1
        words.tofile(tmp_path / "words.bin")
        assert refsim("replay", folder, "--actual", tmp_path / "words.bin").status == 1


def test_every_int8_node_can_be_extracted_and_agrees_with_the_recording(
    mixed, models, tmp_path: Path, refsim
) -> None:
    from refsim.formats.dumps import Recorded

    recorded = Recorded(models / "mixed_ops.dump.zip")
    for name in recorded.entries:
        assert refsim("extract", *mixed, "-n", name, "-o", tmp_path / name).status == 0
        stored = read_folder(tmp_path / name)
        raw = recorded.raw(name, stored.expected.desc)
        (tmp_path / f"{name}.bin").write_bytes(raw.tobytes())
        assert refsim("replay", tmp_path / name, "--actual", tmp_path / f"{name}.bin").status == 0


def test_extract_writes_a_case_of_the_corpus_for_a_device(tmp_path: Path, refsim) -> None:
    name, folder = "q8ta_conv2d_pw/1045", tmp_path / "case"
    done = refsim("extract", name, "-o", folder, "--pte", "words")
    assert done.status == 0 and done.out.startswith(f"{folder}: {name}\n")
    assert {"program.pte", "inputs.npz", "in_x.bin", "case.json"} <= {file.name for file in folder.iterdir()}
    assert read_folder(folder).expected.raw.tobytes() == open_case(name).expected.raw.tobytes()
    assert refsim("replay", folder, "--actual", folder / "out.bin").status == 0
    content = refsim("extract", name, "-o", tmp_path / "again", "--json").json
    assert content["file"] == name and "node" not in content
    refsim("extract", name, "-n", 3, "-o", tmp_path / "x").refused("is a case, which takes no --node")
    refsim("extract", "q8ta_conv2d_pw/99999", "-o", tmp_path / "x").refused("q8ta_conv2d_pw/99999")


def test_extract_of_a_file_needs_a_node(mixed, tmp_path: Path, refsim) -> None:
    refsim("extract", *mixed, "-o", tmp_path / "x").refused("give the node with --node NUMBER")


def test_node_names(mixed, tmp_path: Path, refsim) -> None:
    assert refsim("extract", *mixed, "-n", "0:6", "-o", tmp_path / "a").status == 0
    refsim("extract", *mixed, "-n", "99", "-o", tmp_path / "b").refused("lists all); got 99")
    refsim("extract", *mixed, "-n", "1", "-o", tmp_path / "b").refused("got 1, need 0:1 or 1:1")
    refsim("extract", *mixed, "-n", "0:99", "-o", tmp_path / "b").refused("no such node")
    assert not (tmp_path / "b").exists()


@pytest.mark.long
def test_a_captured_buffer_is_judged(tmp_path: Path, refsim) -> None:
    case = "q8ta_conv2d_dw/0011"
    from refsim.golden.named import open_case

    stored = open_case(case)
    path = tmp_path / "dump.bin"
    path.write_bytes(stored.expected.raw.tobytes())
    assert refsim("replay", case, "--actual", path).status == 0
    wrong = PackedBuffer(stored.expected.desc)
    path.write_bytes(wrong.raw.tobytes())
    done = refsim("replay", case, "--actual", path, "--profile", "nvidia", "--json")
    assert done.status == 1 and done.json["report"]["profile"] == "nvidia"
    assert done.json["report"]["causes"][0]["name"] == "nothing written"
    assert done.json["report"]["differences"][0]["invocation"] is not None
    assert "rerun: refsim replay q8ta_conv2d_dw/0011" in done.err
    path.write_bytes(b"short")
    refsim("replay", case, "--actual", path).refused(
        f"refsim: {path}: raw buffer for {stored.expected.desc}: wrong"
    )


def test_a_stored_case_of_the_corpus_replays(refsim) -> None:
    from refsim.golden.store import Corpus, default_root

    name = min(Corpus(default_root()).stored_names("q8ta_add")).rpartition("/")[2]
    assert refsim("replay", f"{default_root()}/cases/q8ta_add.zip!{name}").status == 0


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["nonesuch"], "no such case; got None, need"),
        (["q8ta_add/99999"], "no such case; got q8ta_add/99999"),
        (["chains/16"], "chains/16: a chain, and no case; need refsim golden verify chains/16"),
        (["nonesuch.zip!0001"], "not a zip file of cases"),
        (["q8ta_add/0001", "-x", "tpu"], "executor: unknown"),
        (["q8ta_add/0001", "--actual", "nonesuch.bin"], "nonesuch.bin"),
        (["q8ta_add/0001", "--profile", "amd"], "unknown; got 'amd'"),
    ],
)
def test_nonsense_is_one_line(arguments: list[str], match: str, refsim) -> None:
    refsim("replay", *arguments).refused(match.replace("; got None, need", ""))


# --- compare ---------------------------------------------------------------------------------------------


def test_compare_two_executors(mixed, refsim) -> None:
    done = refsim("compare", *mixed, "-x", "cpu", "-x", "cpu:emulated", "--json")
    assert done.status == 0 and done.json["same"] and done.json["first"] is None
    assert len(done.json["buffers"]) == 14 and all(row["different"] == 0 for row in done.json["buffers"])


@pytest.mark.search(2)
def test_compare_names_the_first_buffer_that_differs(mixed, refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = EmulatedExecutor.run

    def run(self, launch, inputs):
        out = honest(self, launch, inputs)
        if launch.shader == UNARY.name:
            out.words.byteswap(inplace=True)
        return out

    monkeypatch.setattr(EmulatedExecutor, "run", run)
    done = refsim("compare", *mixed, "-x", "cpu,cpu:emulated")
    assert done.status == 1 and f"first: node 4 {UNARY.name}, {RELU}" in done.out
    assert "1. byte order: output bytes reversed: insert(word, 3 - k, " in done.out
    refsim("compare", *mixed, "-x", "cpu").refused("two executors are compared, not 1")


# --- bisect ----------------------------------------------------------------------------------------------


def test_a_right_run_is_the_same(mixed, dumped: Path, models, refsim) -> None:
    for actual in (dumped, models / "mixed_ops.dump.zip"):
        done = refsim("bisect", *mixed, "--actual", actual, "--json")
        assert done.status == 0 and done.json["same"] and done.json["wrong"] == []


def test_the_guilty_operator_is_told_from_its_victims(mixed, dumped: Path, tmp_path: Path, refsim) -> None:
    """Relu is wrong; what follows is right on what it was handed."""
    from refsim.exec.factory import executor_named
    from refsim.exec.model import load
    from refsim.exec.trace import trace

    model = load(str(mixed[0]))
    given = [np.load(mixed[2])[f"in{i}"] for i in range(len(model.input_shapes()))]
    broken = executor_named("cpu:emulated")
    honest = broken.run

    def run(launch, inputs):
        out = honest(launch, inputs)
        if launch.shader == UNARY.name:
            out.words.byteswap(inplace=True)
        return out

    broken.run = run  # type: ignore[method-assign]
    trace(
        model,
        given,
        broken,
        lambda traced: [
            (dumped / f"{name}.bin").write_bytes(held.raw.tobytes())
            for name, held in traced.outputs.items()
            if isinstance(held, PackedBuffer)
        ],
    )
    done = refsim("bisect", *mixed, "--actual", dumped, "--json")
    assert done.status == 1 and done.json["first"] == RELU and done.json["wrong"] == [RELU]
    rows = {row["value"]: row for row in done.json["nodes"]}
    assert rows[ADD]["run"]["differing"] > 0 and rows[ADD]["alone"]["same"]
    assert done.json["report"]["causes"][0]["name"] == "byte order"
    text = refsim("bisect", *mixed, "--actual", dumped)
    assert f"wrong: node 4 {UNARY.name}, {RELU} (on its own dumped inputs)" in text.out


def test_a_partial_dump_is_enough(mixed, dumped: Path, refsim) -> None:
    for path in dumped.iterdir():
        if path.stem != RELU:
            path.unlink()
    reversed_bytes(dumped / f"{RELU}.bin")
    done = refsim("bisect", *mixed, "--actual", dumped)
    assert done.status == 1 and "1 of 12 int8 buffers dumped" in done.out
    assert f"wrong: node 4 {UNARY.name}, {RELU} (its inputs were not all dumped)" in done.out


def test_a_dump_of_something_else_is_refused(mixed, dumped: Path, tmp_path: Path, refsim) -> None:
    refsim("bisect", *mixed, "--actual", tmp_path / "nonesuch").refused("not a folder or zip file")
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.bin").write_bytes(b"1234")
    (other / "a.json").write_text(json.dumps({"value": "a", "shape": [1, 4], "layout": "PACKED_INT8_4C"}))
    refsim("bisect", *mixed, "--actual", other).refused("holds none of the model's buffers")
    right = (dumped / f"{RELU}.bin").read_bytes()
    (dumped / f"{RELU}.bin").write_bytes(right[:100])
    short = refsim("bisect", *mixed, "--actual", dumped, "--json")
    short.refused(f"refsim: {dumped / RELU}.bin: raw buffer for 1x32x16x16 4W4C: wrong size; got 100 bytes")
    assert short.json["error"]["where"].startswith(f"{dumped / RELU}.bin: ")
    (dumped / f"{RELU}.bin").write_bytes(right)
    info = json.loads((dumped / f"{RELU}.json").read_text())
    (dumped / f"{RELU}.json").write_text(json.dumps(info | {"shape": [1, 1, 1, 1]}))
    lying = refsim("bisect", *mixed, "--actual", dumped)
    assert lying.status == 2 and "recorded as 1x1x1x1 in 4W4C, not 1x32x16x16 in 4W4C" in lying.out
    assert "buffers does not fit target desktop" in lying.out


def test_values_are_named_as_inspect_shows_them(mixed, tmp_path: Path, refsim) -> None:
    done = refsim("extract", *mixed, "-n", "v74", "-o", tmp_path / "case", "--json")
    assert done.status == 0 and (done.json["delegate"], done.json["node"]) == (0, 7)
    refsim("extract", *mixed, "-n", "v7", "-o", tmp_path / "other").refused("lists all); got v7")


def test_numbers_that_are_not_there_are_said_with_those_that_are(refsim) -> None:
    for name in (UNARY.name, f"{UNARY.name}/99999"):
        refsim("replay", name).refused(f"no such case; got {name}, need {UNARY.name}/0000 to {UNARY.name}/")


def test_what_is_meant_by_a_wrong_operator_is_the_case(refsim) -> None:
    refsim("replay", "q8ta_ad/0003").refused("as in digests/; did you mean q8ta_add/0003?")


def test_a_stored_case_as_golden_verify_names_it_leads_to_its_number(refsim) -> None:
    refsim("replay", "q8ta_add/175.bytes").refused(
        "no such case; need a case directory, ZIPFILE!NAME or OPERATOR/NUMBER; did you mean q8ta_add/0175?"
    )
    refsim("replay", "q8ta_add/99999999.bytes").refused("no such case")
