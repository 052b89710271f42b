"""Which of the Debian packages in apt.txt are missing here, and how to install them."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from refsim.core.errors import MissingDependencyError, RefsimError
from refsim_gpu import vulkan

LIST = Path(__file__).resolve().parent / "apt.txt"
LAYER_FOLDERS = ("/usr/share/vulkan/explicit_layer.d", "/etc/vulkan/explicit_layer.d")


@dataclass(frozen=True)
class Package:
    name: str
    need: str
    probe: str
    purpose: str

    @property
    def required(self) -> bool:
        return self.need == "required"

    def present(self) -> bool:
        kind, _, argument = self.probe.partition(":")
        return PROBES[kind](argument)


def has_header(header: str) -> bool:
    """Whether the C++ compiler finds it, wherever it lies; true without one, which is its own complaint."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        return True
    command = [compiler, "-x", "c++", "-std=c++14", "-fsyntax-only", "-"]
    source = f"#if !__has_include(<{header}>)\n#error missing\n#endif\n"
    return subprocess.run(command, input=source, text=True, capture_output=True, check=False).returncode == 0


def has_driver(_: str) -> bool:
    try:
        return bool(vulkan.devices())
    except RefsimError:
        return False


def has_loader(_: str) -> bool:
    try:
        vulkan.devices()
    except MissingDependencyError:
        return False
    except RefsimError:
        pass
    return True


def has_layer(name: str) -> bool:
    return any(name in path.read_text() for folder in LAYER_FOLDERS for path in Path(folder).glob("*.json"))


PROBES = {
    "command": lambda name: shutil.which(name) is not None,
    "header": has_header,
    "driver": has_driver,
    "loader": has_loader,
    "layer": has_layer,
}


def packages() -> list[Package]:
    rows = []
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            need, name, probe, purpose = line.split(None, 3)
            rows.append(Package(name, need, probe, purpose))
    return rows


def missing() -> list[Package]:
    return [package for package in packages() if not package.present()]


def install_command(wanted: list[Package]) -> list[str]:
    return ["apt-get", "install", "--yes", "--no-install-recommends", *(package.name for package in wanted)]


def install(wanted: list[Package]) -> None:
    """Install with apt-get, as root or through sudo without a password.

    Raises MissingDependencyError, naming the packages and the command, where that is not possible.
    """
    command = install_command(wanted)
    names = ", ".join(package.name for package in wanted)
    fix = " ".join(command)
    if shutil.which("apt-get") is None:
        raise MissingDependencyError(
            "system", "no apt-get to install with", got=f"no {names}", need=f"these: {names}"
        )
    prefix: list[str] = []
    if os.geteuid() != 0:
        prefix = ["sudo", "-n"]
        if shutil.which("sudo") is None or subprocess.run([*prefix, "true"], check=False).returncode:
            raise MissingDependencyError(
                "system", "needs root to install", got=f"no {names}", need=f"sudo {fix}"
            )
    # a machine that never fetched its package lists finds nothing
    for step in (["apt-get", "update"], command):
        if subprocess.run([*prefix, *step], check=False).returncode:
            raise MissingDependencyError("system", f"{' '.join(step)} failed", got=f"no {names}", need=fix)
