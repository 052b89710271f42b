"""What threads share lies apart: a line of the cache that two of them write to would go back and forth between them."""

from __future__ import annotations

import pytest

from refsim.exec.cpu import wake

LINE = 64


@pytest.mark.parametrize("helpers", [1, 2, 3, 7, 31])
def test_words_of_helpers_lie_on_lines_of_their_own(helpers: int) -> None:
    for _ in range(20):  # wherever the memory comes from
        words = wake.words(helpers)
        assert words.ctypes.data % LINE == 0 and not words.any()
        assert words.nbytes >= 8 * (wake._HEAD + helpers * wake._WORDS)
    assert 8 * wake._HEAD % LINE == 0 == 8 * wake._WORDS % LINE
