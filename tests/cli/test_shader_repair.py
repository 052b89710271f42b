"""refsim shaders --repair: which change makes a wrong module right, and what is said where there is none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from modules import example, own
from modules.build import put

from refsim.modules.repair.search import refused, tool

pytest_plugins = "modules.opened"

BUG = example.EXAMPLES["repairable"]


@pytest.mark.long
def test_the_change_is_named_and_the_patch_is_right(folder: Path, refsim, tmp_path: Path) -> None:
    put(folder, BUG.module, example.binary("repairable"))
    patch = tmp_path / "fixed.spv"
    done = refsim(f"shaders {folder} {BUG.op} --count 8 --repair --patch {patch} --json")
    assert done.status == 1
    (found,) = json.loads(done.out)["repair"]
    assert found["operator"] == BUG.op and found["modules"] == [BUG.module]
    assert {(row["place"].rpartition(":")[0], row["wrong"]) for row in found["repairs"]} == {(BUG.file, None)}
    first = found["repairs"][0]
    assert first["source"].startswith("for (uint k4") and first["cases"] > 8 and first["copies"] == 1
    assert tool() is None or refused(patch.read_bytes()) is None
    put(folder, BUG.module, patch)
    done = refsim(f"shaders {folder} {BUG.op} --count 8")
    assert done.status == 0, done.out


@pytest.mark.long
def test_nothing_is_found_in_no_time(folder: Path, refsim) -> None:
    """The one bug of the other example takes more than one edit."""
    put(folder, example.BUG.module, example.BINARY)
    done = refsim(f"shaders {folder} {example.BUG.op} --count 8 --repair --seconds 1")
    assert done.status == 1 and "no repair: none of the single edits" in done.out
    assert os.listdir(folder).count(f"{example.BUG.module}.spv") == 1


@pytest.mark.long
def test_kernels_of_a_description(refsim, tmp_path: Path) -> None:
    """The wrong twin takes the zero point of the other input (tests/modules/own)."""
    page = tmp_path / "page.html"
    wrong = Path(own.__file__).parent / "wrong"
    done = refsim(f"shaders {wrong} q8ta_add --repair --json --html {page}")
    assert done.status == 1
    (found,) = json.loads(done.out)["repair"]
    first = found["repairs"][0]
    assert first["place"].startswith("sum.comp:") and first["change"] == "b_zp in place of a_zp", found
    assert "b_zp in place of a_zp" in page.read_text()
