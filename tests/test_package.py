"""What is installed is what the tree holds, and importing refsim stays cheap."""

from __future__ import annotations

import configparser
import fnmatch
import re
import subprocess
import sys
from pathlib import Path

import pytest

import refsim

ROOT = Path(__file__).parents[1]


def setup() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


#: All that belongs at the repository's root; what is generated there is named in .gitignore. An sdist has PKG-INFO.
AT_ROOT = {
    ".ci", ".git", ".github", ".gitignore", "CHANGELOG.md", "LICENSE", "MANIFEST.in", "Makefile", "PKG-INFO",
    "README.md", "pyproject.toml", "setup.cfg", "bench", "docs", "golden", "gpu", "refsim", "release", "shaders",
    "tests",
}  # fmt: skip


def test_nothing_lies_at_the_root_that_does_not_belong_there() -> None:
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().split()]
    found = {path.name for path in ROOT.iterdir()}
    strangers = {name for name in found - AT_ROOT if not any(fnmatch.fnmatch(name, rule) for rule in ignored)}
    assert not strangers, "a scratch file, or one to be listed in AT_ROOT"


def test_no_file_names_a_path_of_one_machine() -> None:
    """The folders of people and of build machines; /home/me and /home/.cache stand for anybody's."""
    paths = re.compile(rb"/(?:root|work|home/(?!me\b|\.cache/)\w+|Users/\w+)/")
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False).stdout
    if not names:
        pytest.skip("not a checkout: there is no list of files")
    found = [
        name
        for name in names.decode().strip("\0").split("\0")
        if (ROOT / name).is_file() and paths.search((ROOT / name).read_bytes())
    ]
    assert not found


def test_a_folder_called_refsim_is_not_taken_for_the_package(tmp_path: Path) -> None:
    """As where the clone lies: its folder has the package's name, and no __init__.py. `make` sees to it."""
    (tmp_path / "refsim" / "golden").mkdir(parents=True)
    code = "import refsim; print(refsim.load.__name__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "load\n", f"{done.stderr}; an environment that make did not set up?"


def test_every_package_of_the_tree_is_listed() -> None:
    listed = set(setup()["options"]["packages"].split())
    found = {"refsim", "refsim_gpu"}
    for name, folder in (("refsim", ROOT / "refsim"), ("refsim_gpu", ROOT / "gpu")):
        for init in folder.rglob("*/__init__.py"):
            found.add(".".join((name, *init.parent.relative_to(folder).parts)))
    assert listed - {"refsim.bundled", "refsim_gpu.spirv"} == found, "list it under packages in setup.cfg"


def test_package_data_exists() -> None:
    folders = dict(line.split(" = ") for line in setup()["options"]["package_dir"].strip().splitlines())
    for package, patterns in setup()["options.package_data"].items():
        for pattern in patterns.split(","):
            folder = ROOT / folders.get(package, package.replace(".", "/"))
            assert list(folder.glob(pattern.strip())), f"{package}: no {pattern.strip()}"


def test_every_data_file_is_installed() -> None:
    folders = dict(line.split(" = ") for line in setup()["options"]["package_dir"].strip().splitlines())
    data = setup()["options.package_data"]
    covered = {
        path
        for package, patterns in data.items()
        for pattern in patterns.split(",")
        for path in (ROOT / folders.get(package, package.replace(".", "/"))).glob(pattern.strip())
    }
    found = {
        path
        for folder in ("refsim", "gpu")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc", ".mk")
    }
    assert found <= covered, "list it under options.package_data in setup.cfg"


def test_every_built_shader_is_installed() -> None:
    patterns = [p.strip() for p in setup()["options.package_data"]["refsim_gpu.spirv"].split(",")]
    folder = ROOT / "shaders" / "spirv"
    assert {p for pattern in patterns for p in folder.glob(pattern)} == set(folder.rglob("*.spv"))


def test_import_is_light() -> None:
    code = "import sys, refsim; print(refsim.load, refsim.PackedBuffer); print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"torch", "kp", "refsim_gpu", "executorch"} & set(out.split())


def test_exports_are_there_and_no_others() -> None:
    for name in refsim.__all__:
        assert getattr(refsim, name) is not None
    assert set(refsim.__all__) == set(refsim._HOME) and set(refsim.__all__) <= set(dir(refsim))
    with pytest.raises(AttributeError, match="no attribute 'nonesuch'"):
        _ = refsim.nonesuch


def test_executors_are_named_as_they_are_opened() -> None:
    found = {info.name: info for info in refsim.executors()}
    assert found["cpu"].available
    from refsim.exec.factory import executor_named

    for name, info in found.items():
        assert info.detail
        if name.startswith("cpu"):
            assert executor_named(name)


def test_the_extra_of_the_corpus_is_of_this_version() -> None:
    assert setup()["options.extras_require"]["golden"].strip() == f"refsim-golden=={refsim.__version__}"
