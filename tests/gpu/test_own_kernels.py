"""Kernels that are not ExecuTorch's (tests/modules/own): run, compared, bisected, verified; their wrong twins named."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from modules.own.build import RIGHT, TWINS, WRONG, build
from modules.seed import Seed
from modules.test_modules_build import needs_tools

from refsim.cli import main
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import FormatError
from refsim.core.rng import Rng
from refsim.exec.executor import YOURS
from refsim.exec.factory import executor_named
from refsim.formats import kernels
from refsim.golden.judge import KNOWN_DEFECT, judged
from refsim.golden.judge import WRONG as WRONG_BYTES
from refsim.modules.build import Request, opened
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.spirv.instruction import string_words
from refsim.spirv.module import Module, Section
from refsim.spirv.reflect import interface
from refsim_gpu.kompute import Device
from refsim_gpu.modules import ModuleExecutor, Options

INDEX = int(os.environ.get("REFSIM_DEVICE", "0"))


@needs_tools
def test_committed_modules_are_up_to_date() -> None:
    assert list(build(check=True)) == [], "run: PYTHONPATH=tests python tests/modules/own/build.py"
    assert (RIGHT / kernels.NAME).read_bytes() == (WRONG / kernels.NAME).read_bytes()


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.id)
def test_a_right_kernel_gives_the_same_bytes(device: Device, twin: Seed) -> None:
    """Every call that it takes runs on it; the others run on a kernel of ours."""
    taken = 0
    with ModuleExecutor(str(RIGHT), Options(INDEX)) as executor:
        for seed in range(120):
            bound = bind(OPS[twin.op].sample(Rng(seed)))
            taken += executor.source(bound.call).whose == YOURS
            assert executor.run_call(bound.call, bound.inputs) == bound.call.expected(bound.inputs), seed
    assert 10 < taken < 120


@pytest.mark.long
@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.id)
def test_the_cause_of_a_wrong_twin_is_named(device: Device, twin: Seed) -> None:
    with opened(Request(str(WRONG), [twin.op], device=INDEX)) as build:
        outcome = build.verification.run(build.operators)
        assert not outcome.right and outcome.cases <= 6
        names = {cause.name for cause in outcome.wrong[0].kernel.causes[:2]}
        # a channel read as the zero point gives the bytes of a channel left out
        alike = {"edge of the input"} if "reduction too short" in twin.causes else set()
        assert names & {*twin.causes, *alike}
        assert build.writer(outcome.wrong[0].tried.candidate.bound.call) == twin.id


@pytest.mark.long
@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.id)
def test_a_rerun_says_the_same(device: Device, twin: Seed, capsys: pytest.CaptureFixture[str]) -> None:
    """`again` repeats causes, invocations and source lines; `replay` has the launch of the kernel, too."""

    def reported(*arguments: str) -> dict[str, Any]:
        capsys.readouterr()
        assert main([*arguments, "--json"]) == 1
        return json.loads(capsys.readouterr().out)

    words = ("--limit", "3", "--device", str(INDEX))
    (first,) = reported("shaders", str(WRONG), twin.op, *words)["wrong"]
    assert main(["shaders", str(WRONG), twin.op, *words]) == 1
    shown = capsys.readouterr().out
    again = shlex.split(first["again"])[1:]
    assert main(again) == 1
    assert _explanation(capsys.readouterr().out) == _explanation(shown) and "stored at" in shown
    (second,) = reported(*again)["wrong"]
    assert {**second, "again": ""} == {**first, "again": ""} and first["lines"]
    name = f"spv:{WRONG}@{INDEX}"
    replayed = reported("replay", first["case"], "-x", name, "--limit", "3")["executors"][name]
    assert replayed["report"]["differences"] == first["report"]["differences"]
    assert main(["replay", first["case"], "-x", name]) == 1
    said = capsys.readouterr().out
    assert f"written by {twin.id}.spv" in said and f"stored at {first['lines'][0]['place']}" in said


def _explanation(shown: str) -> list[str]:
    """What is said of the wrong case, without times."""
    lines = shown.splitlines()
    start = next(n for n, line in enumerate(lines) if line.endswith("bytes differ"))
    return [line for line in lines[start:] if not line.startswith(("wrong: ", "rerun: "))]


def test_a_right_folder_is_right(device: Device) -> None:
    with opened(Request(str(RIGHT), device=INDEX)) as build:
        outcome = build.verification.run(build.operators)
        assert outcome.right and all(sum(count.values()) >= 20 for count in outcome.operators.values())


@pytest.mark.parametrize("name", [str(RIGHT), str(RIGHT / kernels.NAME)])
def test_the_executor_opens_a_folder_or_a_file(device: Device, name: str) -> None:
    with executor_named(f"spv:{name}@{INDEX}") as executor:
        bound = bind(OPS["q8ta_conv2d_pw"].cases.example)
        assert executor.source(bound.call).kernels == ("pointwise",)
        assert executor.run_call(bound.call, bound.inputs) == bound.call.expected(bound.inputs)


def copied(tmp_path: Path, old: str = "", new: str = "") -> Path:
    """The right kernels in a folder of their own, with another text in its description."""
    folder = tmp_path / "own"
    shutil.copytree(RIGHT, folder)
    text = (folder / kernels.NAME).read_text()
    assert old in text
    (folder / kernels.NAME).write_text(text.replace(old, new) if old else text)
    return folder


def test_padding_that_is_left_to_chance_is_not_compared(device: Device, tmp_path: Path) -> None:
    """The pointwise kernel writes no columns behind the last; with another zero point its lanes would differ."""
    folder = copied(tmp_path, "[q8ta_add]", 'padding = "any"\n\n[q8ta_add]')
    bound = bind(OPS["q8ta_conv2d_pw"].cases.example)
    with ModuleExecutor(str(folder), Options(INDEX)) as executor:
        out = executor.run_call(bound.call, bound.inputs)
    assert isinstance(out, PackedBuffer) and np.array_equal(out.raw, bound.call.expected(bound.inputs).raw)


@pytest.mark.parametrize("key", ["out_zp", "activation"])
def test_a_missing_word_is_a_typed_error(device: Device, tmp_path: Path, key: str) -> None:
    folder = copied(tmp_path, f'"{key}", "activation",' if key == "out_zp" else f'"{key}",')
    bound = bind(OPS["q8ta_conv2d_pw"].cases.example)
    gives = r"does not fit .*refsim.toml \[q8ta_conv2d_pw\]: declares 72 push bytes; the host pushes \d+$"
    with ModuleExecutor(str(folder), Options(INDEX)) as executor, pytest.raises(FormatError, match=gives):
        executor.run_call(bound.call, bound.inputs)


def test_an_entry_point_may_have_any_name(device: Device, tmp_path: Path) -> None:
    folder = copied(tmp_path)
    module = Module.parse((folder / "sum.spv").read_bytes(), "sum").copy()
    rows = module.sections[Section.ENTRY_POINT]
    row = rows[0]
    rows[0] = row.with_args(*row.args[:2], *string_words("sum_of_two_tensors"), *row.args[4:])
    (folder / "sum.spv").write_bytes(module.to_bytes())
    assert interface(Module.parse(module.to_bytes(), "sum")).entry_point == "sum_of_two_tensors"
    with opened(Request(str(folder), ["q8ta_add"], count=4, device=INDEX)) as build:
        assert build.verification.run(build.operators).right


def test_workgroups_can_be_counted_instead_of_invocations(device: Device, tmp_path: Path) -> None:
    groups = 'groups = ["ceil(w/16)", "(h + 1) // 2", "ceil(n * ceil(c / 4) / 4)"]'
    folder = copied(tmp_path, 'global = ["w", "h", "n * ceil(c / 4)"]', groups)
    with opened(Request(str(folder), ["q8ta_add"], count=12, device=INDEX)) as build:
        outcome = build.verification.run(build.operators)
        assert outcome.right and outcome.cases >= 12


def test_a_defect_of_upstreams_kernel_is_no_excuse(device: Device, tmp_path: Path) -> None:
    """A sum that ignores alpha, as ExecuTorch's kernel does, is wrong here."""
    folder = copied(tmp_path, '"alpha"', "1.0")
    given = {"a": ((1, 4, 2, 2), "4C"), "b": ((1, 4, 2, 2), "4C")}
    scales = {f"{name}_scale": 0.1 for name in ("a", "b", "out")} | {
        f"{name}_zp": 0 for name in ("a", "b", "out")
    }
    bound = bind(Case("q8ta_add", scales | {"alpha": 0.5}, given, "4C"))
    with ModuleExecutor(str(folder), Options(INDEX)) as executor:
        out, source = executor.run_call(bound.call, bound.inputs), executor.source(bound.call)
    assert source.kernels == ("sum",) and not source.forgiven
    assert (
        judged(bound, out).verdict == KNOWN_DEFECT
        and judged(bound, out, defects=False).verdict == WRONG_BYTES
    )
