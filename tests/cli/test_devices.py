"""refsim devices: a row for each Vulkan device, or status 3."""

from __future__ import annotations

import pytest

from refsim.exec.factory import executors


def test_lists_what_executors_name(refsim) -> None:
    gpus = [e for e in executors() if e.name.startswith("gpu:")]
    if not gpus:
        pytest.skip("no Vulkan device")
    done = refsim("devices", "--json")
    assert done.status == 0
    assert [d["executor"] for d in done.json["devices"]] == [e.name for e in gpus]
    assert all(d["name"] in e.detail for d, e in zip(done.json["devices"], gpus, strict=True))
    text = refsim("devices")
    assert text.status == 0 and len(text.out.splitlines()) == 1 + len(gpus)


def test_no_driver_is_status_3(refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VK_ICD_FILENAMES", "VK_DRIVER_FILES"):
        monkeypatch.setenv(name, "/nonexistent")
    refsim("devices").refused("vulkan: ", status=3)
