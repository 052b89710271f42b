"""Kernels on cooperative matrices: with emulated instructions on any device, with its own where it has them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from module_cases import LINEAR_HEAD

import refsim_gpu
from refsim.cli import main
from refsim.core.errors import DeviceError, ParameterError
from refsim.exec.factory import executor_named
from refsim.ops.base import coopmat
from refsim.ops.base.binding import bind
from refsim.ops.base.coopmat import CoopRule, CoopTile, pack_weight, parts, plan, worthwhile
from refsim.ops.base.registry import OPS
from refsim.ops.base.traits import MatrixProblem, XQuads
from refsim_gpu.conformance import Count, cases, compare_calls
from refsim_gpu.coop import ALL, AUTO, EMULATED, OFF, Chosen, forced, policy, problem_of
from refsim_gpu.executor import KomputeExecutor
from refsim_gpu.kompute import Device

INDEX = int(os.environ.get("REFSIM_DEVICE", "0"))
RANDOM = int(os.environ.get("REFSIM_GPU_RANDOM", "12"))
OPERATORS = [name for name, op in OPS.items() if op.matrix is not None]
MANY = 1 << 20  # workgroups that no problem has: K is split as far as it goes


@pytest.fixture(scope="module", params=[EMULATED, ALL])
def executor(request: pytest.FixtureRequest, device: Device) -> Iterator[KomputeExecutor]:
    if request.param == ALL and not device.info.int8_matrices:
        pytest.skip(f"{device.info.name} has no cooperative matrices of int8")
    with KomputeExecutor(INDEX, coop=request.param) as opened:
        yield opened


@pytest.mark.few(16)
@pytest.mark.parametrize("splits", [0, MANY], ids=["whole", "in parts"])
@pytest.mark.parametrize("tile", coopmat.TILES, ids=[tile.name for tile in coopmat.TILES])
@pytest.mark.parametrize("name", OPERATORS)
def test_every_tile_writes_the_definitions_bytes(
    executor: KomputeExecutor, name: str, tile: CoopTile, splits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = executor.pipelines.chosen.policy
    assert chosen is not None
    if chosen.build and tile not in coopmat.EMULATED_TILES:
        pytest.skip(f"tile {tile.name} is not built with emulated instructions")
    rule = CoopRule(tile, split=splits, long_k=0)
    monkeypatch.setattr(executor.pipelines, "chosen", Chosen(forced(chosen, rule)))
    count = Count(name)
    compare_calls(executor, cases(name, RANDOM // 6 if chosen.build else RANDOM // 3), count)
    assert count.compared and not count.failed, count.failed[0]


def test_a_composite_is_taken_for_what_it_stands_for() -> None:
    for op in OPS.values():
        if op.picks:
            call, problem = problem_of(bind(op.cases.bench).call) or (None, None)
            assert call is not None and call.op.matrix is not None and problem.depth == 147


def test_an_executor_says_which_kernel_it_takes(executor: KomputeExecutor) -> None:
    call = bind(OPS["q8ta_linear"].cases.bench).call
    kernel, *_ = executor.source(call).kernels
    assert kernel.startswith("coop/linear.") and kernel.endswith(".emulated") == bool(
        executor.pipelines.chosen.policy.build  # type: ignore[union-attr]
    )


@pytest.mark.few(1)
@pytest.mark.parametrize(("choice", "kernel"), [(EMULATED, "coop/linear."), (OFF, "q8ta_linear")])
def test_inspect_names_it(
    choice: str, kernel: str, device: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the option reaches the process in which the executor lives."""
    assert main(["inspect", str(LINEAR_HEAD), "-x", f"gpu:{INDEX}@coop={choice}", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["delegates"][0]["operators"]
    assert [row["kernels"].startswith(kernel) for row in rows] == [False, True, True, True, False]


def test_a_policy_is_made_for_a_device(device: Device) -> None:
    has, lacks = (replace(device.info, int8_matrices=each) for each in (True, False))
    assert policy(has, OFF) is None and policy(lacks, AUTO) is None
    assert policy(has, AUTO) is not None and policy(lacks, EMULATED) is not None
    with pytest.raises(DeviceError, match="no cooperative matrices"):
        policy(lacks, ALL)
    with pytest.raises(ParameterError, match="unknown choice; got some, need auto, off, all, emulated"):
        policy(has, "some")


def test_options_need_no_number() -> None:
    assert executor_named("gpu@coop=off").name == executor_named("gpu:0@coop=off").name


@pytest.mark.parametrize("rest", ["0@", "0@tiles=2", "x@coop=off"])
def test_another_option_is_no_executor(rest: str) -> None:
    assert refsim_gpu.open_named(rest, 1) is None


def test_an_option_without_a_choice_is_refused(device: Device) -> None:
    with pytest.raises(ParameterError, match="unknown choice; got , need auto, off, all, emulated"):
        refsim_gpu.open_named(f"{INDEX}@coop", 1)


def problem(positions: int, channels: int, chunks: int) -> MatrixProblem:
    return MatrixProblem(
        "coop/linear", (), positions, channels, 1, 16 * chunks, chunks, True, XQuads.BLOCK, lambda w: w
    )


@pytest.mark.parametrize("chunks", [1, 7, 30, 72, 288])
@pytest.mark.parametrize("wanted", [1, 2, 5, 16, 1000])
@pytest.mark.parametrize("tile", coopmat.TILES, ids=[tile.name for tile in coopmat.TILES])
def test_no_part_of_k_is_empty(tile: CoopTile, chunks: int, wanted: int) -> None:
    found = parts(problem(64, 64, chunks), tile, wanted)
    stages = -(-16 * chunks // tile.k)
    share = -(-stages // found)
    assert 1 <= found <= wanted and (found - 1) * share < stages <= found * share


def test_the_rules_take_small_tiles_and_parts_of_k_for_small_problems() -> None:
    assert plan(problem(8192, 8192, 64)).tile == coopmat.TILES[0]
    small = plan(problem(56, 512, 288))
    assert small.tile == coopmat.TILES[-1] and small.splits > 4
    assert plan(problem(1 << 16, 64, 4)).splits == 1


def test_only_what_was_measured_is_taken_unasked() -> None:
    assert worthwhile(problem(64, 160, 30))
    for positions, channels, chunks in ((4, 2048, 128), (64, 16, 30), (64, 160, 7)):
        assert not worthwhile(problem(positions, channels, chunks))
    assert not worthwhile(replace(problem(64, 160, 30), depth=200)), "most of K is padding"


def test_weights_lie_in_chunks_of_k() -> None:
    """Every byte once, zeros elsewhere."""
    weight = np.arange(1, 1 + 6 * 2 * 20, dtype=np.int64).reshape(6, 2, 20).astype(np.int8)
    packed = pack_weight(weight, 2).view(np.int8).reshape(2, 8, 4, 16)
    for group in range(2):
        for channel in range(3):
            row = packed[group, :, channel].reshape(-1)
            taps = row[:64].reshape(2, 32)
            assert np.array_equal(taps[:, :20], weight[3 * group + channel])
            assert not taps[:, 20:].any() and not row[64:].any()
    assert not packed[:, :, 3].any()
