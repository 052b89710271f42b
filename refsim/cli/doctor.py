"""Show what is installed, which GPU and driver there is, what is missing, and how to fix it."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import refsim
from refsim.cli.kit.verb import verb
from refsim.core.counted import counted
from refsim.core.errors import MissingDependencyError
from refsim.core.extras import GPU_FIX, INTEROP_FIX, TORCH_FIX, WEBGPU_FIX
from refsim.core.meanings import Detail
from refsim.core.result import Result, Table, Text
from refsim.core.status import SAME, UNAVAILABLE
from refsim.exec.executor import ExecutorInfo
from refsim.exec.factory import backend, executors

#: Distribution, whether refsim needs it, what for, and the command that installs it.
PACKAGES = (
    ("numpy", True, "definitions", "pip install numpy"),
    ("numba", True, "CPU kernels", "pip install numba"),
    ("flatbuffers", True, "reading files", "pip install flatbuffers"),
    ("click", True, "command line", "pip install click"),
    ("rich", True, "tables", "pip install rich"),
    ("torch", False, "other float operators, lowering", TORCH_FIX),
    ("executorch", False, "exchange with upstream", INTEROP_FIX),
    ("torchao", False, "exchange with upstream", INTEROP_FIX),
    ("kp", False, "running on a GPU", GPU_FIX),
    ("wgpu", False, "running WGSL kernels", WEBGPU_FIX),
)


@dataclass(frozen=True)
class Requirement:
    """One thing that was looked for."""

    thing: Annotated[str, "What was looked for."]
    status: Annotated[Literal["ok", "missing"], "How it came out."]
    detail: Detail
    purpose: Annotated[str, "What it is for."] = ""
    fix: Annotated[str, "The command that installs it, if it is missing."] = ""


@dataclass(frozen=True)
class Doctored(Result):
    """What refsim can use on this machine."""

    findings: Annotated[Sequence[Requirement], "What was found."]
    executors: Annotated[Sequence[ExecutorInfo], "The executors, in order."]
    usable: Annotated[bool, "Whether nothing is missing that refsim always needs."]

    @property
    def status(self) -> int:
        return SAME if self.usable else UNAVAILABLE

    def text(self) -> Text:
        rows = [(f.thing, f.status, f.detail, f.purpose) for f in self.findings]
        yield Table(("what", "status", "detail", "for"), rows, drop=("for",))
        yield ""
        found = [(one.name, "ok" if one.available else "missing", one.detail) for one in self.executors]
        yield Table(("executor", "status", "detail"), found)
        yield from (f"fix {one.thing}: {one.fix}" for one in self.findings if one.status == "missing")


@verb("doctor")
def command() -> Doctored:
    """List what refsim can use here. The status is 3 if a required package is missing; a missing GPU is no failure."""
    findings = [*interpreter(), processor(), *packages(), cache(), corpus(), *debian_packages()]
    required = {name for name, needed, _, _ in PACKAGES if needed}
    broken = any(f.status == "missing" and f.thing in required for f in findings)
    return Doctored(findings, executors(), not broken)


def interpreter() -> list[Requirement]:
    machine = f"{platform.system()} {platform.release()}, {platform.machine()}, {os.cpu_count()} CPUs"
    return [
        Requirement("refsim", "ok", f"{refsim.__version__} in {Path(refsim.__file__).parent}"),
        Requirement("python", "ok", f"{platform.python_version()} {sys.executable}"),
        Requirement("machine", "ok", machine),
    ]


def processor() -> Requirement:
    """What native kernels are compiled for, and whether they may use its matrix unit."""
    from refsim.exec.cpu import isa
    from refsim.exec.cpu.amx import tiles

    found = isa.cpu()
    refused = tiles.why_not(found.isa)
    unit = "tiles may be used" if refused is None else f"no tiles: {refused}"
    return Requirement(
        "processor", "ok", f"{found.name}, instructions {found.isa.name}; {unit}", "CPU kernels"
    )


def packages() -> list[Requirement]:
    findings = []
    for name, required, purpose, fix in PACKAGES:
        try:
            findings.append(Requirement(name, "ok", version(name), purpose))
        except PackageNotFoundError:
            place = _place(name)
            if place is not None:  # the module alone, as a folder on the path has it: it can be imported
                findings.append(Requirement(name, "ok", f"{place}, not installed by pip", purpose))
                continue
            findings.append(
                Requirement(name, "missing", "required" if required else "optional", purpose, fix)
            )
    return findings


def _place(name: str) -> str | None:
    """Where a module lies that is no part of a distribution; None if there is none."""
    try:
        found = find_spec(name)
    except (ImportError, ValueError):
        return None
    return None if found is None else found.origin


def cache() -> Requirement:
    """The directories of compiled kernels."""
    from refsim.core.jit import ready
    from refsim.exec.cpu.compiled import directory

    found = []
    for path in (directory(), Path(ready().config.CACHE_DIR)):
        files = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else []
        found.append(
            f"{path}: {counted(len(files), 'file')}, {counted(sum(p.stat().st_size for p in files), 'byte')}"
        )
    return Requirement("kernel cache", "ok", "; ".join(found), "CPU kernels")


def corpus() -> Requirement:
    """The golden corpus: of the checkout, or of a distribution of its own."""
    from refsim.golden.store import default_root

    try:
        return Requirement("golden corpus", "ok", str(default_root()), "golden verify")
    except MissingDependencyError as error:
        return Requirement("golden corpus", "missing", "optional", "golden verify", str(error.need))


def debian_packages() -> list[Requirement]:
    """What the GPU part lacks of the system."""
    try:
        gpu = backend("gpu")
    except MissingDependencyError:
        fix = "install refsim from its checkout"
        return [Requirement("refsim_gpu", "missing", "optional", "running on a GPU", fix)]
    detail = "optional Debian package"
    return [
        Requirement(name, "missing", detail, purpose, fix) for name, purpose, fix in gpu.missing_packages()
    ]
