"""Chunks of a sweep: what they draw, their results on disk, processes that die, and cases that are made smaller."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from examples import BINARY, UNARY
from modules.wgsl_kernels import RIGHT
from needed import needs_device

from refsim.core.buffer import PackedBuffer
from refsim.core.errors import DeviceError, FormatError, RefsimError
from refsim.core.qmath import CANONICAL
from refsim.core.rng import Rng
from refsim.exec.emulated import EmulatedExecutor
from refsim.golden.check import CRASHED, DIFFERENT, ERROR
from refsim.golden.judge import LEGAL, SAME
from refsim.ops.base.case import Case
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call
from refsim.sweep import chunk, executors
from refsim.sweep.chunk import ChunkRunner, shrunk
from refsim.sweep.database import Database
from refsim.sweep.outcome import Outcome
from refsim.sweep.plan import PROFILES, Chunk, SweepPlan, SweepVariant, shared
from refsim.sweep.result import inside, processes, sweep

CPU = SweepVariant("cpu")
STATE = {"seed": 0, "profiles": [], "strict": False, "sources": ""}


class Deadly(ChunkRunner):
    """Ends its process at one configuration."""

    def run(self, chunk: Chunk) -> list[Outcome]:
        if 1 in chunk.numbers and SweepVariant("cpu:emulated") in chunk.variants:
            os._exit(3)
        return super().run(chunk)


def plan(count: int, *subjects: str, **changes: object) -> SweepPlan:
    return replace(SweepPlan(shared(count, subjects), {}, (CPU,)), **changes)


# --- results on disk --------------------------------------------------------------------------------


def test_a_longer_sweep_replaces_the_chunk_that_was_cut(tmp_path: Path) -> None:
    path = str(tmp_path / "sweep.sqlite")
    for count, left in ((10, 10), (30, 30), (30, 0)):
        database = Database(path, STATE, resume=Path(path).exists())
        chunks = list(database.missing(plan(count, UNARY.name).chunks()))
        assert sum(row.count for row in chunks) == left
        list(sweep(chunks, inside, database, tmp_path))
        (found,) = database.outcomes()
        assert found.count == found.statuses["same"] == count
        database.close()


def test_only_one_process_writes(tmp_path: Path) -> None:
    path = str(tmp_path / "sweep.sqlite")
    first = Database(path, STATE)
    with pytest.raises(FormatError, match="another process"):
        Database(path, STATE, resume=True)
    first.close()
    Database(path, STATE, resume=True).close()


@pytest.mark.parametrize("content", ["text", "sqlite", "empty table"])
def test_other_files_are_refused_and_stay_as_they_are(content: str, tmp_path: Path) -> None:
    path = tmp_path / "other"
    if content == "text":
        path.write_text("no database\n" * 100)
    else:
        with sqlite3.connect(path) as file:
            file.execute(
                "CREATE TABLE sweep (key TEXT, value TEXT)" if content == "sqlite" else "CREATE TABLE t (a)"
            )
        file.close()
    before = path.read_bytes()
    with pytest.raises(FormatError, match="not the results of a sweep"):
        Database(str(path), STATE, resume=True)
    assert path.read_bytes() == before


# --- chunks, crashes, shrinking --------------------------------------------------------------------------


def test_a_configuration_does_not_depend_on_its_chunk() -> None:
    whole = plan(8, UNARY.name, seed=5)
    (one,) = whole.chunks()
    parts = [part for half in one.halves() for part in half.halves()]
    assert [number for part in parts for number in part.numbers] == list(one.numbers)
    assert [part.draw(k) for part in parts for k in part.numbers] == [one.draw(k) for k in one.numbers]
    assert {profile.name for _, profile in map(one.draw, one.numbers)} == {"canonical", "lavapipe", "nvidia"}


@pytest.mark.long
def test_a_process_that_dies_costs_one_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk, "ChunkRunner", Deadly)
    both = (CPU, SweepVariant("cpu:emulated"))
    (row,) = plan(2, UNARY.name, variants=both).chunks()
    (found,) = processes([row], 1)
    good, bad = found
    assert good.variant == CPU and good.statuses == {"same": 2}
    assert bad.statuses == {"same": 1, CRASHED: 1}
    (failure,) = bad.failures
    assert failure.seed == row.draw(1)[0] and "exit status 3" in failure.message and failure.files


class Together(EmulatedExecutor):
    """Takes some calls at once. It is wrong where the output has several channels, and has no result for another."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch, self.sizes = batch, list[int]()

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        out = super().run_prepared(prepared, inputs)
        if out.desc.sizes_whcn[2] > 6:
            out.raw[-1] ^= 255
        elif out.desc.sizes_whcn[2] > 4:
            raise DeviceError("together", "no result")
        return out

    def run_batch(
        self, work: Sequence[tuple[Call, Mapping[str, PackedBuffer]]]
    ) -> list[PackedBuffer | RefsimError]:
        self.sizes.append(len(work))
        return super().run_batch(work)


@pytest.mark.long
def test_what_an_executor_takes_at_once_runs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each configuration has the outcome that it has by itself."""
    monkeypatch.setattr(chunk, "SECONDS", 3600.0)  # a machine that is busy finds the smallest cases too
    (row,) = plan(11, UNARY.name, seed=3).chunks()
    found = []
    for batch in (1, 4, 25):
        executor = Together(batch)
        monkeypatch.setattr(executors, "executor_named", lambda *_, given=executor: given)
        (outcome,) = ChunkRunner().run(row)
        found.append(
            (outcome.statuses, outcome.nbytes, [(f.seed, f.status, f.case) for f in outcome.failures])
        )
        assert executor.sizes == {1: [], 4: [4, 4, 3], 25: [11]}[batch]
    assert found[0] == found[1] == found[2]
    statuses = found[0][0]
    assert {"same", DIFFERENT, ERROR} <= set(statuses) and sum(statuses.values()) == 11


def test_kernels_on_flat_tensors_are_compared_with_their_own_meaning() -> None:
    """Of seed 13 a right convolution gives other bytes there than the packed kernel."""
    variant = SweepVariant(f"wgsl:{RIGHT}")
    with needs_device():
        (outcome,) = ChunkRunner().run(Chunk("q8ta_conv2d", 13, 1, 0, PROFILES, (variant,)))
    assert not outcome.failures and outcome.statuses.keys() <= {SAME, LEGAL}


@pytest.mark.long
def test_a_sweep_that_is_given_up_leaves_no_process() -> None:
    found = processes(list(plan(5000, UNARY.name).chunks()), 2)
    next(found)
    found.close()
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    names = [
        Path(f"/proc/{child}/cmdline").read_bytes() for child in children if Path(f"/proc/{child}").exists()
    ]
    assert not [name for name in names if name.endswith(b"\0sweep\0")]


def test_shrinking_ends_at_the_smallest_that_still_fails() -> None:
    case = next(
        case
        for case in map(OPS[BINARY.name].sample, map(Rng, range(50)))
        if case.inputs["a"][0][-3:-2] > (5,)
    )
    small = shrunk(
        case, lambda one: one.inputs["a"][0][-3] > 4 and one.params["out_zp"] == case.params["out_zp"]
    )
    assert small.inputs["a"][0] == (*[1] * (len(case.inputs["a"][0]) - 3), 5, 1, 1)
    assert small.params["out_zp"] == case.params["out_zp"] and small.params["a_zp"] == 0 and small.seed == 0


def test_what_cannot_be_bound_is_no_smaller_case() -> None:
    case = Case(UNARY.name, {}, {"x": ((4, 4), "4C")}, "4C")

    def fails(one: Case) -> bool:
        raise FormatError("here", "no")

    assert shrunk(case, fails) == case


class Fickle(EmulatedExecutor):
    """Right, but for one byte of the third call and of each third after it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        out = super().run_prepared(prepared, inputs)
        self.calls += 1
        if self.calls % 3 == 0:
            out.raw[0] ^= 1
        return out


@pytest.mark.parametrize(("repeats", "different"), [(0, 0), (1, 0), (2, 1)])
def test_repeats_find_an_executor_that_is_wrong_now_and_then(
    monkeypatch: pytest.MonkeyPatch, repeats: int, different: int
) -> None:
    fickle = Fickle()
    monkeypatch.setattr(executors, "executor_named", lambda name, threads: fickle)
    found = plan(1, UNARY.name, repeats=repeats, profiles=(CANONICAL,))
    (chunk,) = found.chunks()
    (outcome,) = ChunkRunner().run(replace(chunk, shrink=False))
    assert (outcome.statuses[SAME], outcome.statuses[DIFFERENT]) == (1 - different, different)
