"""sweep: what it compares, how it goes on after an interruption, what it refuses, and its failures as cases."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from examples import BINARY, UNARY

from refsim.cli import sweep as verb
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import MissingDependencyError
from refsim.core.rng import Rng
from refsim.exec.emulated import EmulatedExecutor
from refsim.exec.executor import canonical_only
from refsim.exec.factory import executor_named
from refsim.formats.cases import read_folder
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call
from refsim.ops.base.traits import Family
from refsim.sweep import chunk as chunks
from refsim.sweep import executors
from refsim.sweep import outcome as outcomes
from refsim.sweep import result as shown
from refsim.sweep.outcome import Outcome
from refsim.sweep.plan import GRAPHS, SIZE, Chunk, SweepVariant

CONV = next(op for op in OPS.of_family(Family.CONVOLUTION) if not (op.picks or op.one_tap or op.transposed))


class Wrong(EmulatedExecutor):
    """Inverts the last byte of every output that has more than six channels."""

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        out = super().run_prepared(prepared, inputs)
        if out.desc.sizes_whcn[2] > 6:
            out.raw[-1] ^= 255
        return out


def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor cpu is wrong, in this process; a machine that is busy finds the smallest failing cases too."""

    def named(name: str, threads: int = 1):
        return Wrong() if name == "cpu" else executor_named(name, threads)

    monkeypatch.setattr(executors, "executor_named", named)
    monkeypatch.setattr(chunks, "SECONDS", 3600.0)


def only(monkeypatch: pytest.MonkeyPatch, executor: type[EmulatedExecutor]) -> None:
    """That is the executor gpu, in this process."""
    for module in (executors, verb):
        monkeypatch.setattr(module, "executor_named", lambda name, threads=1: executor())


class CanonicalOnly(EmulatedExecutor):
    def refusal(self, call: Call) -> str | None:
        return canonical_only(call.target.profile)


class Unbuilt(EmulatedExecutor):
    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        raise MissingDependencyError("q8ta_new", "no built SPIR-V")


@pytest.mark.long
def test_every_operator_on_both_executors(refsim) -> None:
    done = refsim(f"sweep -n {2 * (len(OPS) + 1)} --workers 0 --json")
    assert done.status == 0 and done.json["same"]
    counts = done.json["counts"]
    assert {(row["operator"], row["executor"]) for row in counts} == {
        (op, executor) for op in (*OPS, GRAPHS) for executor in ("cpu", "cpu:emulated")
    }
    assert all(row["statuses"]["same"] == row["configurations"] == 2 and row["bytes"] > 0 for row in counts)


@pytest.mark.long
def test_threads_and_instruction_sets_in_processes(refsim) -> None:
    arguments = ("-x", "cpu", "--threads", "1,2", "--isa", "portable", "-n", 12, "--profile", "lavapipe")
    done = refsim(f"sweep {UNARY.name}", *arguments, "--workers", 1, "--scheduler", "none")
    assert done.status == 0, done.err
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[0] == ["operator", "executor", "configs", "same", "bytes"]
    assert [UNARY.name, "cpu", "isa=portable", "12", "12"] in [row[:5] for row in rows]
    assert [UNARY.name, "cpu", "threads=2", "isa=portable", "12", "12"] in [row[:6] for row in rows]
    assert "12 configurations, 24 calls compared, 0 failed" in done.out


def test_a_failure_is_small_and_can_be_replayed(refsim, monkeypatch, tmp_path: Path) -> None:
    broken(monkeypatch)
    folder = tmp_path / "failures"
    old = folder / "of-yesterday"
    old.mkdir(parents=True)
    (old / "case.json").write_text("{}")
    done = refsim(f"sweep {CONV.name} -n 40 --workers 0 --failures {folder} --json")
    assert f"{folder} also has 1 older case" in done.err
    shutil.rmtree(old)
    assert done.status == 1 and not done.json["same"]
    assert done.json["failed"] == sum(row["statuses"]["different"] for row in done.json["counts"]) > 0
    first = done.json["failures"][0]
    assert first["executor"] == "cpu" and first["status"] == "different"
    stored = read_folder(first["folder"])
    assert stored.expected.desc.shape == (1, 7, 1, 1)
    assert stored.bound.call.descs["x"].shape == (1, 1, 1, 1)
    assert stored.bound.case.params["activation"] == "none"
    assert refsim(f"replay {first['folder']} -x cpu,cpu:emulated").status == 0
    drawn = OPS[first["operator"]].sample(Rng(first["seed"]))
    assert drawn.op == stored.bound.case.op


@pytest.mark.long
def test_every_failure_that_is_told_is_small_and_can_be_replayed(refsim, monkeypatch, tmp_path: Path) -> None:
    broken(monkeypatch)
    command = f"sweep {CONV.name} -n 40 -x cpu --workers 0 --failures"
    told = refsim(f"{command} {tmp_path}/all --json").json["failures"]
    assert len({row["folder"] for row in told}) == len(told) == outcomes.MOST_TOLD
    assert {read_folder(row["folder"]).expected.desc.shape for row in told} == {(1, 7, 1, 1)}
    monkeypatch.setattr(shown, "MOST_FOLDERS", 2)
    done = refsim(f"{command} {tmp_path}/two")
    failed = int(re.search(r"(\d+) failed", done.out)[1])
    assert done.out.count("refsim replay ") == 2 and failed > outcomes.MOST_TOLD
    assert done.out.count("its case is not written: 2 of this operator and executor are") == 3
    assert f"{failed - outcomes.MOST_TOLD} more are only counted: a chunk tells 5 of" in done.out


@pytest.mark.long
def test_a_failure_names_every_cause_that_fits_as_well(refsim, monkeypatch, tmp_path: Path) -> None:
    """Little is left of a case that was made small: several causes predict it, and none of them stands alone."""

    def nothing(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        return PackedBuffer(prepared.call.out)

    broken(monkeypatch)
    monkeypatch.setattr(Wrong, "run_prepared", nothing)
    given = f"sweep q8ta_linear -n 3 -x cpu --workers 0 --failures {tmp_path}/f"
    done = refsim(f"{given} --json")
    same = "predict the same bytes here; its replay says how to tell them apart"
    messages = [failure["message"] for failure in done.json["failures"]]
    assert messages and all('"nothing written"' in text and text.endswith(same) for text in messages)
    assert not any("(predicts every byte)" in text for text in messages)


def test_models_are_compared_watched_and_not(refsim, models: Path, monkeypatch, tmp_path: Path) -> None:
    shutil.copy(models / "mixed_ops.pte", tmp_path)
    line = f"sweep --models {tmp_path} -n 0 --workers 0 --runs 2 --failures {tmp_path}/f --json"
    done = refsim(line)
    assert done.status == 0
    assert [row["statuses"]["same"] for row in done.json["counts"]] == [2, 2]
    broken(monkeypatch)
    done = refsim(f"{line} -x cpu")
    assert done.status == 1
    (first, *_) = done.json["failures"]
    assert "writes other bytes" in first["message"] and read_folder(first["folder"])


def test_without_dask_a_scheduler_is_missed(refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "find_spec", lambda name: None)
    refsim("sweep --scheduler local").refused("pip install 'refsim[sweep]'", status=3)
    assert refsim(f"sweep {UNARY.name} -n 3 --workers 1").status == 0


def test_an_interrupted_sweep_goes_on(refsim, monkeypatch, tmp_path: Path) -> None:
    """Two chunks of four are kept; the rest is computed by the second command, and nothing twice."""
    whole = shown.inside
    computed: list[Chunk] = []

    def interrupted(left) -> Iterator[list[Outcome]]:
        for number, found in enumerate(whole(left)):
            if number == 2:
                raise KeyboardInterrupt
            yield found

    def counted(left) -> Iterator[list[Outcome]]:
        computed.extend(left)
        return whole(left)

    db = tmp_path / "sweep.sqlite"
    command = ["sweep", UNARY.name, BINARY.name, "-n", 2 * SIZE + 4, "-x", "cpu", "--workers", 0, "--db", db]
    monkeypatch.setattr(shown, "inside", interrupted)
    done = refsim(*command)
    assert done.status == 130 and f"{2 * SIZE} of {2 * SIZE + 4} calls done" in done.err
    line = next(line for line in done.err.splitlines() if "; to go on: " in line)
    words = shlex.split(line.partition("; to go on: ")[2])
    assert words == ["refsim", *map(str, command), "--resume"]
    refsim(*command).refused("already exists")
    monkeypatch.setattr(shown, "inside", counted)
    done = refsim(*command, "--resume", "--json")
    assert done.status == 0
    assert [(row.subject, row.first, row.count) for row in computed] == [
        (UNARY.name, SIZE, 2),
        (BINARY.name, SIZE, 2),
    ]
    assert [row["statuses"]["same"] for row in done.json["counts"]] == [SIZE + 2, SIZE + 2]
    computed.clear()
    more = [*command[:-2], "-x", "cpu,cpu:emulated", "--db", db, "--resume"]
    assert refsim(*more).status == 0
    assert {row.variants for row in computed} == {(SweepVariant("cpu:emulated"),)}
    refsim(*more, "--seed", 1).refused("other seed")


def test_where_nothing_was_compared_the_reason_is_the_error(refsim, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(EmulatedExecutor, "supports", lambda self, launch: "not today")
        refsim(f"sweep {UNARY.name} -n 3 -x cpu:emulated --workers 0").refused("not today")
    only(monkeypatch, CanonicalOnly)
    done = refsim(f"sweep {UNARY.name} -n 2 -x gpu --workers 0 --profile lavapipe")
    done.refused("every call was refused; got the numerics of profile lavapipe")
    assert done.err.endswith("need --profile canonical\n")


def test_errors_in_every_call_are_failures_with_their_reason(refsim, monkeypatch, tmp_path: Path) -> None:
    """Not calls that nothing compared: the reason is what helps."""
    only(monkeypatch, Unbuilt)
    done = refsim(f"sweep {UNARY.name} -n 2 -x gpu --workers 0 --failures {tmp_path}/new")
    assert done.status == 1 and "0 calls compared, 2 failed" in done.out
    assert "q8ta_new: no built SPIR-V" in done.out


def test_a_bare_sweep_says_what_it_will_do(refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    monkeypatch.setattr(verb, "_sweep", lambda plan, *rest: ran.append(plan.total))
    assert refsim("sweep").err.startswith("sweep: 10000 random configurations of all operators")
    assert not refsim(f"sweep {UNARY.name}").err.startswith("sweep: ") and ran == [10_000, 10_000]
