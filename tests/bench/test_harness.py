"""The harness under a clock that the test winds: what is counted, how samples alternate, what is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import harness, layouts, operators
from refsim import OPS


class Clock:
    """Time that passes only when told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def __call__(self) -> float:
        return self.now

    def takes(self, name: str, seconds: float):
        def run(data: object) -> None:
            assert data == "data"
            self.log.append(name)
            self.now += seconds

        return run


def bench(clock: Clock) -> harness.Bench:
    return harness.Bench(
        "work",
        setup=lambda: "data",
        run=clock.takes("ours", 0.02),
        peers={"slow": clock.takes("slow", 0.06), "fast": clock.takes("fast", 0.001)},
        work={"bytes": 4e6},
    )


def test_ratios_are_peer_over_ours_and_samples_alternate() -> None:
    clock = Clock()
    outcome = harness.measure(bench(clock), rounds=3, clock=clock)
    assert outcome.timings["refsim"].median == pytest.approx(0.02)
    assert outcome.ratios["slow"].median == pytest.approx(3.0)
    assert outcome.ratios["fast"].median == pytest.approx(0.05)
    runs = []
    for name in clock.log[6:]:  # two calls of each before
        if not runs or runs[-1] != name:
            runs.append(name)
    assert runs == ["ours", "slow", "fast", "slow", "fast", "ours", "fast", "ours", "slow"]
    assert clock.log.count("fast") == 2 + 3 * 10  # short ones repeat until a sample lasts


def test_quartiles() -> None:
    assert harness.quartiles([3.0]) == (3.0, 3.0, 3.0)
    assert harness.quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (2.0, 3.0, 4.0)


def test_report_is_json_and_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    path = harness.report("suite", [harness.measure(bench(clock), 3, clock)], tmp_path)
    content = json.loads(path.read_text())
    assert content["suite"] == "suite" and {"cpu", "cpus", "python", "versions", "commit"} <= set(
        content["machine"]
    )
    (result,) = content["results"]
    assert result["rounds"] == 3 and result["ratios"]["slow"]["median"] == pytest.approx(3.0)
    title, head, row = capsys.readouterr().out.splitlines()
    assert title == "suite" and head.split()[:3] == ["benchmark", "ms", "spread"]
    assert row.split() == ["work", "20.000", "+-0%", "0.200", "3.000", "+-0%", "0.050", "+-0%"]


def test_command_measures_what_is_asked_for(tmp_path: Path) -> None:
    arguments = ["--rounds", "1", "--only", "pack 4C 1x67", "--out", str(tmp_path)]
    assert harness.main("layouts", layouts.BENCHES, arguments) == 0
    results = json.loads((tmp_path / "layouts.json").read_text())["results"]
    assert [r["name"] for r in results] == ["pack 4C 1x67x111x113", "unpack 4C 1x67x111x113"]
    assert all(r["ratios"]["np.copyto"]["median"] > 0 for r in results)
    with pytest.raises(SystemExit):
        harness.main("layouts", layouts.BENCHES, ["--only", "nonesuch"])


def test_every_operator_has_a_benchmark() -> None:
    assert {case.op for case in operators.CASES} == set(OPS)


def test_names_are_distinct() -> None:
    for suite in (layouts, operators):
        names = [b.name for b in suite.BENCHES]
        assert len(names) == len(set(names))
