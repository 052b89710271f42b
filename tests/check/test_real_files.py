"""Files that ExecuTorch made: those that its runtime refused are found, those that it ran have no errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from refsim.check.finding import Level
from refsim.check.run import check

DATA = Path(__file__).parents[1] / "data"
#: File -> the rules of its errors. The runtime named the shader, the case, or the operator that is missing.
REFUSED = {
    "heads/int8_head.pte": {"missing-shader", "float-argument"},
    "heads/head_31.pte": {"missing-shader", "float-argument"},
    "groups/two_planes.pte": {"qparams-rows"},
    "networks/int8_attention.pte": {"claimed-operator", "unsqueeze-rank"},
    "networks/int8_mixer.pte": {"claimed-operator"},
}
#: What ran, and was wrong: the rules of its warnings.
WRONG = {
    "networks/int8_broadcast.pte": {"known-defect"},
    "heads/head_07.pte": {"known-defect"},
    "groups/group256.pte": {"known-defect"},
    "groups/twelve_outputs.pte": {"known-defect"},
}
RAN = sorted(
    name
    for path in DATA.glob("*/*.pte")
    if (name := path.relative_to(DATA).as_posix()) not in {*REFUSED, *WRONG}
)


def rules(name: str, level: Level) -> set[str]:
    return {finding.rule for finding in check(DATA / name) if finding.level is level}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_runtime_refused_is_found(name: str) -> None:
    assert rules(name, Level.ERROR) == REFUSED[name]


def test_the_shader_is_named_as_the_runtime_names_it() -> None:
    (found,) = (f for f in check(DATA / "heads/int8_head.pte") if f.rule == "missing-shader")
    assert "clone_buffer_to_image_int8_int32" in found.what
    assert (found.place.delegate, found.place.node, found.place.value) == (0, 1, 12)


@pytest.mark.parametrize("name", WRONG)
def test_what_ran_and_was_wrong_has_a_warning_and_no_error(name: str) -> None:
    assert (rules(name, Level.ERROR), rules(name, Level.WARNING)) == (set(), WRONG[name])


@pytest.mark.parametrize("name", RAN)
def test_what_ran_has_neither_errors_nor_warnings(name: str) -> None:
    assert not rules(name, Level.ERROR) | rules(name, Level.WARNING)


def test_there_are_files_to_check() -> None:
    assert len(RAN) >= 25
