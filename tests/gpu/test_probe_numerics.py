"""The probe: what it says of a device, how it classes answers, and how a device that fails is reported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refsim.core.errors import DeviceError
from refsim.core.plain import plain
from refsim.core.qmath import LAVAPIPE, NVIDIA, fused
from refsim.device.measured import MeasuredDevice
from refsim.formats import profiles
from refsim_gpu import probe, query
from refsim_gpu.kompute import Device


@pytest.fixture(scope="module")
def findings(device: Device) -> MeasuredDevice:
    return probe.run(device.info.index)


def test_the_device_has_the_profile_of_its_vendor(findings: MeasuredDevice) -> None:
    known = {"Mesa": LAVAPIPE, "NVIDIA": NVIDIA}
    if findings.vendor not in known:
        pytest.skip(f"no profile is known for {findings.vendor}")
    assert findings.remarks == []
    assert findings.to_profile() == known[findings.vendor]


def test_what_the_kernels_rely_on_holds(findings: MeasuredDevice) -> None:
    assert findings.round_even == "even"
    assert findings.precise == "separate"
    assert findings.dot in ("exact", "absent") and findings.dot_spelled_out == "exact"
    assert findings.subgroup_size >= 1


def test_lavapipe_is_ieee(findings: MeasuredDevice) -> None:
    if findings.vendor != "Mesa":
        pytest.skip(f"{findings.device} is not lavapipe")
    assert findings.wrong_quotients == 0
    assert {*findings.denormal_inputs.values(), *findings.denormal_outputs.values()} == {"kept"}


class Pretended(probe._Measure):
    """Answers each operation on floats as a device with other numerics would."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        self.random = np.random.default_rng(1)
        self.answer = answer

    def bits(self, operation, a, b=0.0, c=0.0):
        found = self.answer(operation, *np.broadcast_arrays(*map(np.float32, (a, b, c))))
        return found if found.dtype == np.int32 else np.asarray(found, np.float32).view(np.int32)


def half_up(x: np.ndarray) -> np.ndarray:
    return np.floor(x.astype(np.float64) + 0.5)


HALVES = {
    "even": lambda _, a, b, c: np.rint(a),
    "away": lambda _, a, b, c: np.copysign(half_up(np.abs(a)), a),
    "up": lambda _, a, b, c: np.copysign(half_up(a), a),
    probe.MIXED: lambda _, a, b, c: np.floor(a + np.float32(0.5)),  # rounds 0.49999997 to 1
}
ROUNDINGS = {
    "fused": lambda _, a, b, c: fused(a, b, c),
    "separate": lambda _, a, b, c: a * b + c,
    probe.MIXED: lambda _, a, b, c: np.where(a > 0, fused(a, b, c), 0),
}


@pytest.mark.parametrize("name", HALVES)
def test_halves_are_told_apart(name: str) -> None:
    assert probe.halves(Pretended(HALVES[name]), "round") == name


@pytest.mark.parametrize("name", ROUNDINGS)
def test_fused_operations_are_told_apart(name: str) -> None:
    assert probe.roundings(Pretended(ROUNDINGS[name]), "fma") == name


def test_flushed_denormals_are_told_apart() -> None:
    def flushed(x: np.ndarray) -> np.ndarray:
        return np.where(np.abs(x) < probe.MIN_NORMAL, np.float32(0), x)

    def answer(operation: str, *given: np.ndarray) -> np.ndarray:
        a, b, c = map(flushed, given)
        return flushed(a + b if operation == "add" else a * b + c)

    inputs, outputs = probe.denormals(Pretended(answer))
    assert set(inputs.values()) == set(outputs.values()) == {"flushed"}


@pytest.mark.parametrize("name", ["int_min", "saturate", probe.MIXED])
def test_conversions_are_told_apart(name: str) -> None:
    low, high = -(2**31), 2**31 - 1

    def answer(_: str, a: np.ndarray, *others: np.ndarray) -> np.ndarray:
        inside = (a >= low) & (a < 2.0**31)
        whole = np.where(inside, a, 0).astype(np.int32)
        beyond = {"saturate": np.where(np.isnan(a), 0, np.where(a > 0, high, low)), "int_min": low}
        return np.where(inside, whole, beyond.get(name, 7)).astype(np.int32)

    assert probe.conversion(Pretended(answer))[0] == name


def test_an_nvidia_like_device_has_that_profile(findings: MeasuredDevice) -> None:
    ops = dict.fromkeys(("add", "multiply", "fma"), "flushed")
    like = replace(
        findings,
        round="even",
        fma="fused",
        expression="fused",
        denormal_inputs=ops,
        denormal_outputs=ops,
        convert="saturate",
        dot="exact",
        wrong_quotients=5,
    )
    assert like.to_profile() == NVIDIA
    away = replace(like, round="away").to_profile()
    assert away is not None and away.name == f"{findings.device}, {findings.driver}"
    assert (away.tie, away.contract, away.flush_denormals, away.convert) == ("away", True, True, "saturate")


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"round": "up"}, "halves up"),
        ({"round_even": "away"}, "roundEven"),
        ({"fma": "fused", "expression": "separate"}, "fma() is fused, a*b+c separate"),
        ({"precise": "fused"}, "precise"),
        ({"denormal_inputs": {"add": "kept", "multiply": "flushed"}}, "in some places only"),
        ({"convert": "mixed"}, "out of range"),
        ({"dot": "wrong"}, "dot product is not exact"),
    ],
)
def test_what_no_profile_expresses_is_said(findings: MeasuredDevice, changes: dict, remark: str) -> None:
    strange = replace(findings, **changes)
    assert remark in "; ".join(strange.remarks)
    assert strange.to_profile() is None


def test_run_as_a_module(
    findings: MeasuredDevice, device: Device, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "probe.json"
    assert probe.main([str(device.info.index), "--json", str(path)]) == 0
    profile = findings.to_profile()
    assert profile is not None and profiles.read(path) == profile
    assert json.loads(path.read_text())["measured"] == plain(findings)
    assert capsys.readouterr().out.endswith(f"numerics profile: {profile.name}\n")
    assert probe.main(["99"]) == 3
    assert "no such device" in capsys.readouterr().err


def test_probe_needs_neither_numba_nor_click() -> None:
    code = "import sys; from refsim_gpu import probe; assert not {'numba', 'click', 'kp'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_question_is_answered_from_another_process(findings: MeasuredDevice, device: Device) -> None:
    assert query.ask("probe", device.info.index) == findings
    with pytest.raises(DeviceError, match="no such device; got 99"):
        query.ask("probe", 99)


def test_a_crashing_or_silent_driver_is_a_device_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(query.QUESTIONS, "crash", signal.raise_signal)
    with pytest.raises(DeviceError, match=r"crash 11: the driver ended .* got signal 11"):
        query.ask("crash", signal.SIGSEGV.value)
    monkeypatch.setitem(query.QUESTIONS, "hang", time.sleep)
    with pytest.raises(DeviceError, match=r"did not answer; got silence for 0\.2 s"):
        query.ask("hang", 60, timeout_s=0.2)
    monkeypatch.setitem(query.QUESTIONS, "end", os._exit)
    with pytest.raises(DeviceError, match="without an answer"):
        query.ask("end", 0)
