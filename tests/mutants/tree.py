"""A copy of the sources with a bug in it, and processes that run there: they may crash or hang."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mutants import limits
from mutants.mutant import Mutant
from refsim.core.errors import FormatError
from refsim.exec import process

#: The checkout whose sources are copied.
CHECKOUT = Path(__file__).resolve().parents[2]
#: What is copied, from a checkout to the copy's root. Python finds gpu/ under its installed name.
PARTS = {"refsim": "refsim", "gpu": "refsim_gpu", "shaders": "shaders"}
#: What tests need beside the sources; links, for nothing changes there.
BESIDE = ("golden", "tests", "docs", "bench", "setup.cfg", "pyproject.toml", "README.md", "CHANGELOG.md")
#: The file in a process's folder that says what it was at, and how a status begins that was none.
NO_END = "no end"
#: Where a copy keeps what it compiles, for all of its processes.
CACHE = ".cache"
#: One processor for each process, as several mutants run at once.
ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "LP_NUM_THREADS"), "1"
)

_BUILD = """
import sys, tempfile
from pathlib import Path
from refsim_gpu import build_shaders as b
variants, names = sys.argv[1] == 'variants', set(sys.argv[2:])
with tempfile.TemporaryDirectory(dir=".") as scratch:
    for source, binary, options in b.variants():
        if source.parent == b.SHADERS and source.stem in names:
            binary.unlink(missing_ok=True)
            if variants or not options:
                binary.write_bytes(b.compile_one(source, options, Path(scratch)))
"""


def check(mutant: Mutant, root: Path = CHECKOUT) -> None:
    """FormatError if an edit of the mutant no longer applies to the sources."""
    for change in mutant.edits:
        where = f"mutant {mutant.id}: {change.file}"
        path = root / change.file
        if not path.is_file():
            raise FormatError(where, "no such file")
        count = path.read_text().count(change.anchor)
        if count != 1:
            raise FormatError(
                where, "the anchor does not occur exactly once", got=f"{count} times", need=change.anchor
            )


def copy(mutant: Mutant, target: Path) -> None:
    """A copy of the sources with the bug in it."""
    check(mutant)
    for part, name in PARTS.items():
        ignore = shutil.ignore_patterns("__pycache__", "*.md")
        shutil.copytree(CHECKOUT / part, target / name, ignore=ignore)
    for change in mutant.edits:
        part, _, rest = change.file.partition("/")
        path = target / PARTS[part] / rest
        path.write_text(path.read_text().replace(change.anchor, change.replacement))
    for name in BESIDE:
        (target / name).symlink_to(CHECKOUT / name)


def environment(root: Path) -> dict[str, str]:
    """Python finds the sources at ``root`` first, then this package; compiled kernels stay in the copy's `CACHE`.

    What a driver compiles goes where it always does: it is known by the modules alone.
    """
    kept = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    folders = (str(root), str(CHECKOUT / "tests"), os.environ.get("PYTHONPATH"))
    path = os.pathsep.join(filter(None, folders))
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    drivers = {"MESA_SHADER_CACHE_DIR": home, "__GL_SHADER_DISK_CACHE_PATH": f"{home}/nvidia"}
    cache = home if root == CHECKOUT else str(root / CACHE)
    return {
        **ONE_THREAD, **drivers, **kept,
        "PYTHONPATH": path, "XDG_CACHE_HOME": cache, "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip


def execute(
    root: Path,
    folder: Path,
    stage: str,
    *arguments: str,
    more: Mapping[str, str] | None = None,
) -> str:
    """Run a stage of `mutants.runner` on the sources at ``root``; what it said if it did not end well.

    It bounds its own time. ``more``: further variables of its environment.
    """
    command = [sys.executable, "-m", "mutants.runner", stage, str(folder), *arguments]
    try:
        process.run(command, where=stage, folder=folder, environment={**environment(root), **(more or {})})
    except process.ProcessError as error:
        return _how(error)
    return ""


def _how(error: process.ProcessError) -> str:
    """How a process ended, and what it said last."""
    endless = limits.ended_by_limit(str(error.got))
    how = NO_END if endless else f"{error.got}{process.means(str(error.got), error.last_lines)}"
    return f"{how}: {' | '.join(error.last_lines)}"


#: What names a module of the tests, or of the sources, that there is not: no change takes away a file.
_NO_MODULE = re.compile(r"No module named '?(?P<name>[\w.]+)|cannot import name .+ from '(?P<holder>[\w.]+)'")
#: What is said of a file that there is not, and the files that a change is tried with.
_NO_FILE = re.compile(r"no such file|file or directory not found", re.IGNORECASE)
_TRIED_WITH = re.compile(rf"\b(?:{'|'.join(map(re.escape, BESIDE[:4]))})/[\w./-]+")


def lacking(said: str) -> str:
    """The file or module of this checkout that something failed without; "" if it failed for another reason.

    Such a failure says nothing of a change: somebody replaced files of the checkout meanwhile.
    """
    if said.lower().startswith(("assert", "failed")):  # what a test claims may mention anything
        return ""
    for found in _NO_MODULE.finditer(said):
        name = found["name"] or found["holder"]
        first = name.partition(".")[0]
        of_tests = first == __package__ or any((CHECKOUT / "tests").glob(f"{first}.py"))
        if of_tests or (found["name"] and first in PARTS.values()):
            return name
    if _NO_FILE.search(said) and (path := _TRIED_WITH.search(said)) is not None:
        return path[0]
    return ""


def build(root: Path, shaders: Sequence[str], variants: bool) -> str:
    """Compile shaders of the copy anew, with their variants or without any; what stopped it, if anything did."""
    command = [sys.executable, "-c", _BUILD, "variants" if variants else "plain", *shaders]
    try:
        process.run(command, where="build", folder=root, environment=environment(root))
    except process.ProcessError as error:
        return error.last_lines[-1] if error.last_lines else str(error)
    return ""


class Failed(NamedTuple):
    """A test that failed, and what it said."""

    test: str = ""
    said: str = ""


def pytest(root: Path, tests: str, each: float, most: float, without: Sequence[str] = ()) -> Failed:
    """The first test that fails on the sources at ``root``; empty if all pass.

    Only the part of the tests that ``tests`` names is run: a path and a filter that may stand behind a blank, or one
    test (PATH::NAME); and of that part not the tests of ``without``. A test that takes more than ``each`` seconds
    failed, and so did all that take more than ``most`` (`mutants.limits`).
    """
    path, _, only = (tests, "", "") if "::" in tests else tests.partition(" ")
    options = ("-x", "-q", "-p", "no:cacheprovider", "-p", "mutants.limits", "--no-header", "--tb=line")
    command = [sys.executable, "-m", "pytest", *options, path, *(("-k", only) if only else ())]
    command += [f"--deselect={name}" for name in without]
    bounds = {limits.EACH_VARIABLE: f"{each:g}", limits.ALL_VARIABLE: f"{most:g}"}
    at = root.parent / "at" if root != CHECKOUT else None
    if at is not None:
        at.unlink(missing_ok=True)
        bounds[limits.AT_VARIABLE] = str(at)
    try:
        process.run(command, where=tests, folder=root, environment={**environment(root), **bounds})
    except process.Ended as error:
        failed = next((line for line in error.last_lines if line.startswith(("FAILED", "ERROR"))), "")
        name, _, said = failed.partition(" - ")
        ran = at.read_text() if at is not None and at.exists() else ""
        return Failed(name.partition(" ")[2] or ran or tests, said or _how(error))
    return Failed()
