"""A release: the sdist is the whole project, and the wheels, unpacked away from it, run and check themselves."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

import refsim

ROOT = Path(__file__).parents[1]


class Built(NamedTuple):
    """A release: its files, the unpacked sdist, and the content of both wheels."""

    sdist: Path
    tree: Path
    site: Path
    golden: Path


@pytest.fixture(scope="module")
def dist() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dist", ROOT / "release/dist.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def built(dist: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Built:
    pytest.importorskip("setuptools.build_meta", reason="setuptools builds the distributions")
    scratch, out = tmp_path_factory.mktemp("scratch"), tmp_path_factory.mktemp("dist")
    sdist, tree = dist.source_tree(scratch, out)
    found = [dist.build("build_wheel", tree, out), dist.golden_wheel(tree, scratch, out)]
    for name, wheel in zip(("site", "golden_site"), found, strict=True):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(scratch / name)
    return Built(sdist, tree, scratch / "site", scratch / "golden_site")


@pytest.fixture
def site(built: Built) -> Path:
    """The wheel's content."""
    return built.site


def run(site: Path, folder: Path, *arguments: str, more: str = "") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(site), more)))}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.long
def test_the_sdist_holds_every_file(built: Built, dist: ModuleType) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert set(dist.sources()) <= names
    others = {name for name in names - set(dist.sources()) if not (built.tree / name).is_dir()}
    assert {name for name in others if not name.startswith("refsim.egg-info/")} == {"PKG-INFO"}


@pytest.mark.long
def test_tests_run_from_the_sdist(built: Built) -> None:
    done = run(built.tree, built.tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_package.py",
               "tests/core/test_layout.py")  # fmt: skip
    assert done.returncode == 0, done.stdout


@pytest.mark.long
def test_an_installed_refsim_finds_the_corpus_that_was_installed(built: Built, tmp_path: Path) -> None:
    verify = ("-m", "refsim.cli", "golden", "verify", "q8ta_relu/0003", "--workers", "1")
    done = run(built.site, tmp_path, *verify)
    assert done.returncode == 3 and done.stderr.count("\n") == 1
    assert "refsim: golden corpus: not installed; need pip install 'refsim[golden]'" in done.stderr
    assert "where no index has refsim-golden: pip install --find-links DIST 'refsim[golden]'" in done.stderr
    done = run(built.site, tmp_path, *verify, more=str(built.golden))
    assert done.returncode == 0 and "0 failures" in done.stdout, done.stderr
    other = tmp_path / "refsim_golden"
    other.mkdir()
    (other / "__init__.py").write_text("__version__ = '0.0.1'")
    done = run(built.site, tmp_path, *verify)
    assert (
        done.returncode == 3
        and f"not that of refsim {refsim.__version__}; got refsim-golden 0.0.1" in done.stderr
    )


@pytest.mark.long
def test_the_wheel_of_the_corpus_is_the_corpus(built: Built) -> None:
    def digests(root: Path) -> dict[str, str]:
        files = [path for path in root.rglob("*") if path.is_file()]
        return {str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}

    assert digests(built.golden / "refsim_golden" / "data") == digests(ROOT / "golden")
    (info,) = built.golden.glob("*.dist-info")
    assert info.name == f"refsim_golden-{refsim.__version__}.dist-info"


@pytest.mark.long
def test_demo_runs_from_the_wheel_alone(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, "-m", "refsim.cli", "demo", "--json")
    assert done.returncode == 0, done.stderr
    (model,) = json.loads(done.stdout)["models"]
    assert model["model"] == "mixed_ops" and model["buffers"] == 12 and model["different"] == 0
    where = run(
        site, tmp_path, "-c", "import refsim, refsim_gpu; print(refsim.__file__, refsim_gpu.__file__)"
    )
    assert all(path.startswith(str(site)) for path in where.stdout.split())


@pytest.mark.long
def test_every_shader_is_in_the_wheel(site: Path, tmp_path: Path) -> None:
    built = {p.relative_to(ROOT / "shaders" / "spirv") for p in (ROOT / "shaders" / "spirv").rglob("*.spv")}
    carried = {
        p.relative_to(site / "refsim_gpu" / "spirv") for p in (site / "refsim_gpu" / "spirv").rglob("*.spv")
    }
    assert carried == built
    code = "from refsim_gpu import spirv, system; print(len(spirv.load('probe/selftest')), len(system.packages()))"
    done = run(site, tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_metadata_and_nothing_else(site: Path) -> None:
    (info,) = site.glob("refsim-*.dist-info")
    metadata = (info / "METADATA").read_text()
    assert "Requires-Python: <3.14,>=3.10" in metadata or "Requires-Python: >=3.10,<3.14" in metadata
    assert "kp" not in [line.split()[1] for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    entries = (info / "entry_points.txt").read_text()
    assert "refsim = refsim.cli:main" in entries and "refsim = refsim.golden.pytest_plugin" in entries
    assert {p.name for p in site.iterdir()} == {"refsim", "refsim_gpu", info.name}


@pytest.mark.long
def test_seeded_bugs_stay_in_the_checkout(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, "-m", "refsim.cli", "mutate", "--list")
    assert done.returncode == 2 and "needs a checkout of the sources" in done.stderr
    assert not list(site.rglob("*mutant*"))
