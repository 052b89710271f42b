"""refsim doctor: names what is there and what is not, with the command that fixes it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import click
import pytest

from refsim.cli import doctor


def test_json_lists_every_package_and_executor(refsim) -> None:
    done = refsim("doctor", "--json")
    assert done.status == 0 and done.json["usable"] is True
    by_name = {finding["thing"]: finding for finding in done.json["findings"]}
    assert {"refsim", "python", "numpy", "numba", "torch", "kp", "executorch", "kernel cache"} <= set(by_name)
    assert by_name["numpy"]["detail"] == version("numpy")
    for finding in by_name.values():
        assert finding["status"] in ("ok", "missing")
        assert finding["status"] == "ok" or finding["fix"]
    executors = {e["name"]: e for e in done.json["executors"]}
    assert executors["cpu"]["available"] and any(name.startswith("gpu") for name in executors)


def test_a_missing_required_package_is_status_2(refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str) -> str:
        if name in ("numba", "kp"):
            raise PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(doctor, "version", gone)
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    done = refsim("doctor")
    assert done.status == 3
    assert "fix numba: pip install numba" in done.out.splitlines()
    assert any(line.startswith("fix kp: make gpu") for line in done.out.splitlines())


def test_a_module_without_a_distribution_can_be_used(refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kp that somebody copied: the executors take it, and so it is not missing."""

    def copied(name: str) -> str:
        if name == "click":
            raise PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(doctor, "version", copied)
    (found,) = (one for one in refsim("doctor", "--json").json["findings"] if one["thing"] == "click")
    assert found["status"] == "ok" and found["detail"] == f"{click.__file__}, not installed by pip"
