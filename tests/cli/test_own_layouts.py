"""Layouts of other libraries: buffers in them, and a kernel with its bug, by the three doors of docs/own-kernels.md."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exec import fours_kernels
from modules.own.build import RIGHT, WRONG

import refsim as library
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import FormatError
from refsim.core.locate import at_index
from refsim.core.tensor import TensorDesc
from refsim.exec.factory import executors
from refsim.formats import kernels, layout_file
from refsim.golden.named import open_case

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
    done = refsim(f"replay {CASE} --actual {raw} --search 0 --json")
    assert done.status == 1
    assert done.json["report"]["pattern"][0].startswith("these are NC4HW4 bytes")
    assert done.json["report"]["causes"][0]["detail"] == "output written as NC4HW4"
    assert done.json["report"]["causes"][0]["exact"]


def test_only_the_layout_of_the_bytes_is_told(values, tmp_path: Path, refsim) -> None:
    raw = tmp_path / "a.bin"
    raw.write_bytes(PackedBuffer.pack(values, "4C").raw.tobytes())
    done = refsim(f"replay {CASE} --actual {raw} --actual-layout NC4HW4 --search 0 --json")
    told = [line for line in done.json["report"]["pattern"] if line.startswith("these are")]
    assert done.status == 1 and len(told) == 1 and told[0].startswith("these are 4C or")


def test_a_layout_of_another_size_is_told(tmp_path: Path, refsim) -> None:
    for name, size in (("want.bin", 100), ("got.bin", 75)):
        (tmp_path / name).write_bytes(bytes(size))
    pair = f"diff {tmp_path}/want.bin {tmp_path}/got.bin -l 4C -s 1,3,5,5"
    refsim(pair).refused("NCHW and NHWC of this shape have 75 bytes: --actual-layout")


def test_a_bug_is_named_where_it_is_in_the_own_layout(values, tmp_path: Path) -> None:
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
    assert "only c >= 4 (of 8)" in report.pattern
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
