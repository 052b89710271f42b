"""What a device made of one call: every form in which a runner saves it is judged, and nothing else is."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
from device.simulated import Runtime

from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.formats.cases import read_folder
from refsim.golden.named import open_case
from refsim.golden.store import default_root

DEVICE = Path(__file__).parents[1] / "data" / "device"


@pytest.fixture
def alone(models: Path, tmp_path: Path, refsim, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """A case in `alone`, written for a device, and the words that it made of it."""
    monkeypatch.chdir(tmp_path)
    done = refsim(
        "extract", models / "linear_head.pte", "-n", 1, "--random", 0, "-o", "alone", "--pte", "words"
    )
    assert done.status == 0
    assert done.out.splitlines()[-2].endswith("then: refsim replay alone --actual OUTPUT")
    assert done.out.splitlines()[-1].startswith(
        "OUTPUT: a raw buffer, an .npy, an .npz with one array that fits"
    )
    with np.load("alone/inputs.npz") as held:
        (words,) = Runtime(Path("alone/program.pte").read_bytes()).run([held[key] for key in held.files])
    return words


def save(words: np.ndarray) -> list[str]:
    """The words in every form, each of a name of its own."""
    np.save("words.npy", words)
    np.save("bytes.npy", words.view(np.uint8))
    np.savez("one.npz", out0=words)
    np.savez("many.npz", out0=words[:3], out1=words, out2=words.astype(np.float32))
    for base, count in (("single", 1), ("some", 3)):
        for number in range(count):
            (words if number == count - 1 else words[:5]).tofile(f"{base}-{number}.bin")
    words.tofile("raw.bin")
    return ["words.npy", "bytes.npy", "one.npz", "many.npz", "single", "some", "raw.bin"]


@pytest.mark.long
def test_every_form_of_the_outputs_is_judged(alone: np.ndarray, refsim) -> None:
    desc = read_folder("alone").expected.desc
    shape = ",".join(map(str, desc.shape))
    for status in (0, 1):
        words = alone.copy()
        words[0] ^= status
        for given in save(words):
            assert refsim("replay", "alone", "--actual", given).status == status, given
            done = refsim("diff", "alone/out.bin", given, "-l", desc.layout.name, "-s", shape, "--json")
            assert done.status == status, given
    said = refsim("replay", "alone", "--actual", "many.npz").out.splitlines()
    assert said[-1] == "many.npz: out1 was compared, the only one in it that is such a buffer"
    said = refsim("replay", "alone", "--actual", "some").out.splitlines()
    assert said[-1] == "some: some-2.bin was compared, the only one in it that is such a buffer"


def test_elements_of_a_float_buffer_are_judged(models: Path, tmp_path: Path, refsim) -> None:
    case = "q8ta_dequantize/1"
    assert refsim("extract", case, "-o", tmp_path / "case").status == 0
    right = read_folder(tmp_path / "case").expected.unpack()
    np.savez(tmp_path / "out.npz", out0=right)
    assert refsim("replay", case, "--actual", tmp_path / "out.npz").status == 0
    right = right.copy()
    right.reshape(-1)[0] += 1
    np.savez(tmp_path / "out.npz", out0=right)
    assert refsim("replay", case, "--actual", tmp_path / "out.npz").status == 1


def test_an_array_of_elements_is_compared_without_padding(tmp_path: Path, refsim, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert refsim("extract", "q8ta_add/2", "-o", "case").status == 0
    expected = read_folder("case").expected
    values, padding = expected.unpack(), int((expected.kinds() != ByteKind.VALUE).sum())
    PackedBuffer.pack(values, expected.desc.layout, lane=99, word=99).raw.tofile("other_padding.bin")
    assert padding
    for status in (0, 1):
        values.reshape(-1)[-1] ^= np.int8(status)
        np.save("out.npy", values)
        done = refsim("replay", "case", "--all-bytes", "--actual", "out.npy", "--json")
        assert done.status == status
        counts = {row["kind"]: row for row in done.json["report"]["counts"]}
        assert counts["unknown padding"] == dict(
            kind="unknown padding", bytes=padding, different=0, compared=False
        )
        assert counts["value"]["different"] == status and set(counts) == {"value", "unknown padding"}
        shape = ",".join(map(str, values.shape))
        for right in ("case/out.bin", "other_padding.bin"):
            for pair in ((right, "out.npy"), ("out.npy", right)):
                assert refsim("diff", *pair, "-l", expected.desc.layout.name, "-s", shape).status == status
    said = refsim("replay", "case", "--actual", "out.npy").out.splitlines()[-1]
    assert said == f"out.npy: an array holds no padding; its {values.size} elements were compared"


@pytest.mark.parametrize("layout", ["NHWC", "NC4HW4", "n h c/4 w c%4"])
def test_an_array_with_the_dims_of_the_layout_is_the_buffer(layout: str, tmp_path: Path, refsim) -> None:
    values = open_case("q8ta_conv2d_pw/0258").expected.unpack()  # 1x2x5x14
    fours = np.pad(values, ((0, 0), (0, 2), (0, 0), (0, 0))).reshape(1, 1, 4, 5, 14)
    laid = {
        "NHWC": values.transpose(0, 2, 3, 1),
        "NC4HW4": fours.transpose(0, 1, 3, 4, 2),
        "n h c/4 w c%4": fours.transpose(0, 3, 1, 4, 2),
    }[layout]
    for status in (0, 1):
        laid = np.ascontiguousarray(laid) ^ np.int8(status)
        np.save(tmp_path / "out.npy", laid)
        given = ("--actual", tmp_path / "out.npy", "--actual-layout", layout, "--search", 0)
        assert refsim("replay", "q8ta_conv2d_pw/0258", *given).status == status


def test_what_is_no_such_buffer_is_said(alone: np.ndarray, refsim) -> None:
    desc = read_folder("alone").expected.desc
    np.savez("short.npz", out0=alone[:3])
    np.savez("twice.npz", out0=alone, out1=alone)
    np.save("elements.npy", np.zeros((*desc.shape, 2), np.int8))
    for number in range(2):
        alone.tofile(f"both-{number}.bin")
    for given, said in (
        (
            "short.npz",
            f"no array of this buffer; got out0 int32 [3], need one int32 [{desc.nbytes // 4}], its words",
        ),
        ("twice.npz", "several arrays may be this buffer; got out0 int32"),
        ("elements.npy", f"no array of this buffer; got int8 {[*desc.shape, 2]}, need one int32"),
        ("both", "not one output of this buffer; got both-0.bin of "),
        ("none", "none: cannot be read"),
    ):
        done = refsim("replay", "alone", "--actual", given)
        done.refused(said)
        assert ("EXPOSED" in done.err) == (given == "twice.npz"), done.err


@pytest.mark.long
def test_what_judges_a_program_that_was_not_exposed_is_named(alone: np.ndarray, models: Path, refsim) -> None:
    """Never expose, where that refuses the file too."""
    assert refsim("golden", "export", "q8ta_relu", "--size", "small", "--pte", "corpus").status == 0
    Path("moved.pte").write_bytes(Path("alone/program.pte").read_bytes())
    save(alone)
    for program, hint in (
        ("alone/program.pte", "try: refsim replay alone --actual OUTPUT"),
        ("corpus/q8ta_relu.pte", "try: refsim golden check --pte corpus --outputs OUTPUTS"),
        ("moved.pte", None),
        (models / "linear_head.pte", f"try: refsim expose {models / 'linear_head.pte'} -o exposed.pte"),
    ):
        for verb in (("triage", program, "--random", 0, "--outputs"), ("collect", program, "-o", "d")):
            done = (
                refsim(*verb, "one.npz") if verb[0] == "triage" else refsim(*verb[:2], "one.npz", *verb[2:])
            )
            done.refused("not an exposed file")
            assert done.err.splitlines()[1:] == ([] if hint is None else [hint])
            if hint and "replay" in hint:
                words = shlex.split(hint.removeprefix("try: refsim ").replace("OUTPUT", "one.npz"))
                assert refsim(*words).status == 0


def test_what_a_folder_or_a_zip_file_lacks_is_named(alone: np.ndarray, refsim) -> None:
    """A zip file of cases without a name, a folder without a corpus; a list that is cut says so."""
    corpus = default_root() / "cases" / "q8ta_add.zip"
    done = refsim("replay", corpus)
    done.refused("not a case; got a zip file of cases: 0175, 0176, 0177, ... and ")
    first = shlex.split(done.err.splitlines()[1].removeprefix("try: refsim "))
    assert first[1].startswith(f"{corpus}!") and refsim(*first).status == 0
    done = refsim("golden", "check", "--pte", "alone", "--outputs", ".")
    done.refused("alone: holds no corpus.json")
    assert done.err.splitlines()[1] == "try: refsim golden export --pte out/corpus"
    (Path("out/corpus")).mkdir(parents=True)
    Path("out/corpus/corpus.json").write_text("{}")
    for wrong, what in (("out/corpse", "no such folder"), ("alone", "holds no corpus.json")):
        done = refsim("golden", "check", "--pte", wrong, "--outputs", ".")
        done.refused(f"{wrong}: {what}")
        assert done.err.endswith("did you mean out/corpus?\n")
    exposed = DEVICE / "linear_head.raw.pte"
    np.savez("six.npz", **{f"out{number}": alone for number in range(6)})
    done = refsim("collect", exposed, "six.npz", "-o", "dump")
    done.refused("got 6: out0, out1, out2, out3, ... and 2 more, need 5")
