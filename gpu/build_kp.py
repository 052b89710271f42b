"""Builds Kompute's Python module ``kp`` 0.9.0 into the running interpreter's environment.

    python -m refsim_gpu.build_kp            says what is missing and the command that fixes it
    python -m refsim_gpu.build_kp --install  installs what is missing first (apt-get as root, pip)

It does nothing if the module is installed and passes the self-test. A plain ``pip install kp`` fails: its build clones
repositories over the network, may build for another Python, and declares numpy < 2.

The module gets a submodule of refsim's own, kp_layer/, compiled into it: that takes one include and one call more in
the source of Kompute's module, and no change to Kompute. A module of its own would have to compile Kompute once more.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from refsim.core.errors import DeviceError, MissingDependencyError, RefsimError
from refsim.core.extras import NO_KP
from refsim.exec import process
from refsim_gpu import system, vulkan
from refsim_gpu.command import command

HERE = Path(__file__).resolve().parent
INSTALL = HERE / "install-packages.sh"
SOURCE = HERE / "requirements-kp.txt"
BUILD_NEEDS = HERE / "requirements-build.txt"
VERSION = "0.9.0"
MIN_PYBIND11 = 3
LAYER = HERE / "kp_layer"
#: What the source of Kompute's Python module gets, each in front of a line that it has once.
INSERTED = {
    "PYBIND11_MODULE(kp, m)": '#include "kp_layer/module.hpp"',
    '    auto atexit = py::module_::import("atexit");': "    refsim_layer::bind_layer(m);",
}
PINNED = (
    "--require-hashes",
    "--no-deps",
    "--no-binary=kp",
    "--no-build-isolation",
    f"--requirement={SOURCE}",
)
SELFTEST_S = 120.0
DRIVER = "apt-get install mesa-vulkan-drivers, or the driver of the GPU"

# Kompute's CMake file reads these from the environment. The first three replace downloads by what is here.
OPTIONS = {
    "KOMPUTE_OPT_USE_BUILT_IN_FMT": "OFF",
    "KOMPUTE_OPT_USE_BUILT_IN_PYBIND11": "OFF",
    "KOMPUTE_OPT_USE_BUILT_IN_VULKAN_HEADER": "OFF",
    "KOMPUTE_OPT_INSTALL": "OFF",
    # would run a device query while building, on a machine that may have no device
    "KOMPUTE_OPT_DISABLE_VULKAN_VERSION_CHECK": "ON",
    # otherwise every Manager switches validation on wherever the layer is installed, and drops its messages;
    # VK_INSTANCE_LAYERS still switches it on by choice, with its messages
    "KOMPUTE_OPT_DISABLE_VK_DEBUG_LAYERS": "ON",
}

# Kompute's setup.py glues its PYTHON_EXECUTABLE argument to the one before it, so that CMake would build for
# whichever Python it meets first. A toolchain file can be named in the environment; arguments cannot.
TOOLCHAIN = """\
set(PYTHON_EXECUTABLE "{python}" CACHE FILEPATH "")
set(Python_EXECUTABLE "{python}" CACHE FILEPATH "")
set(Python3_EXECUTABLE "{python}" CACHE FILEPATH "")
# Kompute compiles with -Werror, which a newer compiler's new warning would turn against it
set(CMAKE_CXX_FLAGS_RELEASE_INIT "-Wno-error")
"""


def installed_version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def missing_python() -> list[str]:
    """Distributions of requirements-build.txt that this environment lacks or has too old."""
    lacking = [name for name in ("setuptools", "wheel") if importlib.util.find_spec(name) is None]
    found = installed_version("pybind11")
    if found is None or int(found.split(".")[0]) < MIN_PYBIND11:
        lacking.append(f"pybind11>={MIN_PYBIND11}")
    return lacking


def pip(*arguments: str, verb: str = "install", environment: dict[str, str] | None = None) -> bool:
    command = [sys.executable, "-m", "pip", verb, "--disable-pip-version-check", *arguments]
    return subprocess.run(command, env=environment, check=False).returncode == 0


def provide(install: bool) -> None:
    """Make sure that everything the build needs is there; install it if ``install`` is true.

    Raises MissingDependencyError that names them and the command.
    """
    packages = [package for package in system.missing() if package.required]
    if packages and not (install and installed(packages)):
        names = ", ".join(f"{package.name} ({package.purpose})" for package in packages)
        fix = system.install_command(packages)
        raise MissingDependencyError(
            "kp", f"{NO_KP}: Debian packages are missing", got=f"no {names}", need=fix
        )
    lacking = missing_python()
    if lacking and not (install and pip("--requirement", str(BUILD_NEEDS))):
        fix = f"{sys.executable} -m pip install -r {BUILD_NEEDS}"
        raise MissingDependencyError(
            "kp", f"{NO_KP}: Python packages are missing", got=f"no {', '.join(lacking)}", need=fix
        )


def provide_wanted() -> None:
    """Try to install what only the tests need; print a line if that is not possible."""
    packages = [package for package in system.missing() if package.need == "wanted"]
    if packages and not installed(packages):
        fix = system.install_command(packages)
        print(f"refsim_gpu.build_kp: some tests will be skipped; fix: {fix}", file=sys.stderr)


def installed(packages: list[system.Package]) -> bool:
    """Have the script install Debian packages; whether it could. It says why not."""
    return subprocess.run(["sh", INSTALL, *(p.name for p in packages)], check=False).returncode == 0


def with_layer(folder: Path) -> Path:
    """The pinned archive, unpacked below ``folder``, with refsim's layer; pip checks the archive's hash."""
    archives = folder / "archive"
    if not pip(*PINNED, "--dest", str(archives), verb="download"):
        raise MissingDependencyError(
            "kp", f"{NO_KP}: no source archive, see the output above", need=f"kp {VERSION}"
        )
    (archive,) = archives.iterdir()
    with tarfile.open(archive) as opened:
        # Python before 3.10.12 has no filters; the archive's hash is known
        opened.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    sources = folder / f"kp-{VERSION}" / "python" / "src"
    shutil.copytree(LAYER, sources / LAYER.name)
    main = sources / "main.cpp"
    text = main.read_text()
    for anchor, added in INSERTED.items():
        if text.count(anchor) != 1:
            raise MissingDependencyError(
                "kp", f"{NO_KP}: its source has changed", got=f"no line {anchor!r}", need=VERSION
            )
        text = text.replace(anchor, f"{added}\n{anchor}")
    main.write_text(text)
    return sources.parents[1]


def build() -> None:
    """Build and install from the pinned archive. About 90 s on two cores."""
    cmake_dir = subprocess.run(
        [sys.executable, "-m", "pybind11", "--cmakedir"], text=True, capture_output=True, check=True
    ).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        toolchain = Path(folder) / "python.cmake"
        toolchain.write_text(TOOLCHAIN.format(python=Path(sys.executable).as_posix()))
        environment = (
            os.environ | OPTIONS | {"pybind11_DIR": cmake_dir, "CMAKE_TOOLCHAIN_FILE": str(toolchain)}
        )
        # no dependencies: kp declares numpy < 2 and runs with 2; no cache: its wheel may have other options
        done = pip(
            "--no-deps",
            "--no-build-isolation",
            "--no-cache-dir",
            "--force-reinstall",
            str(with_layer(Path(folder))),
            environment=environment,
        )
    if not done:
        raise MissingDependencyError(
            "kp", f"{NO_KP}: building failed, see the output above", got="no module", need=f"kp {VERSION}"
        )


def selftest() -> str | None:
    """None if the module works, else the reason. It runs in a process of its own, because a broken build may crash."""
    from refsim_gpu import selftest

    try:
        print(process.call(selftest.run, where="self-test", seconds=SELFTEST_S), flush=True)
    except RefsimError as error:
        return str(error)
    return None


@command("refsim_gpu.build_kp")
def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m refsim_gpu.build_kp", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--install", action="store_true", help="install missing packages first")
    options = parser.parse_args(arguments)
    if options.install:
        provide_wanted()
    if installed_version("kp") == VERSION and selftest() is None:
        print("kp is installed and works; nothing to do")
        return 0
    provide(options.install)
    if not vulkan.devices():
        # a build could not be tried, and building again does not fix the driver
        raise DeviceError("kp", "no Vulkan driver offers a device", got="0 devices", need=DRIVER)
    if installed_version("kp") != VERSION or selftest() is not None:
        started = time.monotonic()
        build()
        print(f"built kp {VERSION} in {time.monotonic() - started:.0f} s", flush=True)
        failure = selftest()
        if failure:
            raise MissingDependencyError("kp", "built, but its self-test fails", got=failure, need="a pass")
    return 0


if __name__ == "__main__":
    sys.exit(main())
