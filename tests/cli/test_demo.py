"""refsim demo: all bundled models, every buffer; and it fails if a recording is another."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from refsim.cli import demo


def test_all_bundled_models_match(refsim) -> None:
    done = refsim("demo --json")
    assert done.status == 0 and done.json["same"] is True
    by_name = {m["model"]: m for m in done.json["models"]}
    assert {name: m["buffers"] for name, m in by_name.items()} == {
        "linear_head": 4,
        "linear_head_gemv": 4,
        "mixed_ops": 12,
        "mobilenet_v2_035_96": 99,
        "refine_seg": 29,
    }
    assert not any(m["different"] for m in by_name.values())


def test_a_changed_recording_is_noticed(
    refsim, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("linear_head.pte", "linear_head.io.npz"):
        shutil.copy(models / name, tmp_path)
    with (
        zipfile.ZipFile(models / "linear_head.dump.zip") as source,
        zipfile.ZipFile(tmp_path / "linear_head.dump.zip", "w") as target,
    ):
        for name in source.namelist():
            content = source.read(name)
            target.writestr(
                name, content if name.endswith(".json") else bytes([content[0] ^ 1]) + content[1:]
            )
    monkeypatch.setattr(demo, "FOLDERS", (tmp_path,))
    done = refsim("demo linear_head")
    assert done.status == 1 and "different 1 of" in done.out
    assert done.err == "rerun: refsim demo linear_head\n"
    refsim("demo nonesuch").refused("no such bundled model; got nonesuch, need linear_head")


def test_nothing_bundled_is_said(refsim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "FOLDERS", (tmp_path,))
    refsim("demo").refused("no bundled models")
