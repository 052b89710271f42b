"""Building kp: what is missing is named with the command that fixes it, and nothing is built twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from refsim.core.errors import MissingDependencyError
from refsim.core.extras import NO_KP
from refsim_gpu import build_kp, spirv, system


def test_importing_the_package_needs_neither_kp_nor_vulkan() -> None:
    code = "import sys, refsim_gpu, refsim_gpu.kompute; assert 'kp' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_probes_see_absence() -> None:
    def present(probe: str) -> bool:
        return system.Package("x", "required", probe, "").present()

    assert present("command:python3") and not present("command:no-such-command")
    assert not present("layer:VK_LAYER_no_such_layer")


def absent(name: str) -> Callable[[], list[system.Package]]:
    return lambda: [package for package in system.packages() if package.name == name]


def test_missing_package_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(system, "missing", absent("libfmt-dev"))
    monkeypatch.setattr(build_kp, "installed_version", lambda _: None)
    monkeypatch.setattr(build_kp, "build", lambda: pytest.fail("built all the same"))
    assert build_kp.main([]) == 3
    error = capsys.readouterr().err
    assert "got no libfmt-dev (building kp)" in error and NO_KP in error
    assert "need apt-get install --yes --no-install-recommends libfmt-dev" in error


def run_installer(folder: Path, *packages: str, **stubs: str) -> subprocess.CompletedProcess[str]:
    """The script with these commands instead of the system's."""
    for name, text in stubs.items():
        stub = folder / name.replace("_", "-")
        stub.write_text(f"#!/bin/sh\n{text}\n")
        stub.chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin"}
    return subprocess.run(
        ["sh", build_kp.INSTALL, *packages], env=environment, capture_output=True, text=True, check=False
    )


def test_the_script_installs_what_is_named_or_what_the_list_needs(tmp_path: Path) -> None:
    stubs = {"apt_get": 'echo "$@"', "id": "echo 0"}
    done = run_installer(tmp_path, "cmake", "g++", **stubs)
    assert done.stdout.splitlines() == ["update", "install --yes --no-install-recommends cmake g++"]
    every = run_installer(tmp_path, **stubs).stdout.splitlines()[1].split()[3:]
    assert every == [row.name for row in system.packages() if row.need != "optional"]
    assert run_installer(tmp_path, "cmake", apt_get="exit 100", id="echo 0").returncode == 100


def test_a_working_kp_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build_kp, "installed_version", lambda _: build_kp.VERSION)
    monkeypatch.setattr(build_kp, "selftest", lambda: None)
    monkeypatch.setattr(build_kp, "provide", lambda _: pytest.fail("looked for build needs"))
    assert build_kp.main([]) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_without_a_device_nothing_is_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build_kp, "installed_version", lambda _: build_kp.VERSION)
    monkeypatch.setattr(build_kp, "selftest", lambda: "no device")
    monkeypatch.setattr(build_kp, "provide", lambda _: None)
    monkeypatch.setattr(build_kp.vulkan, "devices", list)
    monkeypatch.setattr(build_kp, "build", lambda: pytest.fail("built all the same"))
    assert build_kp.main([]) == 3
    assert "no Vulkan driver offers a device; got 0 devices" in capsys.readouterr().err


def test_unbuilt_shader_is_named() -> None:
    with pytest.raises(
        MissingDependencyError,
        match=r"no built SPIR-V.*need probe/nothing.spv, which python -m refsim_gpu.build_shaders",
    ):
        spirv.load("probe/nothing")
