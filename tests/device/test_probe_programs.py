"""The probe that is programs: each profile gives itself back, and damaged outputs never give a wrong one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from saved import arrays

from device.simulated import Runtime
from refsim.check.run import check_bytes
from refsim.core.errors import FormatError, RefsimError, ShapeError
from refsim.core.qmath import CANONICAL, CONVERT, LAVAPIPE, NVIDIA, PROFILES, Profile
from refsim.device.probe import IEEE, MIXED, Answers, files, programs, read
from refsim.exec.model import built
from refsim.formats.pte.read import read_pte
from refsim.ops.base.target import Target

Outputs = Mapping[str, list[np.ndarray]]
OTHERS = [
    Profile("other", *fields) for fields in product((False, True), ("even", "away"), (False, True), CONVERT)
]


@cache
def program(name: str, profile: Profile) -> list[np.ndarray]:
    """What the interpreter makes of one program under a profile."""
    return built(read_pte(files()[f"{name}.pte"], name), Target(profile)).run([])


def run(profile: Profile) -> dict[str, list[np.ndarray]]:
    return {one.name: list(program(one.name, profile)) for one in programs()}


def saved(folder: Path, outputs: Outputs) -> Path:
    folder.mkdir(exist_ok=True)
    for name, held in outputs.items():
        arrays(folder / f"{name}.npz", held)
    return folder


def found(tmp_path: Path, outputs: Outputs) -> Answers:
    return read(saved(tmp_path / "outputs", outputs))


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda p: p.name)
def test_every_named_profile_gives_itself_back(profile: Profile, tmp_path: Path) -> None:
    findings = found(tmp_path, run(profile))
    assert findings.profile() is PROFILES[profile.name]
    assert findings.unknown == findings.remarks == [] and findings["division"] == IEEE


def test_every_other_profile_gives_itself_back(tmp_path: Path) -> None:
    named = {(p.contract, p.tie, p.flush_denormals, p.convert): p for p in PROFILES.values()}
    for profile in OTHERS:
        known = named.get((profile.contract, profile.tie, profile.flush_denormals, profile.convert), profile)
        assert found(tmp_path, run(profile)).profile("other") == known


@pytest.mark.parametrize("profile", [CANONICAL, NVIDIA], ids=lambda p: p.name)
def test_the_programs_run_on_a_runtime(profile: Profile) -> None:
    """With memory that is real and begins as noise, without inputs, and with a barrier wherever one is needed."""
    for one in programs():
        runtime = Runtime(one.data, Target(profile))
        outputs = runtime.run([])
        assert not runtime.hazards()
        for ours, theirs in zip(program(one.name, profile), outputs, strict=True):
            assert ours.tobytes() == theirs.tobytes()


def test_the_programs_are_small_sound_and_the_same_every_time() -> None:
    assert sum(map(len, files().values())) < 100_000
    assert not [finding for name, data in files().items() for finding in check_bytes(data, name)]
    programs.cache_clear()
    before, after = files(), (programs.cache_clear(), files())[1]
    assert before == after and len({one.stamp.tobytes() for one in programs()}) == len(programs())


def test_answers_are_apart_and_as_exact_as_they_claim() -> None:
    for ask in (ask for one in programs() for ask in one.asks):
        for step in ask.steps:
            assert all(np.isfinite(value).all() for value in step.expected.values())
        names = list(ask.steps[0].expected)
        for a, b in ((a, b) for a in names for b in names if a < b):
            pairs = [(s.expected[a], s.expected[b]) for s in ask.steps if a in s.expected and b in s.expected]
            assert any((x != y).any() for x, y in pairs), (ask.name, a, b)


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_never_gives_a_wrong_profile(data: st.DataObject, tmp_path: Path) -> None:
    profile = data.draw(st.sampled_from([LAVAPIPE, NVIDIA, OTHERS[5]]))
    outputs = run(profile)
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(sorted(outputs)))
        at = data.draw(st.integers(0, len(outputs[name]) - 1))
        array = outputs[name][at].copy()
        words = array.reshape(-1).view(np.int32)
        kind = data.draw(st.sampled_from(["bit", "value", "fill", "cut", "dtype"]))
        if kind == "bit":
            words[data.draw(st.integers(0, len(words) - 1))] ^= np.int32(1 << data.draw(st.integers(0, 30)))
        elif kind == "value":
            array.reshape(-1)[data.draw(st.integers(0, array.size - 1))] = data.draw(st.floats(width=32))
        elif kind == "fill":
            words[data.draw(st.integers(0, len(words) - 1)) :] = 0x5A5A5A5A
        outputs[name][at] = (
            array.reshape(-1)[1:] if kind == "cut" else array.astype(np.float64) if kind == "dtype" else array
        )
    try:
        got = found(tmp_path, outputs).profile("other")
    except RefsimError:
        return
    assert got is None or got == profile


def test_answers_that_contradict_leave_the_question_open(tmp_path: Path) -> None:
    fused, separate = run(NVIDIA), run(CANONICAL)
    outputs = fused | {"sums": [*fused["sums"][:2], *separate["sums"][2:]]}
    findings = found(tmp_path, outputs)
    assert findings.remarks == ["fma() is fused, a * b + c separate"] and findings.profile() is None
    outputs["sums"] = [*fused["sums"][:3], *separate["sums"][3:]]  # kernels of one expression disagree
    findings = found(tmp_path, outputs)
    assert findings["expression"] == MIXED and findings.profile() is None
    assert findings.unknown == ["a * b + c: no answer predicts every element"]
    outputs = separate | {"denormals": [*separate["denormals"][:3], *fused["denormals"][3:]]}
    assert found(tmp_path, outputs).remarks == ["denormal inputs are kept, denormal results flushed"]


def test_division_decides_nothing(tmp_path: Path) -> None:
    outputs = run(NVIDIA)
    quotients = outputs["division"][1].copy()
    quotients[:7] = np.nextafter(quotients[:7], np.float32(np.inf))
    outputs["division"] = [outputs["division"][0], quotients]
    findings = found(tmp_path, outputs)
    assert findings["division"] == "7 of 4096 quotients differ, by at most 1 ulp"
    assert findings.profile() == NVIDIA
    outputs["division"] = [outputs["division"][0], quotients * np.float32(1.5)]
    findings = found(tmp_path, outputs)
    assert findings["division"] == MIXED and findings.profile() == NVIDIA


def test_what_did_not_run_stays_open(tmp_path: Path) -> None:
    outputs = {name: held for name, held in run(NVIDIA).items() if name != "denormals"}
    findings = found(tmp_path, outputs)
    assert findings.profile() is None and findings["ties"] == "even"
    assert "denormal inputs: its program gave no outputs" in findings.unknown


def test_outputs_of_something_else_are_refused(tmp_path: Path) -> None:
    outputs = run(NVIDIA)
    stamp = outputs["ties"][0].copy()
    stamp[0] += 1
    with pytest.raises(FormatError, match="not the outputs of this program: its first output is another"):
        found(tmp_path, outputs | {"ties": [stamp, *outputs["ties"][1:]]})
    with pytest.raises((FormatError, ShapeError)):
        found(tmp_path, outputs | {"ties": outputs["sums"]})
    with pytest.raises(FormatError, match="no outputs of these programs"):
        read(tmp_path)
    with pytest.raises(FormatError, match="not a folder"):
        read(tmp_path / "nonesuch")
