"""Which output channel's constants or weights each channel used: inferred from the wrong bytes, then proved on all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, distinct, hypothesis, once
from refsim.bytediff.hypotheses import grouped_channels, panels, strips
from refsim.bytediff.rerun import AS_UNSIGNED, UNSIGNED, finished, has_weights, integer_sums, quantized
from refsim.core import choices
from refsim.ops.base.epilogue import PER_CHANNEL

#: More channels than these are not searched; so many wrong positions vote.
MOST_CHANNELS, VOTERS = 48, 24
#: The share of a channel's wrong bytes that another channel must explain, and how many it must explain at least.
LEAST_SHARE, LEAST_CELLS = 0.9, 3
#: Outputs of more elements are not taken apart.
MOST_ELEMENTS = 1 << 15


@hypothesis("constants of other channels", needs_call=True)
def constants(ev: Evidence) -> Iterator[Prediction]:
    """Sums, scales or bias of other output channels, by whatever rule."""
    for rule, places in _by_rule(ev):
        known = {name: value for name in PER_CHANNEL if (value := ev.call.consts[name]) is not None}
        for names in (tuple(known), *((name,) for name in known)):
            changed = {name: known[name][places] for name in names}
            cells = finished(ev, integer_sums(ev), changed)
            yield Prediction(f"{', '.join(names)}: those of {rule}", cells)
    for part in (strips, panels):
        for what, cells in part.constants(ev):
            yield Prediction(what, cells)
    for what, places, cells in grouped_channels.constants(ev):
        yield Prediction(f"{what}: {_said(places)}", cells, inferred=True)
    votes = _Votes.of(ev)
    if votes is None:
        return
    held = {name: ev.call.consts[name] for name in PER_CHANNEL if ev.call.consts[name] is not None}
    for chosen in (tuple(held), *((name,) for name in held)):
        source = votes.best(
            [
                votes.made(votes.sums, {name: np.full_like(held[name], held[name][k]) for name in chosen})  # type: ignore[index]
                for k in range(votes.channels)
            ]
        )
        if source is not None:
            changed = {name: held[name][source] for name in chosen}  # type: ignore[index]
            said = f"{', '.join(chosen)}: {_said(source)}"
            yield Prediction(said, finished(ev, integer_sums(ev), changed), inferred=True)


def _by_rule(ev: Evidence) -> Iterator[tuple[str, np.ndarray]]:
    """(rule, channel -> another one); its own where there is no other. Needs no votes, so few positions will do."""
    if not has_weights(ev) or ev.call.out.numel > MOST_ELEMENTS:
        return
    count = ev.call.out.shape[ev.call.op.channel_dim]
    own, seen = np.arange(count), set[bytes]()
    rules = {
        "channel % 4": own % 4, "channel // 4": own // 4, "the first of its word": own // 4 * 4, "channel 0": 0 * own,
        "its word in reverse": own // 4 * 4 + 3 - own % 4, "channel + 1": own + 1, "channel - 1": own - 1,
        "channel + 4": own + 4, "channel - 4": own - 4, "2 * channel": 2 * own, "channel % 8": own % 8,
        "the last channel - channel": count - 1 - own,
    }  # fmt: skip
    for rule, source in rules.items():
        places = np.where((source >= 0) & (source < count), source, own)
        if not np.array_equal(places, own) and places.tobytes() not in seen:
            seen.add(places.tobytes())
            yield rule, places


@hypothesis("weights of other channels", needs_call=True)
def weights(ev: Evidence) -> Iterator[Prediction]:
    """Sums of products with the weights of other output channels, or of none that there is, by whatever rule."""
    for rule, places in _by_rule(ev):
        taken = np.take(integer_sums(ev), places, ev.call.op.channel_dim)
        yield Prediction(f"those of {rule}", finished(ev, taken))
    for places, cells in grouped_channels.weights(ev):
        yield Prediction(_said(places), cells, inferred=True)
    votes = _Votes.of(ev)
    if votes is None:
        return
    axis = ev.call.op.channel_dim
    weight_sums = ev.call.consts["weight_sums"]
    assert weight_sums is not None
    for what, more in (("", 0), (AS_UNSIGNED, UNSIGNED)):
        # products of unsigned bytes hold so much too much, which each channel takes off again by its own weights
        own = more * weight_sums.astype(np.int64)
        held = votes.sums + own.reshape((1, -1, 1, 1) if votes.axis == 1 else (-1,))
        rows = [np.take(held, [k], votes.axis) for k in range(votes.channels)]
        rows.append(0 * rows[0])  # beyond the last channel: kernels fill panels up with zeros
        source = votes.best([votes.made(row - (held - votes.sums), {}) for row in rows])
        if source is None:
            continue
        each = own.reshape((-1, 1, 1) if axis == -3 else (-1,))
        sums = integer_sums(ev) + each
        none = np.zeros_like(np.take(sums, [0], axis))
        taken = np.take(np.concatenate([sums, none], axis), source, axis) - each
        said = f"{_said(source)}{what}"
        yield Prediction(said, finished(ev, taken), inferred=True)


@hypothesis("sums off by a constant", needs_call=True)
def offsets(ev: Evidence) -> Iterator[Prediction]:
    """Each channel's sums are off by a number of its own: of weight sums, of a zero point, of a bias, of a first sum.

    The number is the same at all positions, or at all positions of a phase of the stride.
    """
    if not has_weights(ev) or ev.call.out.numel > MOST_ELEMENTS:
        return
    if not ev.desc.is_int8:
        yield from _first_sums(ev)
        return
    p, axis, acc, shape = ev.call.params, ev.call.op.channel_dim, integer_sums(ev), ev.call.out.shape
    spread = (-1, 1, 1) if axis == -3 else (-1,)
    sums, scales, bias = (ev.call.consts[name] for name in PER_CHANNEL)
    assert sums is not None and scales is not None
    step = (
        scales.astype(np.float64).reshape(spread) * p.in_scale / p.out_scale
    )  # of the output, for 1 of a sum
    place = (acc - np.int64(p.in_zp) * sums.reshape(spread)) * step
    place = place if bias is None else place + bias.astype(np.float64).reshape(spread) / p.out_scale
    got, want, wrong = (a[ev.places].reshape(shape) for a in (ev.got, ev.want, ev.differing))
    off = got.astype(np.float64) - p.out_zp - place.reshape(shape)
    low, high = (off - 0.5) / step, (off + 0.5) / step
    floor = p.out_zp if getattr(p, "activation", "none") == "relu" else -128
    low[(got <= floor) | (want >= 127)] = -np.inf  # what is cut off may have been any less, or any more
    high[(got >= 127) | (want <= floor)] = np.inf
    known = np.isfinite(low) & np.isfinite(high)
    if np.count_nonzero(wrong & known) < LEAST_CELLS:
        return
    for what, classes in _classes(ev, shape, axis):
        count = int(classes.max()) + 1
        least, most = np.full(count, -np.inf), np.full(count, np.inf)
        np.maximum.at(least, classes, low)
        np.minimum.at(most, classes, high)
        seen = np.bincount(classes[known], minlength=count) >= LEAST_CELLS
        fits = (np.ceil(least) <= np.floor(most) + 1) & seen & np.isfinite(least) & np.isfinite(most)
        found = np.zeros(count, np.int64)
        found[fits] = np.rint((least[fits] + most[fits]) / 2).astype(np.int64)
        found[(least < 0) & (most > 0)] = 0  # right as it is
        if found.any():
            numbers = choices.first([f"{n:+d}" for n in found[found != 0]])
            detail = f"each {what} has its own: {numbers}"
            yield Prediction(detail, finished(ev, acc + found[classes].reshape(acc.shape)), inferred=True)


def _first_sums(ev: Evidence) -> Iterator[Prediction]:
    """Sums that become floats: all begin at one number, told by the floats as closely as they are rounded."""
    scales = ev.call.consts["weight_scales"]
    assert scales is not None
    step = (scales * np.float32(ev.call.params.in_scale)).astype(np.float64)
    with np.errstate(all="ignore"):  # bytes of a wrong kernel may be no numbers
        got, want = (
            np.ascontiguousarray(a[ev.places]).view(np.float32).reshape(ev.call.out.shape).astype(np.float64)
            for a in (ev.got, ev.want)
        )
        off = ((got - want) / step)[got != want]
    off = off[np.isfinite(off)]
    if not off.size:
        return
    about = int(np.rint(np.clip(np.median(off), -(1 << 40), 1 << 40)))
    byte = (about + (1 << 23)) >> 24 & 255  # of a word whose four bytes are the same
    for number in dict.fromkeys((about, about + 1, about - 1, byte * 0x01010101)):
        if number:
            yield Prediction(f"every sum begins at {number}", finished(ev, integer_sums(ev) + number), True)


def _classes(ev: Evidence, shape: tuple[int, ...], axis: int) -> Iterator[tuple[str, np.ndarray]]:
    """What has a number of its own: int64 like the output."""
    channel = np.broadcast_to(np.arange(shape[axis]).reshape((-1, 1, 1) if axis == -3 else (-1,)), shape)
    yield "channel", channel
    if axis == -3:
        for stride in dict.fromkeys((getattr(ev.call.params, "stride", (2, 2)), (2, 2), (4, 4))):
            rows, columns = (np.arange(size) % s for size, s in zip(shape[-2:], stride, strict=True))
            phases = stride[0] * stride[1]
            numbers = channel * phases + rows[:, None] * stride[1] + columns
            yield f"channel at each phase of {stride[0]} x {stride[1]}", numbers


class _Votes:
    """Sums and bytes of the positions with most wrong bytes: (positions, channels), or (1, channels, 1, positions)."""

    def __init__(self, ev: Evidence, sums: np.ndarray, got: np.ndarray, wrong: np.ndarray, axis: int) -> None:
        self.ev, self.sums, self.got, self.wrong, self.axis = ev, sums, got, wrong, axis
        self.channels = sums.shape[axis]

    @staticmethod
    @once
    def of(ev: Evidence) -> _Votes | None:
        if not has_weights(ev):
            return None
        sums, axis = integer_sums(ev), ev.call.op.channel_dim
        channels = sums.shape[axis]
        if not 2 <= channels <= MOST_CHANNELS:
            return None
        shape = ev.call.out.shape
        got, wrong = (np.moveaxis(a[ev.places].reshape(shape), axis, -1) for a in (ev.got, ev.differing))
        got, wrong = got.reshape(-1, channels), wrong.reshape(-1, channels)
        order = np.argsort(-wrong.sum(axis=1), kind="stable")[:VOTERS]
        flat = np.moveaxis(sums, axis, -1).reshape(-1, channels)[order]
        got, wrong = got[order], wrong[order]
        if axis == -1:
            return _Votes(ev, flat, got, wrong, -1)
        return _Votes(ev, flat.T[None, :, None], got.T[None, :, None], wrong.T[None, :, None], 1)

    def made(self, sums: np.ndarray, consts: dict[str, np.ndarray]) -> np.ndarray:
        """The bytes of these positions, or the bits of floats."""
        with np.errstate(all="ignore"):
            values = quantized(self.ev, sums, consts)
        return values if self.ev.desc.is_int8 else np.ascontiguousarray(values, np.float32).view(np.int32)

    def best(self, made: list[np.ndarray]) -> np.ndarray | None:
        """Channel -> the channel that explains its wrong bytes; None if none does, or if all are their own."""
        others = tuple(a for a in range(self.sums.ndim) if a != self.axis % self.sums.ndim)
        right = np.stack([((m == self.got) & self.wrong).sum(axis=others) for m in made])  # source, channel
        against = np.stack([((m != self.got) & ~self.wrong).sum(axis=others) for m in made])
        count = self.wrong.sum(axis=others)
        own = np.arange(self.channels)
        score = right - against
        best = score.argmax(axis=0)
        fits = (right[best, own] >= np.maximum(LEAST_CELLS, LEAST_SHARE * count)) & (count > 0)
        source = np.where(fits, best, own)
        return None if np.array_equal(source, own) else source


def _said(source: np.ndarray) -> str:
    """The inferred channels in words: a rule where two numbers give all of them."""
    own = np.arange(len(source))
    beyond = np.flatnonzero(source == len(source))
    if len(beyond):
        others = np.where(source == len(source), own, source)
        said = f"none, in {len(beyond)} of {len(source)} channels"
        return said if np.array_equal(others, own) else f"{said}; {_said(others)}"
    changed = np.flatnonzero(source != own)
    distance = distinct(source[changed] - changed)
    if len(distinct(source[changed])) == 1:
        rule = f"those of channel {source[changed[0]]}"
    elif len(distance) == 1:
        rule = f"those of the channel {distance[0]:+d} away"
    elif len(changed) > 2 and len(np.unique(np.diff(source[changed]) / np.diff(changed))) == 1:
        factor = (source[changed[1]] - source[changed[0]]) / (changed[1] - changed[0])
        rule = f"those of channel {factor:g} * i {source[changed[0]] - factor * changed[0]:+g}"
    else:
        rule = choices.first([f"{k} has those of {source[k]}" for k in changed])
    return rule if len(changed) == len(source) else f"{rule}, in {len(changed)} of {len(source)} channels"
