"""python -m refsim_gpu.conformance: what keeps it from a device is one line; what is not built is one operator's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from examples import BINARY, UNARY

from refsim.core.buffer import PackedBuffer
from refsim.core.errors import MissingDependencyError, RefsimError
from refsim.exec.emulated import EmulatedExecutor
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call
from refsim_gpu import conformance
from refsim_gpu.kompute import Device


class HalfMade(EmulatedExecutor):
    """One operator has no SPIR-V."""

    def run_batch(
        self, work: Sequence[tuple[Call, Mapping[str, PackedBuffer]]]
    ) -> list[PackedBuffer | RefsimError]:
        if any(call.op is UNARY for call, _ in work):
            raise MissingDependencyError(UNARY.name, "no built SPIR-V")
        return super().run_batch(work)


def test_a_device_that_is_not_there_is_one_line(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    assert conformance.main(["99", "--random", "0"]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("refsim_gpu.conformance: ") and "no such device; got 99" in said.err
    assert said.err.count("\n") == 1


def test_an_operator_that_is_not_built_keeps_no_other_from_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    some = {op.name: OPS[op.name] for op in (UNARY, BINARY)}
    monkeypatch.setattr(conformance, "OPS", some)
    bare, whole = conformance.run(HalfMade(), 2, None, None)
    assert (bare.name, bare.failed) == (UNARY.name, [f"{UNARY.name}: no built SPIR-V"])
    assert whole.name == BINARY.name and whole.compared > 2 and not whole.failed
