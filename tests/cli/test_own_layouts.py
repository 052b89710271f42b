"""Every form and layout in which a runner or a library saves what it made; a kernel with its bug, by three doors."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device.simulated import Runtime
from exec import fours_kernels
from modules.own.build import RIGHT, WRONG
from saved import arrays, flip

import refsim as library
from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.core.errors import FormatError
from refsim.core.locate import at_index
from refsim.core.tensor import TensorDesc
from refsim.exec.factory import executors
from refsim.formats import kernels, layout_file
from refsim.formats.cases import read_folder
from refsim.golden.named import open_case
from refsim.golden.store import default_root

CASE = "q8ta_add/0235"  # 3x8x9x14, each tensor in another layout
OWN = '{ a = ["NC4HW4"], b = ["NC4HW4"], out = ["NC4HW4"] }'

#: The command that judges the kernel, right or wrong.
Door = Callable[[bool], list[Any]]


def module(folder: Path, wrong: bool, layouts: str = OWN) -> Path:
    """The module of `tests/modules/own` that adds, which takes its strides from the host, in these layouts."""
    source = WRONG if wrong else RIGHT
    table = (source / kernels.NAME).read_text().partition("[q8ta_add]")
    folder.mkdir(exist_ok=True)
    shutil.copy(source / "sum.spv", folder)
    (folder / kernels.NAME).write_text(table[1] + re.sub("layouts = .*", f"layouts = {layouts}", table[2]))
    return folder


NO_DEVICE = not any(one.name == "spv:DIR" and one.available for one in executors())
needs_device = pytest.mark.skipif(NO_DEVICE, reason="no Vulkan device, or no kp")


@pytest.fixture(params=["arrays", "package", pytest.param("module", marks=needs_device)])
def door(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Door:
    if request.param == "module":
        return lambda wrong: ["-x", f"spv:{module(tmp_path / f'kernels_{wrong}', wrong)}"]
    if request.param == "package":
        site = tmp_path / "site"
        info = site / "fours_kernels-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fours-kernels\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[refsim.executors]\nfours = fours_kernels:open_executor\n")
        shutil.copy(fours_kernels.__file__, site)
        monkeypatch.syspath_prepend(site)
        return lambda wrong: ["-x", "fours:wrong" if wrong else "fours"]
    bound = open_case(CASE).bound
    a, b = (fours_kernels.fours(bound.inputs[name].unpack()) for name in ("a", "b"))

    def saved(wrong: bool) -> list[Any]:
        path = tmp_path / f"{wrong}.bin"
        path.write_bytes(fours_kernels.add(a, b, vars(bound.call.params), wrong).tobytes())
        return ["--actual", path, "--actual-layout", "NC4HW4"]

    return saved


def report_of(content: dict[str, Any]) -> dict[str, Any]:
    (whole,) = content["executors"].values() if "executors" in content else [content]
    report: dict[str, Any] = whole["report"]
    return report


@pytest.mark.long
def test_each_door_names_the_bug_first(door: Door, refsim) -> None:
    right = refsim(f"replay {CASE}", *door(False), "--json")
    assert right.status == 0, right.err
    found = refsim(f"replay {CASE}", *door(True), "--json")
    assert found.status == 1, found.err
    first = report_of(found.json)["causes"][0]
    assert (first["name"], first["exact"]) == ("another tensor's quantization", True)
    assert first["detail"].lower().startswith("b_zp taken from a")


@needs_device
def test_cases_in_all_layouts_are_judged(tmp_path: Path, refsim) -> None:
    done = refsim("shaders", module(tmp_path, False), "q8ta_add", "--json")
    assert done.status == 0 and done.json["operators"] == {"q8ta_add": {"same": done.json["cases"]}}
    assert done.json["cases"] > 80 and not done.json["skipped"]


@pytest.mark.parametrize(
    "layouts", ['{ a = ["NC4HW4", "4C"] }', '{ a = ["4W"], out = ["CHANNELS_PACKED"] }', '{ a = ["CONV2D"] }']
)
def test_layouts_that_no_host_can_give_are_refused(layouts: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"layouts: the operator never has it for"):
        kernels.read(module(tmp_path, False, layouts) / kernels.NAME)


NCNN = 'order = "n c/4 h w c%4"\nalign = { c = 16 }\n'


@pytest.fixture
def values() -> np.ndarray:
    return open_case(CASE).expected.unpack()


@pytest.mark.parametrize("name", ["NHWC", "NCHW", "NC4HW4", "NHWC4", "own.toml"])
def test_right_values_are_right_in_any_layout(name: str, values, tmp_path: Path, refsim) -> None:
    np.save(tmp_path / "a.npy", values)
    (tmp_path / "own.toml").write_text(NCNN)
    given = tmp_path / name if name.endswith(".toml") else name
    raw, back = tmp_path / "a.bin", tmp_path / "b.npy"
    assert refsim(f"pack {tmp_path}/a.npy -l {given} -o {raw}").status == 0
    assert refsim(f"unpack {raw} -l {given} -s 3,8,9,14 -o {back}").status == 0
    assert np.array_equal(np.load(back), values)
    done = refsim(f"replay {CASE} --actual {raw} --actual-layout {given} --json")
    assert done.status == 0 and done.json["same"] and done.json["report"]["differing"] == 0
    want = tmp_path / "want.bin"
    want.write_bytes(open_case(CASE).expected.raw.tobytes())
    pair = f"diff {want} {raw} -l 4C1W -s 3,8,9,14 --actual-layout {given}"
    assert refsim(pair).status == 0


def test_bytes_that_fit_another_layout_are_told(values, tmp_path: Path, refsim) -> None:
    raw = tmp_path / "a.bin"
    raw.write_bytes(PackedBuffer.pack(values, "NC4HW4").raw.tobytes())
    report = refsim(f"replay {CASE} --actual {raw} --search 0 --json").json["report"]
    assert report["pattern"][0].startswith("these are NC4HW4 bytes")
    assert report["causes"][0]["detail"] == "output written as NC4HW4" and report["causes"][0]["exact"]
    raw.write_bytes(PackedBuffer.pack(values, "4C").raw.tobytes())
    done = refsim(f"replay {CASE} --actual {raw} --actual-layout NC4HW4 --search 0 --json")
    told = [line for line in done.json["report"]["pattern"] if line.startswith("these are")]
    assert done.status == 1 and len(told) == 1 and told[0].startswith("these are 4C or")


def test_a_layout_of_another_size_is_told(tmp_path: Path, refsim) -> None:
    for name, size in (("want.bin", 100), ("got.bin", 75)):
        (tmp_path / name).write_bytes(bytes(size))
    pair = f"diff {tmp_path}/want.bin {tmp_path}/got.bin -l 4C -s 1,3,5,5"
    refsim(pair).refused("NCHW and NHWC of this shape have 75 bytes: --actual-layout")


def test_a_bug_is_named_where_it_is_in_the_own_layout(values) -> None:
    stored = open_case(CASE)
    fours = values.reshape(3, 2, 4, 9, 14).transpose(0, 1, 3, 4, 2)
    exchanged = np.ascontiguousarray(fours.swapaxes(2, 3))
    report = library.diff(
        stored.expected, exchanged.tobytes(), call=stored.bound, actual_layout="NC4HW4", device=True, search=0
    )
    assert report.causes[0].exact and report.desc == TensorDesc(values.shape, "NC4HW4")  # type: ignore[arg-type]
    first = report.differences[0].place
    assert first.byte == at_index(report.desc, first.index).byte
    short = fours.copy()
    short[:, 1] = 0
    report = library.diff(
        stored.expected, short.tobytes(), call=stored.bound, actual_layout="NC4HW4", device=True, search=0
    )
    assert "only at c >= 4" in report.pattern
    assert {row.place.index[1] >= 4 for row in report.differences} == {True}


@pytest.mark.parametrize(
    "text", ["order = 3", 'order = "n c"', 'order = "n c h w"\npad = 3', 'order = "n c h w"\nalign = { q = 2 }',
             "rows = 1", "[", "pad = { w = 2 }"]
)  # fmt: skip
def test_a_file_that_is_no_layout_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(library.RefsimError, match=r"own\.toml"):
        layout_file.named(str(path))


RAW = Path(__file__).parents[1] / "data" / "device" / "linear_head.raw"
#: A case that was written for a device, with what the device made of it.
REPLAY = "replay alone --actual"


@pytest.fixture(scope="module")
def _alone(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from refsim.cli import main

    folder = tmp_path_factory.mktemp("alone") / "alone"
    assert main(f"extract {models}/linear_head.pte -n 1 --random 0 -o {folder} --pte words".split()) == 0
    return folder


@pytest.fixture
def alone(_alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """A case in `alone`, written for a device, and the words that it made of it."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(_alone, "alone")
    with np.load("alone/inputs.npz") as held:
        (words,) = Runtime(Path("alone/program.pte").read_bytes()).run([held[key] for key in held.files])
    return words


def test_a_case_for_a_device_says_what_comes_next(models: Path, tmp_path: Path, refsim) -> None:
    line = f"extract {models}/linear_head.pte -n 1 --random 0 -o"
    plain = refsim(f"{line} {tmp_path}/plain").out.splitlines()[-1]
    assert plain == "for ExecuTorch's runtime on a device: --pte words also writes a program of this call"
    then, form = refsim(f"{line} {tmp_path}/alone --pte words").out.splitlines()[-2:]
    assert then.endswith(f"then: refsim replay {tmp_path}/alone --actual OUTPUT")
    assert form.startswith("OUTPUT: a raw buffer, an .npy, an .npz with one array that fits")


def save(words: np.ndarray) -> list[str]:
    """The words in every form, each of a name of its own."""
    np.save("words.npy", words)
    np.save("bytes.npy", words.view(np.uint8))
    arrays("one.npz", [words])
    arrays("many.npz", [words[:3], words, words.astype(np.float32)])
    for base, count in (("single", 1), ("some", 3)):
        for number in range(count):
            (words if number == count - 1 else words[:5]).tofile(f"{base}-{number}.bin")
    words.tofile("raw.bin")
    return ["words.npy", "bytes.npy", "one.npz", "many.npz", "single", "some", "raw.bin"]


@pytest.mark.long
def test_every_form_of_the_outputs_is_judged(alone: np.ndarray, refsim) -> None:
    desc = read_folder("alone").expected.desc
    place = f"-l {desc.layout.name} -s {','.join(map(str, desc.shape))}"
    for status in (0, 1):
        words = alone.copy()
        words[0] ^= status
        for given in save(words):
            assert refsim(f"{REPLAY} {given}").status == status, given
            assert refsim(f"diff alone/out.bin {given} {place} --json").status == status, given
    for given, chosen in (("many.npz", "out1"), ("some", "some-2.bin")):
        said = refsim(f"{REPLAY} {given}").out.splitlines()[-1]
        assert said == f"{given}: {chosen} was compared, the only one in it that is such a buffer"


def test_elements_are_judged_too(alone: np.ndarray, refsim) -> None:
    """Without padding; where several arrays are in a file, the one with elements is named. Floats as well."""
    elements = read_folder("alone").expected.unpack()
    np.save("elements.npy", elements)
    arrays("some.npz", [np.zeros(3, np.float32), elements])
    assert refsim(f"{REPLAY} elements.npy").status == 0
    said = refsim(f"{REPLAY} some.npz").out.splitlines()
    assert said[-2] == "some.npz: out1 was compared, the only one in it that is such a buffer"
    floats = open_case("q8ta_dequantize/1").expected.unpack().copy()
    for status in (0, 1):
        floats.reshape(-1)[0] += status
        arrays("floats.npz", [floats])
        assert refsim("replay q8ta_dequantize/1 --actual floats.npz").status == status


def test_an_array_of_elements_is_compared_without_padding(tmp_path: Path, refsim, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert refsim("extract q8ta_add/2 -o case").status == 0
    expected = read_folder("case").expected
    values, padding = expected.unpack(), int((expected.kinds() != ByteKind.VALUE).sum())
    PackedBuffer.pack(values, expected.desc.layout, lane=99, word=99).raw.tofile("other_padding.bin")
    place = f"-l {expected.desc.layout.name} -s {','.join(map(str, values.shape))}"
    assert padding
    for status in (0, 1):
        values.reshape(-1)[-1] ^= np.int8(status)
        np.save("out.npy", values)
        done = refsim("replay case --all-bytes --actual out.npy --json")
        assert done.status == status
        counts = {row.pop("kind"): row for row in done.json["report"]["counts"]}
        assert counts["unknown padding"] == dict(bytes=padding, different=0, compared=False)
        assert counts["value"]["different"] == status and set(counts) == {"value", "unknown padding"}
        for right in ("case/out.bin", "other_padding.bin"):
            for pair in (f"{right} out.npy", f"out.npy {right}"):
                assert refsim(f"diff {pair} {place}").status == status
    said = refsim("replay case --actual out.npy").out.splitlines()[-1]
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
        line = f"replay q8ta_conv2d_pw/0258 --search 0 --actual {tmp_path}/out.npy"
        assert refsim(line, "--actual-layout", layout).status == status


def test_what_is_no_such_buffer_is_said(alone: np.ndarray, refsim) -> None:
    desc = read_folder("alone").expected.desc
    arrays("short.npz", [alone[:3]])
    arrays("twice.npz", [alone, alone])
    np.save("short.npy", np.zeros(3, np.int8))
    np.save("elements.npy", np.zeros((*desc.shape, 2), np.int8))
    for number in range(2):
        alone.tofile(f"both-{number}.bin")
    for given, said in {
        "short.npz": f"got out0 int32 [3], need one int32 [{desc.nbytes // 4}], its words",
        "short.npy": "or int8 [6, 128], its elements",
        "twice.npz": "several arrays may be this buffer; got out0 int32",
        "elements.npy": f"no array of this buffer; got int8 {[*desc.shape, 2]}, need one int32",
        "both": "not one output of this buffer; got both-0.bin of ",
        "none": "none: cannot be read",
    }.items():
        done = refsim(f"{REPLAY} {given}")
        done.refused(said)
        assert ("EXPOSED" in done.err) == (given == "twice.npz"), done.err


@pytest.mark.long
def test_what_judges_a_program_that_was_not_exposed_is_named(alone: np.ndarray, models: Path, refsim) -> None:
    assert refsim("golden export q8ta_relu --size small --pte corpus").status == 0
    shutil.copy("alone/program.pte", "moved.pte")
    save(alone)
    for program, hint in {
        "alone/program.pte": [f"{REPLAY} OUTPUT"],
        "corpus/q8ta_relu.pte": ["golden check --pte corpus --outputs OUTPUTS"],
        "moved.pte": [],
        f"{models}/linear_head.pte": [f"expose {models}/linear_head.pte -o exposed.pte"],
    }.items():
        for line in (f"triage {program} --random 0 --outputs one.npz", f"collect {program} one.npz -o d"):
            done = refsim(line)
            done.refused("not an exposed file")
            assert [" ".join(words) for words in done.hints] == hint
    assert refsim(f"{REPLAY} one.npz").status == 0
    done = refsim("expose alone/program.pte -o exposed.pte")
    done.refused("alone/program.pte: is a program of calls alone, which have nothing inside to hand out")
    assert [" ".join(words) for words in done.hints] == [f"{REPLAY} OUTPUT"]
    assert not Path("exposed.pte").exists()


@pytest.mark.long
def test_the_case_beside_a_buffer_is_the_one_to_give(alone: np.ndarray, refsim) -> None:
    shutil.copy("alone/out.bin", "other.bin")
    done = refsim("diff alone/out.bin", flip("other.bin"))
    assert done.status == 1
    assert done.out.splitlines()[-1] == "more causes, and who wrote each word: --case alone"
    assert refsim("diff alone/out.bin other.bin --case alone").status == 1


def test_what_a_folder_or_a_zip_file_lacks_is_named(alone: np.ndarray, refsim) -> None:
    corpus = default_root() / "cases" / "q8ta_add.zip"
    done = refsim(f"replay {corpus}")
    done.refused("not a case; got a zip file of cases: 0175, 0176, 0177, ... and ")
    assert done.hints[0][1].startswith(f"{corpus}!") and refsim(*done.hints[0]).status == 0
    done = refsim("golden check --pte alone --outputs .")
    done.refused("alone: holds no corpus.json")
    assert done.hints == [["golden", "export", "--pte", "out/corpus"]]
    Path("out/corpus").mkdir(parents=True)
    Path("out/corpus/corpus.json").write_text("{}")
    for wrong, what in (("out/corpse", "no such folder"), ("alone", "holds no corpus.json")):
        done = refsim(f"golden check --pte {wrong} --outputs .")
        done.refused(f"{wrong}: {what}")
        assert done.err.endswith("did you mean out/corpus?\n")
    done = refsim(f"collect {RAW}.pte", arrays("six.npz", [alone] * 6), "-o", "dump")
    done.refused("got 6: out0, out1, out2, out3, ... and 2 more, need 5")
