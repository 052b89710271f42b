"""A kernel in the layout of another library, and its bug, by the three doors of docs/own-kernels.md."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exec import fours_kernels
from modules.own.build import RIGHT, WRONG

from refsim.core.errors import FormatError
from refsim.exec.factory import executors
from refsim.formats import kernels
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
