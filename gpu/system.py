"""Which of the Debian packages in apt.txt are missing here, and the command that installs them."""

from __future__ import annotations

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
    """Whether the C++ compiler finds the header; true if there is no compiler, which is reported separately."""
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


def install_command(wanted: list[Package]) -> str:
    """What a user types, as root; install-packages.sh does it for them."""
    return " ".join(("apt-get install --yes --no-install-recommends", *(package.name for package in wanted)))
