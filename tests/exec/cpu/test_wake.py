"""What threads share lies apart: a line of the cache that two of them write to would go back and forth between them."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from refsim.exec.cpu import NativeExecutor, thread_pool, wake
from refsim.golden import rules
from refsim.ops.base.binding import bind

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


@pytest.mark.parametrize("helpers", [1, 2, 5])
def test_where_threads_look_is_where_the_words_are(helpers: int) -> None:
    """After a run each word holds what its name says, and nothing lies between them."""
    pool = thread_pool._pool(helpers)
    bound = bind(rules.case("q8ta_add", 0))
    executor = NativeExecutor(helpers + 1)
    for _ in range(2):
        assert executor.run_call(bound.call, bound.inputs) == bound.call.expected(bound.inputs)
    runs = pool._runs
    pool.run(
        table := _nothing().ctypes.data, 0, shared := _nothing().ctypes.data, scratch := _scratch(helpers)
    )
    count = wake._HEAD + helpers * wake._WORDS
    words = np.ctypeslib.as_array(ctypes.cast(pool._words_at, ctypes.POINTER(ctypes.c_int64)), (count,))
    assert pool._runs == runs + 1
    head = {wake._TABLE: table, wake._COUNT: 0, wake._SHARED: shared, wake._SCRATCH: scratch}
    head |= {wake._LOOKS: words[wake._LOOKS], wake._FINISHED: helpers}
    assert words[wake._LOOKS] in (wake.LOOKS, wake.LOOKS // 10)
    assert words[: wake._HEAD].tolist() == [head.get(n, 0) for n in range(wake._HEAD)]
    for helper in range(helpers):
        row = words[wake._HEAD + helper * wake._WORDS :][: wake._WORDS]
        assert row[wake._RUN] == runs + 1 and row[wake._SLEEPS] in (0, 1)
        assert not row[wake._SLEEPS + 1 :].any()


_KEPT: list[np.ndarray] = []


def _nothing() -> np.ndarray:
    """Words that stay where they are, all of them 0."""
    _KEPT.append(np.zeros(4096, np.int64))
    return _KEPT[-1]


def _scratch(helpers: int) -> int:
    """The addresses of the threads' scratch."""
    found = _nothing()
    found[: helpers + 1] = [_nothing().ctypes.data for _ in range(helpers + 1)]
    return int(found.ctypes.data)
