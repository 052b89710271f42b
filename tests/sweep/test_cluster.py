"""Sweeps on a dask cluster of this process: the same results, workers that lack an executor, workers that go."""

from __future__ import annotations

import contextlib
import socket
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from examples import UNARY

from refsim.core.errors import DeviceError, ParameterError
from refsim.sweep import cluster
from refsim.sweep.plan import SweepPlan, SweepVariant, shared
from refsim.sweep.result import inside

CPU, EMULATED = SweepVariant("cpu"), SweepVariant("cpu:emulated")


class Machines:
    """A client of a cluster whose workers have what is said of them."""

    def __init__(self, **has: tuple[SweepVariant, ...]) -> None:
        self.has, self.asked = has, []
        self.sources = cluster.sources()

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        return {"workers": {name: {"nthreads": 2} for name in self.has}}

    def run(self, function: object, variants: Any, brought: Any, workers: list[str]) -> dict[str, Any]:
        self.asked += workers
        return {
            name: (
                self.sources,
                {v: None if v in self.has[name] else DeviceError(str(v), "no device") for v in variants},
            )
            for name in workers
        }


def chunks(count: int = 600):
    return list(SweepPlan(shared(count, [UNARY.name]), {}, (CPU, EMULATED)).chunks())


def counts(found: Iterator[Any]) -> dict[Any, Any]:
    return {(one.first, one.variant): one.statuses for row in found for one in row}


@pytest.fixture
def dask() -> None:
    pytest.importorskip(
        "distributed", reason="dask.distributed is not installed; fix: pip install 'refsim[sweep]'"
    )


@pytest.mark.long
def test_a_local_cluster_gives_what_processes_give(dask: None) -> None:
    notes: list[str] = []
    ours = counts(cluster.local(chunks(), 1, notes.append))
    assert ours == counts(inside(chunks())) and not notes
    assert sum(status["same"] for status in ours.values()) == 1200


def test_a_local_cluster_takes_no_port_that_others_have(dask: None) -> None:
    """Dask has a warning for the one where it shows its own pages, which a sweep has none of."""
    with socket.socket() as taken, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with contextlib.suppress(OSError):  # somebody else has it: as good
            taken.bind(("", 8787))
            taken.listen()
        counts(cluster.local(chunks(2), 1, lambda note: None))
    assert [str(one.message) for one in said if "in use" in str(one.message)] == []


def test_a_chunk_goes_to_those_that_have_the_executor() -> None:
    notes: list[str] = []
    crowd = cluster.Crowd(Machines(a=(CPU,), b=(CPU, EMULATED), c=(CPU,)), (CPU, EMULATED), notes.append)
    crowd.look()
    (chunk, *_) = chunks()
    assert [(part.variants, able) for part, able in crowd.parts(chunk)] == [
        ((CPU,), ["a", "b", "c"]),
        ((EMULATED,), ["b"]),
    ]
    assert notes == [f"{name} has no cpu:emulated: cpu:emulated: no device" for name in "ac"]
    assert crowd.threads == 6


def test_workers_come_and_go() -> None:
    machines = Machines(a=(CPU,), b=(EMULATED,))
    crowd = cluster.Crowd(machines, (CPU, EMULATED), lambda line: None)
    crowd.look()
    del machines.has["b"]
    crowd.look()
    (chunk, *_) = chunks()
    with pytest.raises(DeviceError, match="no device"):
        list(crowd.parts(chunk))
    machines.has["c"] = (CPU, EMULATED)
    crowd.look()
    assert machines.asked == ["a", "b", "c"]
    assert [able for _, able in crowd.parts(chunk)] == [["a", "c"], ["c"]]


def test_a_worker_with_other_sources_is_refused() -> None:
    machines = Machines(a=(CPU,))
    machines.sources = "0" * 64
    with pytest.raises(ParameterError, match="runs other sources"):
        cluster.Crowd(machines, (CPU,), lambda line: None).look()


def test_nobody_at_the_address(dask: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "WAIT_S", 1.0)
    with pytest.raises(DeviceError, match="no worker can be reached"):
        list(cluster.remote(chunks(), "tcp://127.0.0.1:9", lambda line: None))
