"""Whatever the bytes of a device are, the diff of a golden case describes them: it never fails, and it counts right."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refsim.bytediff import diff
from refsim.bytediff.html import render
from refsim.core.buffer import PackedBuffer
from refsim.golden.store import Corpus, default_root
from refsim.ops.base.binding import BoundCase, bind

CORPUS = Corpus(default_root())
MOST_BYTES = 3000
#: What takes the place of some cells, bytes or words: of all cells, of the numbers of those, and of a number.
WAYS: dict[str, Callable[[np.ndarray, np.ndarray, int], object]] = {
    "value": lambda held, at, value: value,
    "add": lambda held, at, value: held[at] + value,
    "xor": lambda held, at, value: held[at] ^ value,
    "roll": lambda held, at, value: np.roll(held[at], value),
    "turn": lambda held, at, value: held[at[::-1]],
    "moved": lambda held, at, value: np.take(held, at - value, mode="wrap"),
    "random": lambda held, at, value: np.frombuffer(
        np.random.default_rng(value).bytes(held[at].nbytes), held.dtype
    ),
    "mixed": lambda held, at, value: np.random.default_rng(value).permutation(held[at]),
    "mapped": lambda held, at, value: np.random.default_rng(value).permutation(256)[held[at] & 255],
    "lanes": lambda held, at, value: held[at].byteswap(),
}
#: Numbers that are hard for a byte, and for a float.
HARD = (0, 1, 127, 128, 255, 0x7F800000, 0xFF800000, 0x7FC00001, 0x80000000, 0x7F7FFFFF)


@cache
def small(op: str) -> list[BoundCase]:
    """Every so many-th case of an operator, but for large ones."""
    every = [bind(entry.case) for entry in list(CORPUS.entries(op))[5::97]]
    sizes = [one.call.out.nbytes + sum(x.desc.nbytes for x in one.inputs.values()) for one in every]
    return [one for one, size in zip(every, sizes, strict=True) if size <= MOST_BYTES]


def corrupted(draw: st.DataObject, raw: np.ndarray) -> np.ndarray:
    """Other bytes of the same number: a few wrong, whole regions, words or lanes moved, values mapped, or all."""
    made = raw.copy()
    for _ in range(draw.draw(st.integers(1, 3), label="changes")):
        held = made.view(draw.draw(st.sampled_from((np.uint8, np.uint32)), label="cells"))
        start = draw.draw(st.integers(0, len(held) - 1), label="start")
        stop = draw.draw(st.integers(start, len(held)), label="stop")
        at = np.arange(start, stop, draw.draw(st.sampled_from((1, 1, 2, 3, 4, 7, 16)), label="step"))
        way = draw.draw(st.sampled_from(tuple(WAYS)), label="way")
        value = draw.draw(st.sampled_from(HARD) | st.integers(0, 255), label="value")
        held[at] = WAYS[way](held, at, value & int(np.iinfo(held.dtype).max))
    return made


def check(draw: st.DataObject, bound: BoundCase) -> None:
    expected, out = bound.call.expected(bound.inputs), bound.call.out
    raw = corrupted(draw, expected.raw)
    ways = (
        {}, {"device": True}, {"profile": "nvidia"}, {"others": {"o": raw[::-1].copy()}}, {"limit": 0},
        {"previous": bound},
    )  # fmt: skip
    keywords = draw.draw(st.sampled_from(ways), label="keywords")
    actual = PackedBuffer.from_raw(raw, out.shape, out.layout, out.dtype)
    report = diff(expected, actual, call=bound, **keywords)
    assert str(report) and report.as_json() and render(report)
    if not keywords.get("device"):
        assert (report.differing == 0) == np.array_equal(raw, expected.raw)


@pytest.mark.few(2)
@pytest.mark.parametrize("op", CORPUS.operators())
@settings(max_examples=8)
@given(st.data())
def test_any_bytes_of_any_case(op: str, draw: st.DataObject) -> None:
    check(draw, draw.draw(st.sampled_from(small(op)), label="case"))


@pytest.mark.long
@settings(max_examples=40)
@given(st.data())
def test_pixel_shuffle_by_one(draw: st.DataObject) -> None:
    """The factor 1 is a number of pixels, and no scale that could be taken as its inverse."""
    entries = [e for e in CORPUS.entries("q8ta_pixel_shuffle") if e.case.params["upscale"] == 1]
    check(draw, bind(draw.draw(st.sampled_from(entries[:40]), label="case").case))
