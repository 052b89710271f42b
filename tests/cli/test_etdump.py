"""`refsim etdump`: recorded calls of delegates against the right bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from refsim.core.errors import MissingDependencyError, ParameterError
from refsim.devtools.etdump_file import read_etdump
from refsim.devtools.etdump_schema import ETDUMP
from refsim.devtools.inspector import inspector_comparator
from refsim.formats.flatbuffer.encode import encode

NET = Path(__file__).parents[1] / "data" / "devtools"
FILE, DUMP, BUFFER = NET / "net.pte", NET / "net.etdp", NET / "net.bin"


def added(path: Path, more: float, element: int, instruction: int, sizes: tuple[int, ...]) -> Path:
    """The debug buffer with more in one element of the last tensor that an instruction gave."""
    (run,) = read_etdump(DUMP, BUFFER).executions()
    found = [event.debug for event in run.events if event.debug and event.debug.instruction == instruction]
    tensor = [one.value.tensor for one in found if one.value and not one.value.is_output][-1]
    assert tensor is not None and tensor.sizes == sizes
    raw = np.frombuffer(BUFFER.read_bytes(), np.float32).copy()
    raw[tensor.offset // 4 + element] += np.float32(more)
    raw.tofile(path)
    return path


def test_a_right_run(refsim) -> None:
    done = refsim(f"etdump {FILE} {DUMP} --buffer {BUFFER}")
    assert done.status == 0 and "2 outputs of delegates, 522 elements: 0 differ" in done.out
    content = refsim(f"etdump {FILE} {DUMP} --buffer {BUFFER} --json").json
    assert content["same"]
    assert [row["value"] for row in content["calls"]] == ["delegate0_v77", "delegate1_v19"]
    assert [(row["instruction"], row["steps"]) for row in content["calls"]] == [(0, None), (2, 0)]


def test_a_wrong_delegate(refsim, tmp_path: Path) -> None:
    wrong = added(tmp_path / "wrong.bin", 0.25, 137, 0, (1, 8, 8, 8))
    done = refsim(f"etdump {FILE} {DUMP} --buffer {wrong} --origin {NET}/net.etrecord")
    assert done.status == 1 and "522 elements: 1 differ" in done.out
    first = "first that differs in run 0, delegate0_v77: element 0,2,1,1"
    assert f"{first}\nmade by: net.py:30 in forward" in done.out
    first, second = refsim(f"etdump {FILE} {DUMP} --buffer {wrong} --json").json["calls"]
    assert (first["differing"], first["first"]) == (1, [0, 2, 1, 1])
    assert first["largest"] == pytest.approx(0.25, abs=1e-6) and second["differing"] == 0


def test_steps(refsim, tmp_path: Path) -> None:
    added(tmp_path / "w.bin", 5 * 0.0024581081726971796, 3, 2, (1, 10))
    row = refsim(f"etdump {FILE} {DUMP} --buffer {tmp_path}/w.bin --json").json["calls"][1]
    assert (row["differing"], row["steps"], row["first"]) == (1, 5, [0, 3])


def test_refusals(refsim, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refsim(f"etdump {FILE} {DUMP}").refused(f"a file of its own, --buffer; did you mean {BUFFER}?\n")
    monkeypatch.chdir(tmp_path)  # whose name is long
    short, some = Path("short.bin"), Path("some.etdp")
    short.write_bytes(bytes(9)), some.write_bytes(DUMP.read_bytes())
    done = refsim(f"etdump {FILE} {some} --buffer {short}")
    done.refused(f"need as many bytes as the runtime wrote: {short} has 9\n")
    for name in ("a.bin", "b.raw"):
        Path(name).write_bytes(BUFFER.read_bytes())
    done = refsim(f"etdump {FILE} {some} --buffer {short}")
    done.refused("; did you mean one of a.bin, b.raw?\n")
    done = refsim(f"etdump {FILE} {NET}/runtime.etdp --buffer {NET}/runtime.bin")
    done.refused("not the arguments of this")
    done = refsim(f"etdump {models}/mixed_ops.pte {DUMP} --buffer {BUFFER}")
    done.refused("not the arguments of this delegate")
    refsim(f"etdump {FILE} {FILE}").refused("not an ETDump; got a .pte, need what")


def test_a_call_that_was_not_recorded(refsim, tmp_path: Path) -> None:
    whole = read_etdump(DUMP).dump
    loading, run = whole.runs
    kept = tuple(event for event in run.events if event.debug is None or event.debug.instruction != 2)
    part = tmp_path / "part.etdp"
    part.write_bytes(encode(replace(whole, runs=(loading, replace(run, events=kept))), ETDUMP))
    given = f"etdump {FILE} {part} --buffer {BUFFER}"
    done = refsim(given)
    assert done.status == 2 and "got 1 of 2; delegate1_v19 not compared" in done.err
    assert refsim(f"{given} --json").json["not_compared"] == ["delegate1_v19"]
    assert refsim(f"{given} --partial").status == 0


def test_the_comparator_without_executorch(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ParameterError, match="need differing, steps, largest"):
        inspector_comparator(FILE, "mean")
    monkeypatch.setattr("refsim.devtools.inspector.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="ExecuTorch is not installed"):
        inspector_comparator(FILE)
