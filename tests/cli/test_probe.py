"""refsim probe: what a device does, saved as a profile; status 3 without a device."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from refsim.exec.factory import executors
from refsim.formats import profiles

READY = importlib.util.find_spec("kp") is not None and any(
    e.name.startswith("gpu:") and e.available for e in executors()
)


@pytest.mark.skipif(not READY, reason="no Vulkan device, or kp is not built")
def test_probe_saves_a_profile(refsim, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    done = refsim("probe", "-o", path, "--json")
    assert done.status == 0
    saved = profiles.read(path)
    assert done.json["profile"]["name"] == saved.name
    assert done.json["measured"]["remarks"] == [] and done.json["measured"]["precise"] == "separate"
    text = refsim("probe", "0")
    assert text.status == 0 and text.out.endswith(f"numerics profile: {saved.name}\n")
    refsim("probe", "99").refused("no such device; got 99", status=3)
    refsim("probe", "-o", tmp_path / "missing" / "profile.json").refused("cannot be written")


def test_no_driver_is_status_3(refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VK_ICD_FILENAMES", "VK_DRIVER_FILES"):
        monkeypatch.setenv(name, "/nonexistent")
    refsim("probe").refused("vulkan: ", status=3)


def test_a_negative_device_is_bad_usage(refsim) -> None:
    refsim("probe", "--", "-1").refused("Invalid value")
