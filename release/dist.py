"""Build everything that a release has: the sdist, the wheel of refsim, and the wheel of its golden corpus.

python release/dist.py [DIR]    (or make dist) writes them to DIR, dist by default, with their SHA256SUMS

Nothing is built in the tree itself. The sdist is made of the files that git has, and both wheels are made of the
unpacked sdist, so what the sdist lacks would be missing there as well.
"""

from __future__ import annotations

import hashlib
import os
import runpy
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
#: Folders and files that no source is in, where there is no git to ask: in an unpacked sdist.
BUILT = {"__pycache__", "build", "dist", "out"}
SUMS = "SHA256SUMS"


def sources(root: Path = ROOT) -> list[str]:
    """Names of all files of the project, relative to its root."""
    if (root / ".git").exists():
        git = ["git", "-c", f"safe.directory={root}", "ls-files", "-z"]  # a container may own the tree
        listed = subprocess.run(git, cwd=root, capture_output=True, check=True).stdout.decode().split("\0")
        return sorted(name for name in listed if name and (root / name).exists())
    found = []
    for folder, folders, files in os.walk(root):
        here = Path(folder).relative_to(root)
        folders[:] = [name for name in folders if name not in BUILT and not _leftover(here / name)]
        found += [str(here / name) for name in files if not _leftover(here / name)]
    return sorted(found)


def _leftover(path: Path) -> bool:
    hidden = path.name.startswith(".") and str(path) not in (".ci", ".github", ".gitignore")
    return hidden or path.suffix == ".egg-info" or str(path) == "PKG-INFO"


def build(hook: str, tree: Path, out: Path) -> Path:
    """Run a hook of setuptools in a tree; the file that it made."""
    code = f"from setuptools import build_meta; print(build_meta.{hook}({str(out)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"dist: setuptools could not {hook}:\n{done.stdout}{done.stderr}")
    return out / done.stdout.splitlines()[-1]


def source_tree(scratch: Path, out: Path, root: Path = ROOT) -> tuple[Path, Path]:
    """The sdist, and the folder in which it is unpacked."""
    copy = scratch / "copy"
    for name in sources(root):
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, target)
    sdist = build("build_sdist", copy, out)
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.10 and 3.11 may lack it
        archive.extractall(scratch)
    return sdist, scratch / sdist.name.removesuffix(".tar.gz")


def golden_wheel(tree: Path, scratch: Path, out: Path) -> Path:
    """The wheel of the corpus of an unpacked sdist."""
    version = runpy.run_path(str(tree / "refsim" / "__init__.py"))["__version__"]
    staged = Path(shutil.copytree(tree / "release" / "golden", scratch / "golden"))
    shutil.copy(tree / "LICENSE", staged)
    shutil.copytree(tree / "golden", staged / "refsim_golden" / "data")
    with open(staged / "refsim_golden" / "__init__.py", "a") as file:
        file.write(f'__version__ = "{version}"\n')
    return build("build_wheel", staged, out)


def write_sums(out: Path, files: list[Path]) -> None:
    rows = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (out / SUMS).write_text("".join(rows))


def main(folder: str = "dist") -> None:
    out = Path(folder).resolve()
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("refsim-*.*"), *out.glob("refsim_golden-*.whl")):
        old.unlink()
    with TemporaryDirectory() as name:
        scratch = Path(name)
        sdist, tree = source_tree(scratch, out)
        files = [sdist, build("build_wheel", tree, out), golden_wheel(tree, scratch, out)]
    write_sums(out, files)
    for path in files:
        print(f"{path.stat().st_size:10}  {path}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
