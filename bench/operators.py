"""Every operator's emulated kernel at the size of a real layer, against its NumPy definition and the native kernel.

python -m bench.operators
"""

from __future__ import annotations

import sys
from math import prod

from bench.harness import Bench, main
from refsim.exec.factory import executor_named
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS

#: Layers of ResNet-50 and MobileNetV2, and what surrounds them: each operator says its own.
CASES: tuple[Case, ...] = tuple(op.cases.bench for op in OPS.values())


class Data:
    """A bound case, prepared for the executor, and its logical inputs for the definition."""

    def __init__(self, case: Case) -> None:
        self.bound: BoundCase = bind(case)
        self.prepared = Prepared(self.bound.call)
        self.emulated, self.native = executor_named("cpu:emulated"), executor_named("cpu")
        self.arrays = {name: buffer.unpack() for name, buffer in self.bound.inputs.items()}


def kernel(data: Data) -> object:
    return data.emulated.run_prepared(data.prepared, data.bound.inputs)


def native(data: Data) -> object:
    return data.native.run_prepared(data.prepared, data.bound.inputs)


def definition(data: Data) -> object:
    return data.bound.call.define(data.arrays)


def work(data: Data) -> dict[str, float]:
    """Bytes read and written; multiply-adds where there are weights."""
    call = data.bound.call
    consts = [value for value in call.consts.values() if value is not None]
    moved = sum(b.desc.nbytes for b in data.bound.inputs.values()) + call.out.nbytes
    found = {"bytes": float(moved + sum(value.nbytes for value in consts))}
    weights = call.consts.get("weight")
    if weights is not None:
        found["macs"] = float(_macs(data, weights.size))
    return found


def _macs(data: Data, weights: int) -> int:
    """Every weight meets one element per place: of the output; of the input if the convolution is transposed."""
    call = data.bound.call
    desc = call.descs["x"] if call.op.transposed else call.out
    return weights * prod(desc.shape) // desc.shape[call.op.channel_dim]


def name_of(case: Case) -> str:
    ((shape, layout), *_) = case.inputs.values()
    size = "x".join(map(str, shape))
    out = f"->{case.features['out_channels']}" if "out_channels" in case.features else ""
    return f"{case.op} {size}{out} {layout}"


BENCHES = [
    Bench(
        name_of(case),
        lambda case=case: Data(case),
        kernel,
        {"definition": definition, "cpu": native},
        work,
        subject="cpu:emulated",
    )
    for case in CASES
]

if __name__ == "__main__":
    sys.exit(main("operators", BENCHES))
