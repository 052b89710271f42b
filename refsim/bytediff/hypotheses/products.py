"""Which products of a sum were counted, and how often: inferred from the wrong bytes, then proved on all of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, distinct, hypothesis, once
from refsim.bytediff.hypotheses import response
from refsim.bytediff.rerun import (
    UNSIGNED,
    finished,
    has_weights,
    integer_sums,
    is_convolution,
    is_depthwise,
    logical_weight,
    products,
)
from refsim.core import choices

#: Sums of more groups of products than this are not taken apart, nor are larger outputs.
MOST_GROUPS, MOST_OUTPUTS = 27, 1 << 13
#: Wrong elements per unknown count, at least.
LEAST_EACH = 3


@hypothesis("products miscounted", needs_call=True)
def miscounted(ev: Evidence) -> Iterator[Prediction]:
    """Products of some taps or words of channels left out, counted again, or subtracted; or taps or lanes mixed up."""
    call = ev.call
    if not has_weights(ev):
        return
    if is_convolution(ev) and np.count_nonzero(ev.differing) >= LEAST_EACH:
        yield from response.solved(ev, _usable(ev))
    if call.out.numel > MOST_OUTPUTS:
        return
    yield Prediction("none is counted", finished(ev, np.zeros_like(integer_sums(ev))))
    if int(np.count_nonzero(ev.differing)) < LEAST_EACH:
        return
    weight = _weight(ev)
    yield from _squared(ev, weight)
    _, kh, kw, channels = weight.shape
    tap = np.arange(kh * kw).reshape(kh, kw, 1) + np.zeros((1, 1, channels), np.int64)
    word = np.zeros((kh, kw, 1), np.int64) + np.arange(channels) // 4
    lane = np.zeros((kh, kw, 1), np.int64) + np.arange(channels) % 4
    words = int(word.max()) + 1
    divisions = (
        ("tap", tap),
        ("word of channels", word),
        ("lane", lane),
        ("word of a tap", tap * words + word),
    )
    for name, numbers in divisions:
        count = int(numbers.max()) + 1
        if name == "word of a tap" and (words == 1 or kh * kw == 1):
            continue  # the same as one of those before
        if 2 <= count <= MOST_GROUPS and _observed(ev, count):
            parts = [weight * (numbers == k) for k in range(count)]
            yield from _counted(ev, name, [str(k) for k in range(count)], parts)
    if channels % 4 == 0 and not is_depthwise(ev) and _observed(ev, 16):
        lanes = weight.reshape(*weight.shape[:-1], -1, 4)
        names, parts = [], []
        for mine in range(4):
            for theirs in range(4):
                mixed = np.zeros_like(lanes)
                mixed[..., mine] = lanes[..., theirs]
                names.append(f"{mine} of x by lane {theirs} of the weights")
                parts.append(mixed.reshape(weight.shape))
        yield from _counted(ev, "lane", names, parts)


def _squared(ev: Evidence, weight: np.ndarray) -> Iterator[Prediction]:
    """Bytes of x, or of the weights, multiplied by themselves: of all lanes, or of one."""
    if is_depthwise(ev):
        return
    lane = np.arange(weight.shape[-1]) % 4
    zp = getattr(ev.call.params, "in_zp", 0) if is_convolution(ev) else 0
    square = np.square(ev.arrays["x"].astype(np.int64)) - zp * (
        zp - 1
    )  # a border that reads zp stands for its square
    spread = (-1, 1, 1) if ev.call.op.channel_dim == -3 else (-1,)
    for what, chosen in (("all lanes", lane >= 0), *((f"lane {k}", lane == k) for k in range(4))):
        if not chosen.any():
            continue
        mask = np.broadcast_to(chosen.astype(np.int64), weight.shape)
        left = integer_sums(ev) - products(ev, weight * mask)
        of_x = products(ev, mask, square) + zp * (zp - 1) * int(mask[0].sum())
        of_w = np.square(weight.astype(np.int64) * mask).reshape(len(weight), -1).sum(1).reshape(spread)
        yield Prediction(
            f"{what} of x multiplied by themselves, not by the weights", finished(ev, left + of_x)
        )
        yield Prediction(
            f"{what} of the weights multiplied by themselves, not by x", finished(ev, left + of_w)
        )


def _weight(ev: Evidence) -> np.ndarray:
    if is_convolution(ev):
        return logical_weight(ev)
    weight = ev.call.consts["weight"]
    assert weight is not None
    return weight[:, None, None, :]


@once
def _usable(ev: Evidence) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(places of wrong outputs that are neither saturated nor cut by a relu, how far each is off, its sum's unit)."""
    p, consts = ev.call.params, ev.call.consts
    scales = consts["weight_scales"]
    assert scales is not None
    spread = (-1, 1, 1) if ev.call.op.channel_dim == -3 else (-1,)
    unit = np.broadcast_to((scales * np.float32(p.in_scale)).reshape(spread), ev.call.out.shape).reshape(-1)
    wrong = ev.differing[ev.places].reshape(-1)
    if ev.desc.is_int8:
        got, want = (cells[ev.places].reshape(-1).astype(np.float64) for cells in (ev.got, ev.want))
        wrong &= (np.abs(got + 0.5) < 127) & (np.abs(want + 0.5) < 127)
        if getattr(p, "activation", "none") == "relu":
            wrong &= (got > p.out_zp) & (want > p.out_zp)
        off = (got - want) * np.float64(p.out_scale)
    else:
        with np.errstate(invalid="ignore"):  # signalling NaNs
            got, want = (
                np.ascontiguousarray(cells[ev.places].reshape(-1)).view(np.float32).astype(np.float64)
                for cells in (ev.got, ev.want)
            )
        wrong &= np.isfinite(got) & np.isfinite(want)
        off = got - want
    at = np.flatnonzero(wrong)
    at = at[:: max(1, len(at) // 1000)]
    return at, off[at], unit[at].astype(np.float64)


def _observed(ev: Evidence, count: int) -> bool:
    """Whether there are enough wrong outputs to tell so many numbers."""
    return len(_usable(ev)[0]) >= LEAST_EACH * count


def _counted(ev: Evidence, name: str, names: list[str], weights: list[np.ndarray]) -> Iterator[Prediction]:
    """How often the products of each of these weights must have been counted, if every wrong byte comes of that."""
    sums = [products(ev, weight) for weight in weights]
    yield from _solved(ev, name, names, sums)
    if not is_depthwise(ev):
        each = [weight.reshape(len(weight), -1).sum(1, dtype=np.int64) for weight in weights]
        spread = (-1, 1, 1) if ev.call.op.channel_dim == -3 else (-1,)
        more = [total + UNSIGNED * own.reshape(spread) for total, own in zip(sums, each, strict=True)]
        yield from _solved(ev, f"as unsigned bytes, {name}", names, more)


def _solved(ev: Evidence, name: str, names: list[str], parts: list[np.ndarray]) -> Iterator[Prediction]:
    at, off, unit = _usable(ev)
    matrix = np.stack([part.reshape(-1)[at] * unit for part in parts], axis=1)
    least = np.abs(matrix).max() or 1.0
    solved, *_ = np.linalg.lstsq(matrix / least, off / least, rcond=None)
    times = np.rint(np.nan_to_num(np.clip(solved, -99, 99))).astype(np.int64)
    if not times.any() or np.abs(times).max() > 4:
        return
    sums = integer_sums(ev) + sum(int(n) * part for n, part in zip(times, parts, strict=True))
    yield Prediction(_said(name, names, times), finished(ev, sums), True)


def _said(name: str, names: list[str], times: np.ndarray) -> str:
    said = []
    for change in distinct(times[times != 0]):
        where = np.flatnonzero(times == change)
        listed = choices.first([names[k] for k in where])
        how = {-1: "counted once less", 1: "counted once more"}.get(int(change), f"counted {change:+d} times")
        said.append(f"{name} {listed} {how}")
    return "; ".join(said)
