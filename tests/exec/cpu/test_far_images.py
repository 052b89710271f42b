"""Images as far apart as the largest buffer allows: no index, stride or address is too narrow for them.

Such a buffer takes 2 GiB of addresses, but hardly any memory: only the first and the last pages of it are touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from math import prod

import numpy as np
import pytest

from refsim.core import size_limit
from refsim.core.buffer import PackedBuffer
from refsim.core.layout import N
from refsim.core.tensor import MAX_BYTES, TensorDesc
from refsim.exec.factory import executor_named
from refsim.golden import rules
from refsim.ops.base.arg import Kind
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import OpSpec


class Far(TensorDesc):
    """A tensor of two images, the second of which ends where the largest buffer does."""

    @property
    def near(self) -> TensorDesc:
        return TensorDesc(self.shape, self.layout, self.dtype)

    @property
    def step(self) -> int:
        """Bytes from one image to the next."""
        return self.strides_whcn[N] * self.layout.block_numel * (1 if self.is_int8 else 4)

    @cached_property
    def strides_whcn(self) -> tuple[int, int, int, int]:
        near = self.near
        block = near.layout.block_numel * (1 if near.is_int8 else 4)
        w, h, c, _ = near.strides_whcn
        return (w, h, c, (MAX_BYTES - near.nbytes // 2) // block // 64 * 64)

    @cached_property
    def buffer_numel(self) -> int:
        return self.strides_whcn[N] * self.layout.block_numel + self.near.buffer_numel // 2


def far(desc: TensorDesc) -> Far:
    return Far(desc.shape, desc.layout, desc.dtype)


def images(buffer: PackedBuffer) -> list[np.ndarray]:
    """The bytes of both images."""
    desc = buffer.desc
    size = (desc.near if isinstance(desc, Far) else desc).nbytes // 2
    step = desc.step if isinstance(desc, Far) else size
    return [buffer.raw[at : at + size] for at in (0, step)]


def packed(op: OpSpec) -> bool:
    """Whether images of its tensors may lie anywhere; the rows of some float operators are one behind the other."""
    tensors = (*op.of_kind(Kind.INPUT), op.output)
    return (
        not op.one_row and any(row.packed_int8 for arg in tensors for row in arg.layouts) and op.min_rank != 2
    )


def small(op: str) -> Iterator[BoundCase]:
    """Its small cases of two images."""
    for number in range(rules.RULES[op].spread):
        case = rules.case(op, number)
        shapes = [shape for shape, _ in case.inputs.values()]
        if all(len(shape) == 4 and shape[0] == 2 for shape in shapes) and sum(map(prod, shapes)) < 3000:
            bound = bind(case)
            if bound.call.out.shape[:1] == (2,) and len(bound.call.out.shape) == 4:
                yield bound


CASES = {name: bound for name, op in OPS.items() if packed(op) and (bound := next(small(name), None))}


def test_most_operators_have_such_a_case() -> None:
    assert len(CASES) >= 14


@pytest.mark.parametrize("executor", ["cpu", "cpu:emulated"])
@pytest.mark.parametrize("op", CASES)
def test_the_last_image_is_right(op: str, executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(size_limit.VARIABLE, "4G")
    bound = CASES[op]
    descs = {name: far(desc) for name, desc in bound.call.descs.items()}
    call = replace(bound.call, descs=descs, out=far(bound.call.out))
    inputs = {name: PackedBuffer(desc) for name, desc in descs.items()}
    for name, buffer in inputs.items():
        for there, here in zip(images(buffer), images(bound.inputs[name]), strict=True):
            there[:] = here
    found = images(executor_named(executor).run_call(call, inputs))
    expected = images(bound.call.expected(bound.inputs))
    assert [np.array_equal(*pair) for pair in zip(found, expected, strict=True)] == [True, True]
