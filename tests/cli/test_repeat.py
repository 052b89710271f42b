"""refsim repeat: the text, the JSON and the statuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from refsim.exec.emulated import EmulatedExecutor
from refsim.exec.model import Model

MODELS = Path(__file__).parents[1] / "data" / "models"
MIXED = f"repeat {MODELS}/mixed_ops.pte -i {MODELS}/mixed_ops.io.npz"
DEPTHWISE = "q8ta_conv2d_dw"


@pytest.fixture
def flaky(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the second run, and in each fifth one from there, a channel of the depthwise convolution is wrong."""
    honest, calls = EmulatedExecutor.run_prepared, [0]

    def run_prepared(self, prepared, inputs):
        out = honest(self, prepared, inputs)
        if prepared.call.op.name == DEPTHWISE:
            if calls[0] % 5 == 1:
                array = out.unpack()
                array[:, 3] ^= 0x40
                out.raw[:] = type(out).pack(array, out.desc.layout).raw
            calls[0] += 1
        return out

    monkeypatch.setattr(EmulatedExecutor, "run_prepared", run_prepared)


def test_a_model_that_repeats_itself(refsim) -> None:
    done = refsim(f"{MIXED} -n 3")
    assert done.status == 0 and done.err == ""
    assert done.out.splitlines()[-1] == "3 runs on cpu: the same bytes in all of them"
    content = refsim(f"{MIXED} -n 2 -x cpu --threads 2 --json").json
    assert content["same"] is True and content["first"] is content["report"] is None
    assert (content["runs"], content["results"]) == (2, [2])
    assert content["outputs"] == [{"output": "out0", "distinct": 1}]
    assert {row["distinct"] for row in content["buffers"]} == {1}


def test_a_channel_that_flips(flaky, tmp_path: Path, refsim) -> None:
    done = refsim(f"{MIXED} -x cpu:emulated -n 6 --html {tmp_path}/page.html")
    assert done.status == 1 and done.err.startswith("rerun: refsim repeat")
    lines = [line.strip() for line in done.out.splitlines()]
    assert "6 runs on cpu:emulated: 2 distinct results, 2 of the outputs" in lines
    assert f"first: node 2 {DEPTHWISE}, delegate0_v46: 2 distinct results (runs: 5, 1)" in lines
    assert "256 of 4096 elements flip" in lines and "only c = 3" in lines
    assert "in 1 of 16 channels: 256 of the 256 elements there" in lines
    assert "result 1, in 5 of 6 runs, first in run 0: right" in lines
    assert "result 2, in 1 of 6 runs, first in run 1: wrong, 256 cells" in lines
    assert "256 bytes differ" in done.out and "delegate0_v46" in (tmp_path / "page.html").read_text()


def test_the_same_as_json(flaky, refsim) -> None:
    done = refsim(f"{MIXED} -x cpu:emulated -n 6 --json")
    content = done.json
    assert done.status == 1 and content["same"] is False and content["results"] == [5, 1]
    first = content["first"]
    assert (first["operator"], first["value"], first["counts"]) == (DEPTHWISE, "delegate0_v46", [5, 1])
    assert first["examples"] == [{"runs": 5, "first_run": 0}, {"runs": 1, "first_run": 1}]
    judgement = first["judgement"]
    assert judgement["right"] == [0] and [v["verdict"] for v in judgement["versions"]] == ["right", "wrong"]
    assert judgement["region"] == {"name": "channels", "touched": 1, "of": 16, "errors": 256, "elements": 256}
    assert content["report"]["differing"] == 256
    assert [row["distinct"] for row in content["buffers"]][:4] == [1, 1, 1, 2]


def test_an_output_that_no_delegate_gives(refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    honest, calls = Model.run, [0]

    def run(self, *arguments):
        outputs = honest(self, *arguments)
        calls[0] += 1
        return [array + np.float32(calls[0] == 2) for array in outputs]

    monkeypatch.setattr(Model, "run", run)
    done = refsim(f"{MIXED} -n 3")
    assert done.status == 1
    assert "first: output of the model, out0: 2 distinct results (runs: 2, 1)" in done.out
