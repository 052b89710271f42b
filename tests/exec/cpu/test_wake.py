"""What threads share lies apart: a line of the cache that two of them write to would go back and forth between them."""

from __future__ import annotations

import numpy as np
import pytest

from refsim.exec.cpu import wake

LINE = 64


@pytest.mark.parametrize("helpers", [1, 2, 3, 7, 31])
def test_words_of_helpers_lie_on_lines_of_their_own(helpers: int) -> None:
    for _ in range(20):  # wherever the memory comes from
        words = wake.words(helpers, 8)
        assert words.ctypes.data % LINE == 0
        assert words.nbytes >= 8 * (wake._HEAD + helpers * wake._WORDS)
        assert np.flatnonzero(words).tolist() == [wake._LOOKS]
    assert 8 * wake._HEAD % LINE == 0 == 8 * wake._WORDS % LINE


def test_helpers_look_longer_where_each_has_a_processor() -> None:
    for helpers, processors, looks in (
        (1, 2, wake.LOOKS),
        (2, 2, wake.LOOKS // 10),
        (7, 8, wake.LOOKS),
        (8, 8, 500),
    ):
        assert wake.words(helpers, processors)[wake._LOOKS] == looks
