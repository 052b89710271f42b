"""The workflows of GitHub Actions name targets, scripts and Pythons that there are, and actions of fixed versions."""

from __future__ import annotations

import configparser
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML reads the workflows; fix: pip install 'refsim[test]'")

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".github/workflows"
WORKFLOWS = {path.name: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yml"))}
MAKE = "".join(path.read_text() for path in (ROOT / "Makefile", *ROOT.glob("*/*.mk"), *ROOT.glob("*/*/*.mk")))
TARGETS = set(re.findall(r"^([a-z-]+):", MAKE, re.M))
PINNED = re.compile(r"actions/[a-z-]+@[0-9a-f]{40}")


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for file, workflow in WORKFLOWS.items():
        for name, job in workflow["jobs"].items():
            yield f"{file}: {name}", job


def runs() -> Iterator[list[str]]:
    """The words of every command."""
    for _, job in jobs():
        for step in job.get("steps", ()):
            for line in step.get("run", "").splitlines():
                yield shlex.split(line)


def test_both_are_there_and_ask_for_no_rights() -> None:
    assert set(WORKFLOWS) == {"release.yml", "test.yml"}
    assert all(workflow["permissions"] == {"contents": "read"} for workflow in WORKFLOWS.values())


def test_jobs_end_and_wait_for_jobs_that_there_are() -> None:
    for name, job in jobs():
        assert "uses" in job or job["timeout-minutes"] <= 90, name
        waited = job.get("needs", [])
        known = WORKFLOWS[name.partition(":")[0]]["jobs"]
        assert set([waited] if isinstance(waited, str) else waited) <= set(known), name


def test_actions_have_fixed_versions_that_are_named() -> None:
    for path in FOLDER.glob("*.yml"):
        for what, note in re.findall(r"uses: (\S+)(.*)", path.read_text()):
            if what.startswith("./"):
                assert (ROOT / what).is_file()
            else:
                assert PINNED.fullmatch(what) and re.fullmatch(r" # v\d+\.\d+\.\d+", note), (
                    f"{path.name}: {what}"
                )


def test_every_command_is_a_target_a_script_or_the_release() -> None:
    found = list(runs())
    assert {"lint", "docs", "test-all", "demo", "dist"} == {words[1] for words in found if words[0] == "make"}
    for words in found:
        if words[0] == "make":
            assert words[1] in TARGETS
        elif words[0].startswith("release/"):
            assert os.access(ROOT / words[0], os.X_OK), words[0]
        else:
            assert words[:3] == ["gh", "release", "create"], words
    scripts = {words[0] for words in found if words[0].startswith("release/")}
    assert scripts == {f"release/{path.name}" for path in (ROOT / "release").glob("*.sh")}


def test_every_python_that_is_promised_is_tried() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    promised = re.findall(r":: (3\.\d+)$", setup["metadata"]["classifiers"], re.M)
    tried = {name: job["strategy"]["matrix"]["python"] for name, job in jobs() if "strategy" in job}
    assert tried == {"test.yml: test": promised, "test.yml: install": promised}
    gpu = WORKFLOWS["test.yml"]["jobs"]["test"]["env"]["REFSIM_GPU"]
    assert re.search(r"== '([\d.]+)' && 'require'", gpu)[1] in promised  # type: ignore[index]
