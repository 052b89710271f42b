"""Push words and specialization words: rows of names, their offsets, and what is packed by name."""

from __future__ import annotations

import numpy as np
import pytest

from refsim.core import index
from refsim.core.errors import LimitError, ParameterError, UnknownOperatorError
from refsim.core.layout import C, H, N, W
from refsim.core.push import (
    BOOL,
    FLOAT,
    HASHED,
    INT,
    LAUNCH,
    MAX_PUSH_WORDS,
    PAIR,
    TENSOR,
    UINT,
    VECTORS,
    FieldType,
    PushWords,
    SpecWords,
    flags,
    float32,
    hashed,
    int32,
    pair,
    tensor,
    uint32,
    vectors,
)
from refsim.core.tensor import TensorDesc
from refsim.ops.base.registry import OPS, kernel_of

OUT, X = TensorDesc((1, 4, 3, 5), "4C"), TensorDesc((2, 8, 3, 4), "4W4C")  # type: ignore[arg-type]
TENSORS = {"out": OUT, "x": X}
PUSH = PushWords(tensor("OUT"), pair("STRIDE"), float32("SCALE"), int32("ZP"), flags("FLAGS", RELU=256))
SPEC = SpecWords(hashed("OUT"), hashed("X"), uint32("R", 2), vectors("X"))
VALUES = {"STRIDE": (2, 3), "SCALE": np.float32(1.5), "ZP": -7, "FLAGS": 256}
KERNELS = [name for name, op in OPS.items() if op.kernel is not None]


def test_one_field_begins_where_the_last_one_ends() -> None:
    assert PUSH.at == {"OUT": 0, "STRIDE_H": 8, "STRIDE_W": 9, "SCALE": 10, "ZP": 11, "FLAGS": 12}
    assert PUSH.offsets == (0, 8, 9, 10, 11, 12)
    assert len(PUSH) == len(PUSH.names) == 13


def test_a_tensors_words_have_the_names_by_which_they_are_read() -> None:
    assert len(PUSH.fields[0].names) == index.META_WORDS
    for dim, letter in ((W, "W"), (H, "H"), (C, "C"), (N, "N")):
        assert PUSH.names[dim] == f"OUT_{letter}"
        assert PUSH.names[getattr(index, f"{letter}_STRIDE")] == f"OUT_{letter}_STRIDE"


def test_values_are_packed_by_name() -> None:
    backwards = dict(reversed(VALUES.items()))
    assert PUSH.pack(TENSORS, **VALUES) == (*OUT.meta, 2, 3, 0x3FC00000, (1 << 32) - 7, 256)
    assert PUSH.pack(TENSORS, **backwards) == PUSH.pack(TENSORS, **VALUES)
    assert SPEC.pack(TENSORS, R=3) == (OUT.hashed, X.hashed, 3, 1)


def test_constant_ids_come_behind_those_of_every_kernel() -> None:
    assert list(LAUNCH.ids.values()) == list(range(6))
    assert SPEC.ids == {"OUT_HASH": 6, "X_HASH": 7, "R": 8, "X_VECTORS": 9}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ZP": np.float32(1)}, "ZP: has the wrong type; got .*, need an integer of 32 bits"),
        ({"ZP": True}, "ZP: has the wrong type"),
        ({"ZP": 1 << 31}, "ZP: has the wrong type"),
        ({"SCALE": 1}, "SCALE: has the wrong type; got 1, need a floating point number"),
        ({"STRIDE": (1, 2, 3)}, "STRIDE: has the wrong type; got .*, need two integers, height and width"),
        ({"STRIDE": (1, 2.5)}, "STRIDE: has the wrong type"),
        ({"PADDING": 1}, "PADDING: no such word; need OUT_W, "),
        ({"OUT": OUT}, "OUT: no such word"),
    ],
)
def test_another_type_or_name_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        PUSH.pack(TENSORS, **VALUES | change)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ParameterError, match="SCALE: is missing; need a floating point number"):
        PUSH.pack(TENSORS, **{name: value for name, value in VALUES.items() if name != "SCALE"})
    with pytest.raises(ParameterError, match="OUT: is missing; need a tensor"):
        PUSH.pack({"x": X}, **VALUES)


def test_a_row_has_a_limit_and_no_name_twice() -> None:
    PushWords(*(int32(f"A{i}") for i in range(MAX_PUSH_WORDS)))
    with pytest.raises(LimitError, match="push words: too many; got 33, need <= 32"):
        PushWords(*(int32(f"A{i}") for i in range(MAX_PUSH_WORDS + 1)))
    with pytest.raises(ParameterError, match="two have one name"):
        PushWords(int32("A"), float32("A"))


@pytest.mark.parametrize("name", KERNELS)
def test_a_row_names_the_arguments(name: str) -> None:
    op, kernel = OPS[name], kernel_of(name)
    arguments = {arg.name for arg in op.args}
    fields = (*kernel.push.fields, *kernel.spec.fields)
    assert {each.argument for each in fields if each.argument} <= arguments
    packed = not op.output.plain and any(row.packed_int8 for row in op.output.layouts)
    assert "OUT" in kernel.push.at or not packed  # rows of plain values need no layout
    for row in (kernel.push, kernel.spec):
        assert len(set(row.names)) == len(row.names) == len(row)


def test_a_composite_has_no_kernel_and_says_so() -> None:
    composites = [name for name, op in OPS.items() if op.expand is not None]
    assert composites
    for name in composites:
        with pytest.raises(UnknownOperatorError):
            kernel_of(name)


#: A field's type, a value, and its words; None if it is of another type.
WORDS = (
    (INT, 2**31 - 1, (0x7FFFFFFF,)), (INT, 2**31, None), (INT, -(2**31), (0x80000000,)), (INT, -(2**31) - 1, None),
    (INT, np.int8(-1), (0xFFFFFFFF,)), (INT, 0, (0,)), (INT, True, None), (INT, 1.0, None),
    (UINT, 0, (0,)), (UINT, -1, None), (UINT, 2**32 - 1, (0xFFFFFFFF,)), (UINT, 2**32, None), (UINT, False, None),
    (UINT, np.uint8(7), (7,)), (UINT, 7.0, None),
    (FLOAT, 1.5, (0x3FC00000,)), (FLOAT, np.float32(-2), (0xC0000000,)), (FLOAT, 1, None), (FLOAT, True, None),
    (PAIR, (2, 3), (2, 3)), (PAIR, [4, -1], (4, 0xFFFFFFFF)), (PAIR, (1, 2, 3), None), (PAIR, (1,), None),
    (PAIR, (1, 2**31), None), (PAIR, (2.0, 1), None), (PAIR, 5, None),
    (BOOL, True, (1,)), (BOOL, False, (0,)), (BOOL, 1, None),
    (TENSOR, X, X.meta), (TENSOR, 3, None), (HASHED, X, (X.hashed,)), (HASHED, X.hashed, None),
    (VECTORS, X, (int(X.vectors),)), (VECTORS, True, None),
)  # fmt: skip


@pytest.mark.parametrize("kind, value, words", WORDS)
def test_words_of_a_value(kind: FieldType, value: object, words: tuple[int, ...] | None) -> None:
    assert kind.words(value) == words
