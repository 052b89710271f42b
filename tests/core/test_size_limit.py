"""One limit for everything whose size a file declares."""

import numpy as np
import pytest

from refsim.core import size_limit
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import LimitError, ParameterError
from refsim.core.rng import Rng
from refsim.core.tensor import TensorDesc


@pytest.mark.parametrize(
    ("text", "most"), [("", 1 << 30), ("4096", 4096), ("64M", 64 << 20), ("2g", 2 << 30), (" 8K ", 8192)]
)
def test_the_variable(monkeypatch: pytest.MonkeyPatch, text: str, most: int) -> None:
    monkeypatch.setenv(size_limit.VARIABLE, text)
    assert size_limit.most_bytes() == most
    size_limit.check("x", most)
    with pytest.raises(LimitError, match=f"x: .*got {most + 1} bytes, need <= {most}; {size_limit.VARIABLE}"):
        size_limit.check("x", most + 1)


@pytest.mark.parametrize("text", ["0", "-1", "1.5G", "many", "1T", "9" * 40])
def test_other_values(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(size_limit.VARIABLE, text)
    with pytest.raises(ParameterError, match="not a number of bytes"):
        size_limit.most_bytes()


def test_nothing_larger_is_allocated_or_drawn() -> None:
    """2 GB of buffer and 8 GB of random bits are refused at once; only their description is fine."""
    desc = TensorDesc((1, 1 << 31), "4W")  # type: ignore[arg-type]
    with pytest.raises(LimitError):
        PackedBuffer(desc)
    with pytest.raises(LimitError):
        Rng(0).ints(0, 1, (1 << 15, 1 << 15))
    assert np.all(Rng(0).ints(0, 0, (2, 3)) == 0)
