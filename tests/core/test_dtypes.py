"""The table of element types: each code and name once, sizes as NumPy's, and torch's names."""

from __future__ import annotations

import numpy as np
import pytest

from refsim.core.dtypes import BY_DELEGATE_CODE, BY_NAME, BY_PROGRAM_CODE, DTYPES, name_of


def test_codes_and_names_are_there_once() -> None:
    assert len(BY_NAME) == len(DTYPES)
    assert len(BY_DELEGATE_CODE) == sum(row.delegate is not None for row in DTYPES)
    assert len(BY_PROGRAM_CODE) == sum(row.program is not None for row in DTYPES)
    assert len({row.program[1] for row in DTYPES if row.program}) == len(BY_PROGRAM_CODE)


@pytest.mark.parametrize("row", [row for row in DTYPES if row.computed], ids=lambda row: row.name)
def test_sizes_are_numpys(row) -> None:  # type: ignore[no-untyped-def]
    assert row.numpy.itemsize == row.nbytes and row.numpy.name == row.name == name_of(row.numpy)


def test_names_of_torch() -> None:
    torch = pytest.importorskip("torch")
    for row in DTYPES:
        if row.name != "unset" and hasattr(torch, row.name):
            assert name_of(getattr(torch, row.name)) == row.name
    assert name_of(np.dtype("float32")) == "float32"
