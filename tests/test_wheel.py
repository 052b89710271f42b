"""A wheel, unpacked away from the checkout, runs and checks itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("refsim", "gpu", "shaders", "tests/data/models", "golden")
FILES = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's content. Built from a copy: setuptools writes into the tree that it builds."""
    pytest.importorskip("setuptools.build_meta", reason="setuptools builds the wheel")
    tree, target = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("site")
    for source in SOURCES:
        shutil.copytree(ROOT / source, tree / source, ignore=shutil.ignore_patterns("__pycache__"))
    for file in FILES:
        shutil.copy(ROOT / file, tree)
    code = f"from setuptools import build_meta; print(build_meta.build_wheel({str(target)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    wheel.unlink()
    return target


def run(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(site)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_demo_runs_from_the_wheel_alone(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, "-m", "refsim.cli", "demo", "--json")
    assert done.returncode == 0, done.stderr
    (model,) = json.loads(done.stdout)["models"]
    assert model["model"] == "mixed_ops" and model["buffers"] == 12 and model["different"] == 0
    where = run(
        site, tmp_path, "-c", "import refsim, refsim_gpu; print(refsim.__file__, refsim_gpu.__file__)"
    )
    assert all(path.startswith(str(site)) for path in where.stdout.split())


def test_every_shader_is_in_the_wheel(site: Path, tmp_path: Path) -> None:
    built = {p.relative_to(ROOT / "shaders" / "spirv") for p in (ROOT / "shaders" / "spirv").rglob("*.spv")}
    carried = {
        p.relative_to(site / "refsim_gpu" / "spirv") for p in (site / "refsim_gpu" / "spirv").rglob("*.spv")
    }
    assert carried == built
    code = "from refsim_gpu import spirv, system; print(len(spirv.load('probe/selftest')), len(system.packages()))"
    done = run(site, tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr


def test_metadata_and_nothing_else(site: Path) -> None:
    (info,) = site.glob("refsim-*.dist-info")
    metadata = (info / "METADATA").read_text()
    assert "Requires-Python: <3.14,>=3.10" in metadata or "Requires-Python: >=3.10,<3.14" in metadata
    assert "kp" not in [line.split()[1] for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    entries = (info / "entry_points.txt").read_text()
    assert "refsim = refsim.cli:main" in entries and "refsim = refsim.golden.pytest_plugin" in entries
    assert {p.name for p in site.iterdir()} == {"refsim", "refsim_gpu", info.name}


def test_seeded_bugs_stay_in_the_checkout(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, "-m", "refsim.cli", "mutate", "--list")
    assert done.returncode == 2 and "needs a checkout of the sources" in done.stderr
    assert not list(site.rglob("*mutant*"))
