"""Files that ExecuTorch made: those that its runtime refused are found, those that it ran have no errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from exec.recorded_shapes import DEFECTS, NAMES

from refsim.check.finding import Level
from refsim.check.run import check
from refsim.check.runtime import releases, runtime
from refsim.ops.base.registry import OPS

DATA = Path(__file__).parents[1] / "data"
#: File -> the rules of its errors. The runtime named the shader, the case, or the operator that is
#: missing; nobody ran ``reflect``, whose refusal stands in the sources.
REFUSED = {
    "heads/int8_head.pte": {"missing-shader", "float-argument"},
    "heads/head_31.pte": {"missing-shader", "float-argument"},
    "heads/two_heads.pte": {"missing-shader", "float-argument", "border-dtype"},
    "groups/two_planes.pte": {"qparams-rows"},
    "networks/int8_attention.pte": {"claimed-operator"},
    "networks/int8_mixer.pte": {"claimed-operator"},
    "networks/reflect.pte": {"index-null"},
}
#: What ran, and was wrong: the rules of its warnings.
WRONG = {
    "networks/int8_broadcast.pte": {"known-defect"},
    "heads/head_07.pte": {"known-defect"},
    "groups/group256.pte": {"known-defect"},
    "groups/twelve_outputs.pte": {"known-defect"},
}
#: Whole models, of which nobody knows what the runtime says: the rules of the errors that may be found.
UNKNOWN = {
    "zoo/conformer.pte": {"packed-border"},
    "zoo/fastscnn.pte": {"packed-border"},
    "zoo/m5.pte": {"constant-segment"},
}
#: Networks that nobody ran either, in which nothing is to be found.
SOUND = (
    *(f"networks/int8_{name}.pte" for name in ("classifier", "scaled", "squeeze")),
    *(f"networks/portable_{name}.pte" for name in ("classifier", "pool", "split")),
    *(f"networks/{name}.pte" for name in ("prelu", "upsample")),
)


def ran(path: Path) -> bool:
    """Whether an output of ET-VK's own runtime was recorded beside the file."""
    beside = (path.with_suffix(end) for end in (".npz", ".io.npz"))
    return any("upstream_out0" in np.load(file).files for file in beside if file.exists())


RAN = sorted(path.relative_to(DATA).as_posix() for path in DATA.glob("*/*.pte") if ran(path))


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


@pytest.mark.parametrize("name", UNKNOWN)
def test_models_have_no_other_errors(name: str) -> None:
    assert rules(name, Level.ERROR) <= UNKNOWN[name]


@pytest.mark.parametrize("name", [*SOUND, *(name for name in RAN if name not in WRONG)])
def test_what_ran_has_neither_errors_nor_warnings(name: str) -> None:
    assert not rules(name, Level.ERROR) | rules(name, Level.WARNING)


#: Of each defect of recorded_shapes the rule that tells it, where that is no output of the bound's shape.
OF_DEFECTS = {"D5": "resize-stops", "D6": "resize-stops"}


@pytest.mark.parametrize("name", NAMES)
def test_dynamic_programs_that_ran_have_no_errors_and_those_that_were_wrong_a_warning(name: str) -> None:
    file = f"dynamic/{name}.pte"
    assert not rules(file, Level.ERROR)
    told = rules(file, Level.WARNING) - {"known-defect"}
    assert told == ({OF_DEFECTS.get(DEFECTS[name], "unresized-output")} if name in DEFECTS else set())


def test_what_the_runtime_does_not_check_of_a_shape_is_noted() -> None:
    """It counts the elements of an input, and does not look at dims that operators need as they are."""
    noted = {name: rules(f"dynamic/{name}.pte", Level.NOTE) for name in ("fcn_add", "lin_rows", "perm_neg")}
    assert {name: found & {"bound-by-elements", "unchecked-dim"} for name, found in noted.items()} == {
        "fcn_add": {"bound-by-elements", "unchecked-dim"},
        "lin_rows": {"unchecked-dim"},
        "perm_neg": {"bound-by-elements"},
    }


def first_batch(name: str, runtime: str) -> bool:
    found = check(DATA / name, runtime)
    return any(f.rule == "known-defect" and "batch 0" in f.what for f in found)


def test_a_runtime_has_the_findings_that_are_its_own() -> None:
    assert not [f for f in check(DATA / "networks/reflect.pte", "1.5.1") if f.level is Level.ERROR]
    file = "dynamic/batch_conv.pte"
    assert {name: first_batch(file, name) for name in releases()} == {
        "2026-08": True, "1.5.1": False, "main": False, "webgpu": False,
    }  # fmt: skip


def test_the_release_computes_every_batch_but_the_transposed_convolutions() -> None:
    known = {
        f"{row.name}:{op.name}"
        for op in OPS.values()
        for row in op.upstream.defects
        if row.name == "first-batch"
    }
    assert known - runtime("1.5.1").behaviour.ended == {"first-batch:q8ta_conv2d_transposed"}


def test_there_are_files_to_check() -> None:
    assert len(RAN) >= 40 and len(NAMES) >= 20 and not {*REFUSED} & {*RAN}
