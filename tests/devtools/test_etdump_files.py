"""ETDumps read without ExecuTorch: a run of its own runtime, and damaged ones."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from refsim.core.errors import FormatError, LimitError
from refsim.devtools.etdump_file import EtdumpRecording, read_etdump
from refsim.devtools.etdump_schema import (
    ETDUMP,
    DebugEvent,
    DumpedTensor,
    DumpedValue,
    DumpEvent,
    EtDump,
    ProfileEvent,
    Run,
)
from refsim.formats.flatbuffer.encode import encode

DATA = Path(__file__).parents[1] / "data" / "devtools"
X = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)


def test_a_run_of_the_runtime() -> None:
    read = read_etdump(DATA / "runtime.etdp", DATA / "runtime.bin")
    assert [run.name for run in read.dump.runs] == ["Default", "Execute"]
    (run,) = read.executions()
    held = read.arguments(run)
    calls = {e.profile.instruction for e in run.events if e.profile and e.profile.name == "DELEGATE_CALL"}
    first = min(calls)
    assert any(array is not None and np.array_equal(array, X) for array in held[first])
    assert any(array is not None and np.array_equal(array, 2 * X) for array in held[first])
    means = (2 * X).mean((2, 3)) + 1
    assert any(
        array is not None and np.array_equal(array, means) for values in held.values() for array in values
    )


def dump(tensor: DumpedTensor, runs: int = 1) -> EtDump:
    events = (
        DumpEvent(debug=DebugEvent(0, 4, DumpedValue(5, tensor))),
        DumpEvent(profile=ProfileEvent("Method::execute", -1, 0)),
        DumpEvent(debug=DebugEvent(2**64 - 1, 0, DumpedValue(5, tensor, is_output=True))),
    )
    return EtDump(0, (Run("Execute", events),) * runs)


def written(path: Path, content: EtDump, with_size: bool = True) -> Path:
    data = encode(content, ETDUMP)
    path.write_bytes(struct.pack("<I", len(data)) * with_size + data)
    return path


@pytest.mark.parametrize("with_size", [True, False])
@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2)])
def test_strides(tmp_path: Path, axes: tuple[int, ...], with_size: bool) -> None:
    laid = np.ascontiguousarray(X.transpose(axes))
    back = laid.transpose(np.argsort(axes))
    strides = tuple(step // 4 for step in back.strides)
    tensor = DumpedTensor(6, back.shape, strides, 8)
    path = written(tmp_path / "a.etdp", dump(tensor), with_size)
    (tmp_path / "a.bin").write_bytes(bytes(8) + laid.tobytes())
    read = read_etdump(path, tmp_path / "a.bin")
    ((number, (array,)),) = read.arguments(read.executions()[0]).items()
    assert number == 4 and array is not None and np.array_equal(array, X)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"offset": 9}, "is not in the debug buffer.*--buffer"),
        ({"offset": -1}, "is not in the debug buffer"),
        ({"sizes": (2**40, 2**40)}, "is not in the debug buffer"),
        ({"sizes": (-1, 3)}, "bad sizes or strides"),
        ({"sizes": (3,)}, "bad sizes or strides"),
        ({"strides": (6, 1)}, "a tensor with gaps"),
        ({"strides": (0, 0)}, "a tensor with gaps"),
        ({"scalar_type": 99}, "a dtype that is not read"),
    ],
)
def test_tensors_that_are_refused(changes: dict[str, object], match: str) -> None:
    tensor = replace(DumpedTensor(6, (2, 3), (3, 1), 8), **changes)  # type: ignore[arg-type]
    read = EtdumpRecording("d", dump(tensor), memoryview(bytes(32)))
    with pytest.raises(FormatError, match=rf"^d: instruction 4: .*{match}"):
        read.arguments(read.executions()[0])


def test_files_that_are_refused(tmp_path: Path) -> None:
    tensor = DumpedTensor(6, (2,), (1,), 0)
    path = written(tmp_path / "a", dump(tensor))
    data = path.read_bytes()
    path.write_bytes(data[:-8])
    with pytest.raises(FormatError, match="cut short"):
        read_etdump(path)
    with pytest.raises(FormatError, match=r"not an ETDump; got a \.pte, need what ExecuTorch"):
        read_etdump(DATA / "net.pte")
    with pytest.raises(LimitError, match="too many runs"):
        read_etdump(written(tmp_path / "b", dump(tensor, 5000)))
