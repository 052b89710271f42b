"""refsim probe: what a device does, saved as a profile; status 3 without a device."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from refsim.core.qmath import Profile
from refsim.exec.factory import executors
from refsim.exec.model import load
from refsim.formats import profiles
from refsim.ops.base.target import Target

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


def test_a_probe_without_python_on_the_device(refsim, tmp_path: Path) -> None:
    """Programs out, raw outputs of a runner in, a profile that --profile takes."""
    done = refsim("probe", "--pte", tmp_path / "probe", "--json")
    assert done.status == 0 and len(done.json["files"]) == len(list((tmp_path / "probe").iterdir()))
    (tmp_path / "outputs").mkdir()
    own = Profile("a phone", contract=True, tie="away", convert="int_min")
    for path in (tmp_path / "probe").iterdir():
        for number, array in enumerate(load(path, Target(own)).run([])):
            (tmp_path / "outputs" / f"{path.stem}-{number}.bin").write_bytes(array.tobytes())
    path = tmp_path / "phone.json"
    text = refsim("probe", "--outputs", tmp_path / "outputs", "--name", own.name, "-o", path)
    assert text.status == 0 and text.out.endswith(f"numerics profile: a phone\nwrote {path}\n")
    assert profiles.profile(path) == own
    case = ("replay", "q8ta_add/0105", "-x", "cpu:emulated")
    assert refsim(*case, "--profile", path).status == 0
    for name in ("ties-0.bin", "ties-1.bin"):
        (tmp_path / "outputs" / name).unlink()
    given = ("probe", "--outputs", tmp_path / "outputs", "-o", tmp_path / "open.json")
    assert refsim(*given, "--json").json["profile"] is None
    assert "unknown: halves in round(): its program gave no outputs" in refsim(*given).out
    refsim(*case, "--profile", tmp_path / "open.json").refused("profile has no name")
    refsim(*given, "--name", "mali").refused("is taken")
    refsim("probe", "--pte", tmp_path / "probe").refused("already exists")
    refsim("probe", "0", "--pte", tmp_path / "other").refused("exclude each other")
    refsim("probe", "--pte", tmp_path / "other", "-o", path).refused("it goes with --outputs")
