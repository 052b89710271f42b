"""What operators say of themselves agrees with what they do."""

from __future__ import annotations

import numpy as np
import pytest
from examples import some

from refsim.core.layout import PACKED_4W
from refsim.core.qmath import CANONICAL, f32, requant
from refsim.ops.base.arg import Kind
from refsim.ops.base.binding import bind
from refsim.ops.base.conv import ConvParams
from refsim.ops.base.registry import OPS
from refsim.ops.base.traits import INTEGER_SUMS, QUANTIZERS, WINDOWED, Affine, Family

INT8_TO_INT8 = (Family.ELEMENTWISE, Family.SHUFFLE)
EACH = pytest.mark.parametrize("name", OPS)


@EACH
def test_the_family_fits_the_arguments(name: str) -> None:
    op = OPS[name]
    (x, *_) = op.of_kind(Kind.INPUT)
    assert issubclass(op.params, ConvParams) == (op.family in WINDOWED)
    floats = (Family.GROUP_LINEAR, Family.WEIGHT_ONLY, Family.LOOKUP)
    assert (op.cases.constants is not None) == (op.family in (*INTEGER_SUMS, *floats))
    # a linear operator may quantize its input in a step of its own
    first = op.family is Family.FLOAT_LINEAR and op.expand is not None
    assert op.takes_floats == (op.family in (*QUANTIZERS, Family.ROW_RANGE, *floats) or first)
    assert op.takes_floats == all(not row.packed_int8 for row in x.layouts)
    floats_out = (Family.DEQUANTIZE, Family.FLOAT_LINEAR, *floats)
    if op.family is not Family.ROW_RANGE:  # scales are floats, zero points int8
        assert all(row.packed_int8 for row in op.output.layouts) == (op.family not in floats_out)
    assert x.contiguous == (op.family is Family.STAGE_IN)
    assert op.output.contiguous == (op.family is Family.STAGE_OUT)
    assert all(arg.layouts == (PACKED_4W,) for arg in op.args if arg.contiguous)
    assert (op.channel_dim == -1) == (op.family in (Family.LINEAR, Family.FLOAT_LINEAR, *floats))


@EACH
def test_the_epilogue_is_said_where_a_sum_ends(name: str) -> None:
    op = OPS[name]
    assert (op.epilogue is not None) == (op.family in INTEGER_SUMS and not op.picks)
    assert not op.picks or op.expand is not None


@EACH
def test_arithmetic_as_stated(name: str) -> None:
    """``affine`` predicts what ``define`` gives, wherever each value has to go."""
    op = OPS[name]
    assert op.affine is None or op.family in INT8_TO_INT8
    for case in some(op) if op.affine is not None else ():
        bound = bind(case)
        arrays = {key: buffer.unpack() for key, buffer in bound.inputs.items()}
        assert op.affine is not None
        affine = op.affine(bound.call.params)
        values = next(iter(arrays.values())) if affine is None else computed(affine, list(arrays.values()))
        defined = bound.call.define(arrays)
        if op.family is Family.SHUFFLE:
            values, defined = np.sort(values, axis=None), np.sort(defined, axis=None)
        assert np.array_equal(values, defined), case


def computed(affine: Affine, arrays: list[np.ndarray]) -> np.ndarray:
    """The bytes that an `Affine` stands for, by its own words."""
    total = np.zeros(arrays[0].shape, np.float32)
    for term, q in zip(affine.terms, arrays, strict=True):
        total += np.float32(term.factor) * (f32(q.astype(np.int32) - term.zp) * np.float32(term.scale))
    total = np.maximum(total, np.float32(0.0)) if affine.relu else total
    return requant(total, affine.inv, affine.zp, CANONICAL.flags).astype(np.int8)  # type: ignore[no-any-return]
