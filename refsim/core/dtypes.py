"""The element types of every format in one table: NumPy's and torch's names, codes of delegates, codes of programs.

A delegate (``VK00``) and the program around it (``ET12``) number and name the types differently, and each has some
that the other lacks. Everything that reads or writes either derives its view from these rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from refsim.core.errors import UnsupportedError


@dataclass(frozen=True)
class Dtype:
    """One element type. ``nbytes`` is 0 for types without whole bytes.

    ``delegate`` is the code in VkTensor.datatype, ``program`` code and name in Tensor.scalar_type; None where the
    format has no such type. ``computed``: NumPy and torch know it by ``name``, and refsim computes with it.
    """

    name: str
    nbytes: int
    delegate: int | None = None
    program: tuple[int, str] | None = None
    computed: bool = True

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """NumPy's type; UnsupportedError for one that nothing is computed with."""
        if not self.computed:
            known = ", ".join(row.name for row in DTYPES if row.computed)
            raise UnsupportedError("element type", "nothing is computed with it", got=self.name, need=known)
        return np.dtype(self.name)


DTYPES: tuple[Dtype, ...] = (
    Dtype("bool", 1, 0, (11, "BOOL")),
    Dtype("uint8", 1, 1, (0, "BYTE")),
    Dtype("int8", 1, 2, (1, "CHAR")),
    Dtype("int16", 2, None, (2, "SHORT")),
    Dtype("int32", 4, 3, (3, "INT")),
    Dtype("int64", 8, 7, (4, "LONG")),
    Dtype("float16", 2, 4, (5, "HALF")),
    Dtype("float32", 4, 5, (6, "FLOAT")),
    Dtype("float64", 8, 6, (7, "DOUBLE")),
    # files may carry these; nothing is computed with them
    Dtype("unset", 0, 127, None, False),
    Dtype("qint8", 1, None, (12, "QINT8"), False),
    Dtype("quint8", 1, None, (13, "QUINT8"), False),
    Dtype("qint32", 4, None, (14, "QINT32"), False),
    Dtype("bfloat16", 2, None, (15, "BFLOAT16"), False),
    Dtype("quint4x2", 0, None, (16, "QUINT4X2"), False),
    Dtype("quint2x4", 0, None, (17, "QUINT2X4"), False),
    Dtype("bits16", 2, None, (22, "BITS16"), False),
    Dtype("float8_e5m2", 1, None, (23, "FLOAT8E5M2"), False),
    Dtype("float8_e4m3fn", 1, None, (24, "FLOAT8E4M3FN"), False),
    Dtype("float8_e5m2fnuz", 1, None, (25, "FLOAT8E5M2FNUZ"), False),
    Dtype("float8_e4m3fnuz", 1, None, (26, "FLOAT8E4M3FNUZ"), False),
    Dtype("uint16", 2, None, (27, "UINT16"), False),
    Dtype("uint32", 4, None, (28, "UINT32"), False),
    Dtype("uint64", 8, None, (29, "UINT64"), False),
)

BY_NAME = {row.name: row for row in DTYPES}
#: VkTensor.datatype -> row.
BY_DELEGATE_CODE = {row.delegate: row for row in DTYPES if row.delegate is not None}
#: Tensor.scalar_type -> row.
BY_PROGRAM_CODE = {row.program[0]: row for row in DTYPES if row.program is not None}


def name_of(dtype: object) -> str:
    """The name of a NumPy or torch dtype: ``float32`` of ``torch.float32``."""
    return str(dtype).removeprefix("torch.")
