"""The sanitizers on kernels of our own: each seeded fault is found and named, and nothing is said of right kernels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from modules.bugs import Bug
from modules.hidden import HIDDEN, IN_TURN
from modules.test_modules_build import needs_tools

from refsim.core.plain import plain
from refsim.exec.factory import executor_named
from refsim.exec.finding import FOREIGN, HARMLESS, OUTSIDE, UNSTABLE, Invocation, KernelFinding
from refsim.golden.telling import ordered
from refsim.modules.inventory import computed
from refsim.ops.base.binding import BoundCase
from refsim.spirv.instrument import RunChoice
from refsim_gpu import module_pipelines, watched
from refsim_gpu.kompute import Device
from refsim_gpu.modules import ModuleExecutor, Options

SPIRV = Path(__file__).parents[1] / "modules" / "spirv"
INDEX = int(os.environ.get("REFSIM_DEVICE", "0"))
CASES = int(os.environ.get("REFSIM_SANITIZE_CASES", "3"))
BAD_CASES = 8
OPERATORS = computed([path.stem for path in SPIRV.glob("*.spv")])


@pytest.fixture(scope="module")
def executor(device: Device) -> Iterator[ModuleExecutor]:
    with ModuleExecutor(str(SPIRV), Options(INDEX)) as opened:
        yield opened


def cases(op: str, count: int) -> Iterator[BoundCase]:
    return (one.bound for one in islice(ordered(op, count), count))


def findings(executor: ModuleExecutor, bound: BoundCase, repeats: int = 0) -> list[KernelFinding]:
    return executor.sanitize(bound.call, bound.inputs, repeats)


# --- right kernels ---------------------------------------------------------------------------------------


@pytest.mark.few(4)
@pytest.mark.parametrize("op", OPERATORS)
def test_nothing_is_said_of_right_kernels(executor: ModuleExecutor, op: str) -> None:
    """That includes that the instrumented module writes the bytes of the plain one."""
    for bound in cases(op, CASES):
        assert not findings(executor, bound, 2)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "options", [{"variant": "fallback"}, {"variant": "unsigned"}, {"images": True}], ids=str
)
def test_other_variants(device: Device, options: dict[str, object]) -> None:
    with ModuleExecutor(str(SPIRV), Options(INDEX, **options)) as executor:  # type: ignore[arg-type]
        for op in ("q8ta_quantize", "q8ta_dequantize", "q8ta_conv2d_pw", "q8ta_linear"):
            for bound in cases(op, 2):
                assert not findings(executor, bound)


def one_of(executor: ModuleExecutor, op: str) -> tuple[watched.Watched, list[np.ndarray | None]]:
    (bound,) = cases(op, 1)
    (step,) = executor.dispatches(bound.call)
    words = module_pipelines.contents(step, module_pipelines.given(step, bound.inputs, {}))
    return executor.sanitizer._watched(step), words


@pytest.mark.parametrize("op", ["q8ta_linear_gemv", "q8ta_clone", "q8ta_dequantize"])
def test_any_order_gives_the_same_bytes_and_the_same_writers(executor: ModuleExecutor, op: str) -> None:
    one, words = one_of(executor, op)
    base = one.run(words, {}, RunChoice())
    plain = executor.pipelines.run(
        one.dispatch, {bind.buffer: content for bind, content in zip(one.dispatch.binds, words, strict=True)
                       if content is not None and bind.buffer}
    )  # fmt: skip
    assert np.array_equal(plain["out"], base.outputs[0])

    @given(st.tuples(st.booleans(), st.integers(0, 99), st.booleans(), st.integers(0, 99)))
    @settings(max_examples=25)
    def runs(order: tuple[bool, int, bool, int]) -> None:
        other = one.run(words, {}, RunChoice(*order))
        assert np.array_equal(other.outputs[0], base.outputs[0])
        assert np.array_equal(other.records[0], base.records[0])

    runs()


# --- wrong kernels ---------------------------------------------------------------------------------------


@needs_tools
@pytest.mark.parametrize("bug", HIDDEN, ids=lambda bug: bug.id)
def test_a_fault_is_found_and_named(device: Device, tmp_path: Path, bug: Bug) -> None:
    if bug.id in IN_TURN and device.info.vendor != "Mesa":
        pytest.skip(
            f"{device.info.name} runs the invocations of a workgroup side by side, and hides this race"
        )
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / f"{bug.module}.spv").write_bytes(bug.compiled(tmp_path))
    found: list[KernelFinding] = []
    with ModuleExecutor(str(folder), Options(INDEX)) as executor:
        for bound in cases(bug.op, BAD_CASES):
            found += findings(executor, bound)
            if set(bug.causes) <= {one.kind for one in found}:
                break
    kinds = {one.kind for one in found}
    assert set(bug.causes) <= kinds
    assert all(one.module == bug.module for one in found)
    if set(bug.causes) <= set(HARMLESS):
        assert kinds == set(bug.causes)
    for one in found:
        assert one.binding == 0 and one.buffer == "out" and one.workers and one.word is not None
        # guards hold no element, nor do words of padding
        assert one.element is not None or one.kind in (OUTSIDE, FOREIGN)


@needs_tools
def test_a_fault_is_found_across_processes(device: Device, tmp_path: Path) -> None:
    bug = next(bug for bug in HIDDEN if bug.id == "conv-past-the-end")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / f"{bug.module}.spv").write_bytes(bug.compiled(tmp_path))
    executor = executor_named(f"spv:{folder}@{INDEX}")
    found = [one for bound in cases(bug.op, 3) for one in executor.sanitize(bound.call, bound.inputs)]
    assert found[0].kind == OUTSIDE
    assert str(found[0]).startswith(
        "write out of bounds: q8ta_conv2d_float writes behind the buffer of out, "
    )
    (worker,) = found[0].workers
    assert str(found[0]).endswith(f", workgroup {worker.workgroup} invocation {worker.invocation}")
    assert plain(found[0])["workers"] == [
        {"workgroup": list(worker.workgroup), "invocation": list(worker.invocation)}
    ]


def test_a_run_that_differs_is_reported_with_its_number(
    executor: ModuleExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bound,) = cases("q8ta_relu", 1)
    assert not findings(executor, bound)
    true, runs = module_pipelines.Pipeline.run, []

    def run(self, contents, binds):  # type: ignore[no-untyped-def]
        found = true(self, contents, binds)
        if not self.extra and self.local == binds_local:
            runs.append(1)
            found[0][0] += len(runs) == 7
        return found

    (step,) = executor.dispatches(bound.call)
    binds_local = step.local
    monkeypatch.setattr(module_pipelines.Pipeline, "run", run)
    (found,) = findings(executor, bound, 100)
    assert (found.kind, found.what) == (UNSTABLE, "writes other bytes in run 7 than in run 1")
    assert found.word == 0 and found.element == (0, 0, 0, 0) and len(runs) == 7


# --- the words -------------------------------------------------------------------------------------------


def test_text() -> None:
    one = KernelFinding("k", "m", "does it", 1, "x", -3, 5, (0, 1, 2, 3), (Invocation((1, 2, 3), (4, 5, 6)),))
    assert str(one) == (
        "k: m does it; binding 1 (x), word -3 and 4 more, element (0, 1, 2, 3), "
        "workgroup (1, 2, 3) invocation (4, 5, 6)"
    )
    assert str(KernelFinding("k", "m", "does it")) == "k: m does it"
