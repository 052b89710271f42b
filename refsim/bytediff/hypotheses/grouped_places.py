"""Where constants of groups, and of rows, are read instead: one number of an address is another one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def groups(blocks: int, size: int) -> Iterator[tuple[str, np.ndarray]]:
    """(how it is counted, the group of each block of four along K); ``size``: blocks of a group."""
    k, own = np.arange(blocks), np.arange(blocks) // size
    numbers = {
        "block % group": k % size, "block * group": k * size, "block + group": k + size, "block - group": k - size,
        "the block": k, "always 0": 0 * k, "the one behind": own + 1, "the one before": own - 1,
    }  # fmt: skip
    for other in dict.fromkeys((size + 1, size - 1, 2 * size, size // 2, 4 * size, size // 4)):
        if other > 0:
            numbers[f"groups of {other} blocks instead of {size}"] = k // other
    for what, found in numbers.items():
        if not np.array_equal(found, own):
            yield what, found


def lines(slow: np.ndarray, fast: np.ndarray, length: int, count: int) -> Iterator[tuple[str, np.ndarray]]:
    """(how, place) of a constant that stands at ``slow * length + fast``; ``count``: those that a line really has."""
    own = slow * length + fast
    others = (
        length + 1,
        length - 1,
        2 * length,
        length // 2,
        count,
        length + 4,
        length - 4,
        -length,
        0,
        1,
        length // 4 + 4,
    )
    for other in dict.fromkeys(others):
        if other != length:
            yield f"lines {other} apart instead of {length}", slow * other + fast
    yield "the line and the length of lines added", slow + length + fast
    yield "the length of lines taken from the line", slow - length + fast
    yield "the line divided by the length of lines", slow // max(length, 1) + fast
    yield "the place taken from that of the line", slow * length - fast
    yield "the line and the place multiplied", slow * length * fast
    yield "the line alone", slow + 0 * fast
    for by in (1, -1, 2, -2, 4, -4):
        yield f"{by:+d} away", own + by
    for by in (1, -1):
        yield f"{by:+d} line away", own + by * length
    for what, moved in (
        ("place // 4", fast // 4), ("4 * place", 4 * fast), ("place % 4", fast % 4), ("place // 4 * 4", fast // 4 * 4),
        ("2 * place", 2 * fast), ("place // 2", fast // 2), ("-place", -fast),
    ):  # fmt: skip
        yield f"{what} for the place in a line", slow * length + moved


def lane_places(rows: int, length: int, words: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(how, word, lane) of a byte of each of ``rows`` rows; lines of ``length`` rows, in words of four."""
    row = np.arange(rows)
    line, place = row // length, row % length
    own, lane = line * words, place % 4
    for other in dict.fromkeys((words + 1, words - 1, 2 * words, words // 2, 0, 1, length)):
        if other != words:
            yield f"lines {other} words apart instead of {words}", line * other + place // 4, lane
    for other in dict.fromkeys((length + 1, length - 1, 2 * length, length // 2, words)):
        if other not in (0, length):
            yield f"lines of {other} rows instead of {length}", row // other * words + row % length // 4, lane
            yield f"rows counted in lines of {other}", line * words + row % other // 4, row % other % 4
    for what, word in (
        ("place // 2", place // 2), ("place // 3", place // 3), ("place // 5", place // 5), ("place // 8", place // 8),
        ("place * 4", place * 4), ("place % 4", place % 4), ("place", place), ("0", 0 * place),
        ("place // 4 + 1", place // 4 + 1), ("place // 4 - 1", place // 4 - 1), ("place // 4 + 4", place // 4 + 4),
    ):  # fmt: skip
        yield f"word {what} of a line", own + word, lane
    yield "the line and its length added", line + words + place // 4, lane
    yield "the word taken from that of the line", own - place // 4, lane
    for what, taken_from in (
        ("place % 2", place % 2), ("place % 3", place % 3), ("place % 5", place % 5), ("place % 8", place % 8),
        ("place // 4", place // 4), ("place", place), ("0", 0 * place), ("3 - place % 4", 3 - place % 4),
        ("place % 4 + 1", place % 4 + 1), ("1", 0 * place + 1), ("2", 0 * place + 2), ("3", 0 * place + 3),
    ):  # fmt: skip
        yield f"lane {what}", own + place // 4, taken_from
    swapped = row % length * words + row // length // 4
    yield "line and place exchanged", swapped, row // length % 4


def taken(flat: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The elements at places, 0 outside."""
    inside = (at >= 0) & (at < len(flat))
    found: np.ndarray = np.where(inside, flat[np.where(inside, at, 0)], 0).astype(flat.dtype)
    return found
