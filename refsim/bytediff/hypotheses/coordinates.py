"""Causes in the computing of an address: one coordinate used for another, and weight words at another stride."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, hypothesis
from refsim.bytediff.hypotheses import unrolled
from refsim.bytediff.hypotheses.addressing import gathered, written
from refsim.bytediff.rerun import has_weights, is_convolution, is_depthwise, logical_weight, rerun, weighed
from refsim.core import index
from refsim.core.buffer import GUARD
from refsim.core.layout import DIM_NAMES
from refsim.core.tensor import TensorDesc

#: Weights of more words than this are not read again in every order.
MOST_WEIGHTS = 1 << 14
_GUARD = GUARD.reshape(1).view(np.int8)


@hypothesis("one coordinate for another")
def exchanged(ev: Evidence) -> Iterator[Prediction]:
    """A coordinate of an address replaced by another one, or two of them exchanged."""
    for chosen, what in _rules():
        if any(ev.desc.sizes_whcn[dim] > 1 for dim in range(4) if chosen[dim] != dim):
            yield Prediction(f"output written with {what}", written(ev, _by(ev.desc, chosen)))
    if ev.bound is None:
        return
    for name, buffer in ev.inputs.items():
        for chosen, what in _rules():
            if all(buffer.desc.sizes_whcn[dim] == 1 for dim in range(4) if chosen[dim] != dim):
                continue
            cells = rerun(ev, inputs={name: gathered(buffer, _by(buffer.desc, chosen))})
            if cells is not None:
                yield Prediction(f"{name} read with {what}", cells)
    for chosen, what in _rules():
        if any(ev.desc.sizes_whcn[dim] > 1 for dim in range(4) if chosen[dim] != dim):
            yield Prediction(f"each output computed as that with {what}", _computed(ev, chosen))
    yield from _digits(ev)
    yield from unrolled.read(ev)


def _rules() -> Iterator[tuple[tuple[int, ...], str]]:
    for a, b in permutations(range(4), 2):
        chosen = [0, 1, 2, 3]
        chosen[a] = b
        yield tuple(chosen), f"{DIM_NAMES[b]} for {DIM_NAMES[a]}"
        if a < b:
            chosen[b] = a
            yield tuple(chosen), f"{DIM_NAMES[a]} and {DIM_NAMES[b]} exchanged"


def _by(desc: TensorDesc, chosen: tuple[int, ...]) -> np.ndarray:
    """The cell of each element, NCHW, if its word is addressed by other coordinates."""
    shape = desc.sizes_whcn[::-1]
    coords: list[np.ndarray] = list(np.ogrid[tuple(map(slice, shape))][::-1])
    lane: np.ndarray | int = 0
    if desc.is_int8:
        lane = coords[desc.layout.inner] % 4
        coords[desc.layout.inner] = coords[desc.layout.inner] - lane
    at: np.ndarray = index.buf_idx(desc.meta, 0, desc.hashed, *(coords[dim] for dim in chosen))
    return np.broadcast_to(at // 4 * 4 + lane if desc.is_int8 else at, shape)


def _computed(ev: Evidence, chosen: tuple[int, ...]) -> np.ndarray:
    """Cells if every element is the one at other coordinates; right where these are outside."""
    logical = ev.logical  # NCHW; the rules count from W
    of = [3 - chosen[dim] for dim in (3, 2, 1, 0)]
    # a coordinate is inside as far as every dim goes that it stands for
    inside = [
        min([size, *(logical.shape[dim] for dim in range(4) if of[dim] == own)])
        for own, size in enumerate(logical.shape)
    ]
    box = tuple(map(slice, inside))
    coords = np.ogrid[box]
    fresh = ev.want.copy()
    fresh[ev.places[box]] = logical[tuple(coords[dim] for dim in of)]
    return fresh


def _digits(ev: Evidence) -> Iterator[Prediction]:
    """Elements of each tile of 4 columns x 4 rows x 4 channels in another order; 0 where the tensor ends before."""
    places = np.indices(ev.logical.shape)
    for order in permutations((3, 2, 1)):
        taken = list(places)
        for mine, theirs in zip((3, 2, 1), order, strict=True):
            taken[mine] = places[mine] // 4 * 4 + places[theirs] % 4
        inside = np.all([at < size for at, size in zip(taken, ev.logical.shape, strict=True)], axis=0)
        if order == (3, 2, 1) or not inside.any():
            continue
        fresh = ev.want.copy()
        held = ev.logical[tuple(np.where(inside, at, 0) for at in taken)]
        fresh[ev.places] = np.where(inside, held, 0)
        named = ", ".join(DIM_NAMES[3 - dim] for dim in order)
        yield Prediction(f"each tile of 4 x 4 x 4 has {named} for W, H, C", fresh)


@hypothesis("weights read at another stride", needs_call=True)
def weight_strides(ev: Evidence) -> Iterator[Prediction]:
    """Words [tap][word of channels][output channel] read at another stride, or some words away."""
    if not has_weights(ev):
        return
    if is_depthwise(ev):
        yield from _depthwise(ev)
        return
    convolution = is_convolution(ev)
    weight = logical_weight(ev) if convolution else ev.call.consts["weight"]
    assert weight is not None
    out, channels = weight.shape[0], weight.shape[-1]
    taps = weight.reshape(out, -1, channels)
    padded = np.zeros((-(-out // 4) * 4, taps.shape[1], -(-channels // 4) * 4), np.int8)
    padded[:out, :, :channels] = taps
    blocks = padded.reshape(*padded.shape[:2], -1, 4)  # output channel, tap, word, lane
    words = np.ascontiguousarray(blocks.transpose(1, 2, 0, 3)).reshape(-1, 4)
    if len(words) > MOST_WEIGHTS:
        return
    words = np.concatenate([words, _behind(ev, len(words))])
    outputs, count, depth = blocks.shape[:3]
    o, t, k = tuple(np.indices((outputs, count, depth)))
    for what, at in _strides(o, t, k, outputs, count, depth):
        inside = (at >= 0) & (at < len(words))
        # behind the weights lie zeros of a panel, or the guard words around a constant
        for beyond in (np.zeros(4, np.int8), _GUARD) if not inside.all() else (_GUARD,):
            read = np.where(inside[..., None], words[np.where(inside, at, 0)], beyond).astype(np.int8)
            changed = read.reshape(padded.shape)[:out, :, :channels].reshape(weight.shape)
            for how, cells in weighed(ev, changed):
                yield Prediction(f"{what}{how}", cells)


def _behind(ev: Evidence, count: int) -> np.ndarray:
    """What a transposed convolution keeps behind the words of its weights, int8 (words, 4)."""
    if not ev.call.op.transposed:
        return np.zeros((0, 4), np.int8)
    weight = ev.call.consts["weight"]
    assert weight is not None
    packed = np.ascontiguousarray(ev.call.op.prepack(ev.call, "weight", weight), np.int32)
    return packed.view(np.int8).reshape(-1, 4)[count:]


def _depthwise(ev: Evidence) -> Iterator[Prediction]:
    """The same of words [tap][word of channels]."""
    weight = logical_weight(ev)
    outputs = len(weight)
    padded = np.zeros((-(-outputs // 4) * 4, weight[0].size), np.int8)
    padded[:outputs] = weight.reshape(outputs, -1)
    words = np.ascontiguousarray(padded.reshape(-1, 4, padded.shape[1]).transpose(2, 0, 1)).reshape(-1, 4)
    count, wide = padded.shape[1], len(padded) // 4
    t, c = np.indices((count, wide))
    rules = {
        f"taps {stride} words apart instead of {wide}": (stride, 1, 0)
        for stride in (0, 1, wide - 1, wide + 1, 2 * wide, 4 * wide)
    }
    rules |= {f"word {factor} * c of a tap for word c": (wide, factor, 0) for factor in (0, 2, 4)}
    rules |= {f"words {by:+d} away": (wide, 1, by) for by in (1, -1, wide, -wide)}
    seen = {weight.tobytes()}
    for what, (stride, factor, by) in rules.items():
        at = t * stride + c * factor + by
        inside = (at >= 0) & (at < len(words))
        read = np.where(inside[..., None], words[np.where(inside, at, 0)], 0)
        changed = read.transpose(1, 2, 0).reshape(padded.shape)[:outputs].reshape(weight.shape)
        if changed.tobytes() not in seen:
            seen.add(changed.tobytes())
            for how, cells in weighed(ev, changed):
                yield Prediction(f"{what}{how}", cells)


def _strides(
    o: np.ndarray, t: np.ndarray, k: np.ndarray, outputs: int, count: int, depth: int
) -> Iterator[tuple[str, np.ndarray]]:
    right = (t * depth + k) * outputs + o
    for by in dict.fromkeys((1, -1, 2, -2, 4, -4, outputs, -outputs)):
        yield f"words {by:+d} away", right + by
    for lane in (1, 2, 3):
        yield (
            f"the word of output {-lane} instead of {lane:+d} from the first of four",
            right - o % 4 * 2 * (o % 4 == lane),
        )
        yield f"the word of output {lane - 1} for {lane} of four", right - (o % 4 == lane)
        yield f"the word of output {lane + 1} for {lane} of four", right + (o % 4 == lane)
    for factor in (0, 0.5, 2, 4) if outputs > 4 else ():
        first = o // 4 * 4
        yield (
            f"the first of four outputs at {factor:g} times its place",
            right - first + (factor * first).astype(int),
        )
    if depth > 1:
        for stride in dict.fromkeys((0, 1, 4, outputs - 4, outputs + 4, 2 * outputs)):
            if stride != outputs:
                yield (
                    f"words of channels {stride} apart instead of {outputs}",
                    t * depth * outputs + k * stride + o,
                )
    if count > 1:
        whole = depth * outputs
        for stride in dict.fromkeys((0, outputs, whole - outputs, whole + outputs)):
            if stride != whole:
                yield f"taps {stride} words apart instead of {whole}", t * stride + k * outputs + o
    flat = t * depth + k
    lengths = (0, 4, outputs - 4, outputs + 4, outputs // 4 * 5, outputs // 4 * 3, 2 * outputs, outputs // 2)
    for stride in dict.fromkeys(lengths):
        if stride != outputs and count * depth > 1:
            yield f"rows of {stride} words instead of {outputs}", flat * stride + o
    if count * depth > 1:
        yield "the number of a row and the length of rows added", flat * 4 + outputs + o
        yield "the place in a row taken from where it begins", flat * outputs - o // 4 * 4 + o % 4
