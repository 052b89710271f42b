"""refsim devices, probe and doctor: what is there, what it does, and what is missing; status 3 without it."""

from __future__ import annotations

import importlib.util
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click
import pytest

from refsim.cli import doctor
from refsim.cli.probe import Device
from refsim.core.qmath import Profile
from refsim.exec.executor import ExecutorInfo
from refsim.exec.factory import executors
from refsim.exec.model import load
from refsim.formats import profiles
from refsim.ops.base.target import Target


@pytest.fixture
def gpus() -> list[ExecutorInfo]:
    found = [row for row in executors() if row.name.startswith("gpu:")]
    if not found:
        pytest.skip("no Vulkan device")
    return found


def test_devices_lists_what_executors_name(refsim, gpus: list[ExecutorInfo]) -> None:
    done = refsim("devices --json")
    assert done.status == 0
    assert [d["executor"] for d in done.json["devices"]] == [row.name for row in gpus]
    assert all(d["name"] in row.detail for d, row in zip(done.json["devices"], gpus, strict=True))
    text = refsim("devices")
    assert text.status == 0 and len(text.out.splitlines()) == 1 + len(gpus)


@pytest.mark.parametrize("verb", ["devices", "probe"])
def test_no_driver_is_status_3(verb: str, refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VK_ICD_FILENAMES", "VK_DRIVER_FILES"):
        monkeypatch.setenv(name, "/nonexistent")
    refsim(verb).refused("vulkan: ", status=3)


def test_probe_saves_a_profile(refsim, gpus: list[ExecutorInfo], tmp_path: Path) -> None:
    if importlib.util.find_spec("kp") is None or not any(row.available for row in gpus):
        pytest.skip("kp is not built")
    path = tmp_path / "profile.json"
    done = refsim(f"probe -o {path} --json")
    assert done.status == 0
    saved = profiles.read(path)
    assert done.json["profile"]["name"] == saved.name
    assert done.json["measured"]["remarks"] == [] and done.json["measured"]["precise"] == "separate"
    text = refsim("probe 0")
    assert text.status == 0 and text.out.endswith(f"numerics profile: {saved.name}\n")
    refsim("probe 99").refused("no such device; got 99", status=3)
    refsim(f"probe -o {tmp_path}/missing/profile.json").refused("cannot be written")


def test_a_device_has_the_name_that_other_verbs_give_it() -> None:
    assert [Device().convert(given, None, None) for given in ("gpu:3", "3", 3)] == [3, 3, 3]


def test_a_probe_without_python_on_the_device(refsim, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = refsim("probe --pte probe --json")
    assert done.status == 0 and len(done.json["files"]) == len(list(Path("probe").iterdir()))
    Path("outputs").mkdir()
    own = Profile("a phone", contract=True, tie="away", convert="int_min")
    for path in Path("probe").iterdir():
        for number, array in enumerate(load(path, Target(own)).run([])):
            array.tofile(f"outputs/{path.stem}-{number}.bin")
    text = refsim("probe --outputs outputs -o phone.json", "--name", own.name)
    assert text.status == 0 and text.out.endswith("numerics profile: a phone\nwrote phone.json\n")
    assert profiles.profile("phone.json") == own
    assert refsim("replay q8ta_add/0105 -x cpu:emulated --profile phone.json").status == 0
    for name in ("ties-0.bin", "ties-1.bin"):
        Path(f"outputs/{name}").unlink()
    given = "probe --outputs outputs -o open.json"
    assert refsim(f"{given} --json").json["profile"] is None
    assert "unknown: halves in round(): its program gave no outputs" in refsim(given).out
    refsim("replay q8ta_add/0105 --profile open.json").refused("profile has no name")
    refsim(f"{given} --name mali").refused("is taken")
    refsim("probe --pte probe").refused("already exists")


def test_doctor_lists_every_package_and_executor(refsim) -> None:
    done = refsim("doctor --json")
    assert done.status == 0 and done.json["usable"] is True
    by_name = {finding["thing"]: finding for finding in done.json["findings"]}
    assert {"refsim", "python", "numpy", "numba", "torch", "kp", "executorch", "kernel cache"} <= set(by_name)
    assert by_name["numpy"]["detail"] == version("numpy")
    for finding in by_name.values():
        assert finding["status"] == "ok" or (finding["status"] == "missing" and finding["fix"])
    rows = {row["name"]: row for row in done.json["executors"]}
    assert rows["cpu"]["available"] and any(name.startswith("gpu") for name in rows)


def lacking(*names: str):
    """What `version` says where these are not installed by pip."""

    def found(name: str) -> str:
        if name in names:
            raise PackageNotFoundError(name)
        return "1"

    return found


def test_a_missing_required_package_is_status_3(refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "version", lacking("numba", "kp"))
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    done = refsim("doctor")
    assert done.status == 3
    assert "fix numba: pip install numba" in done.out.splitlines()
    assert any(line.startswith("fix kp: make gpu") for line in done.out.splitlines())


def test_a_module_without_a_distribution_can_be_used(refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kp that somebody copied: the executors take it, and so it is not missing."""
    monkeypatch.setattr(doctor, "version", lacking("click"))
    (found,) = (one for one in refsim("doctor --json").json["findings"] if one["thing"] == "click")
    assert found["status"] == "ok" and found["detail"] == f"{click.__file__}, not installed by pip"
