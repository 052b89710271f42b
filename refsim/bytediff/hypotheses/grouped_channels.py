"""Which output's bias, scales or weights each output of a linear with 4-bit weights used; part of `channels`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refsim.bytediff.evidence import Evidence
from refsim.bytediff.hypotheses.int4 import int4_weights
from refsim.bytediff.rerun import rerun
from refsim.ops.base.traits import Family

#: More outputs than these are not searched.
MOST_OUTPUTS, MOST_ELEMENTS = 64, 1 << 14
#: The share of an output's wrong elements that another output's constants must explain.
LEAST_SHARE = 0.9


def _searched(ev: Evidence) -> bool:
    if ev.bound is None or ev.call.op.int4 is None or ev.call.op.family is Family.LOOKUP:
        return False
    return 2 <= ev.call.out.shape[-1] <= MOST_OUTPUTS and ev.call.out.numel <= MOST_ELEMENTS


def constants(ev: Evidence) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(which constants, output -> the one whose it has, the cells)."""
    bias = ev.call.consts.get("bias") if _searched(ev) else None
    base = None if bias is None else rerun(ev, consts={"bias": None})
    if bias is not None and base is not None:
        plain = _outputs(ev, base)
        with np.errstate(all="ignore"):
            yield from _best(ev, "bias", [plain + bias[k] for k in range(len(bias))])
    found = int4_weights(ev) if _searched(ev) else None
    if found is not None:
        values, scales = found
        compute = ev.call.op.int4
        assert compute is not None
        made = []
        for k in range(len(scales)):
            one = np.broadcast_to(scales[k], scales.shape)
            with np.errstate(all="ignore"):
                made.append(_flat(ev, compute.compute(ev.call, ev.arrays, values, one)))
        yield from _best(ev, "scales", made)


def weights(ev: Evidence) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(output -> the one whose products it sums, the cells); the bias is its own."""
    if not _searched(ev):
        return
    bias = ev.call.consts.get("bias")
    base = rerun(ev, consts={"bias": None})
    if base is None:
        return
    plain = _outputs(ev, base)
    with np.errstate(all="ignore"):
        made = [
            plain[:, k : k + 1] + (np.zeros(plain.shape[1], np.float32) if bias is None else bias)
            for k in range(plain.shape[1])
        ]
    for _, source, cells in _best(ev, "weights", made):
        yield source, cells


def _outputs(ev: Evidence, cells: np.ndarray) -> np.ndarray:
    """Cells as floats, (rows, outputs)."""
    return np.ascontiguousarray(cells[ev.places]).view(np.float32).reshape(-1, ev.call.out.shape[-1])


def _flat(ev: Evidence, values: np.ndarray) -> np.ndarray:
    return np.asarray(values, np.float32).reshape(-1, ev.call.out.shape[-1])


def _best(ev: Evidence, what: str, made: list[np.ndarray]) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """``made``: all outputs, if each had the constants of output k; those that explain each output best."""
    outputs = ev.call.out.shape[-1]
    got = ev.got[ev.places].reshape(-1, outputs)
    wrong = ev.differing[ev.places].reshape(-1, outputs)
    own = np.arange(outputs)
    bits = np.stack(
        [np.ascontiguousarray(each, np.float32).view(np.int32) for each in made]
    )  # source, row, output
    right = ((bits == got) & wrong).sum(axis=1)
    best = right.argmax(axis=0)
    count = wrong.sum(axis=0)
    source = np.where((count > 0) & (right[best, own] >= np.maximum(1, LEAST_SHARE * count)), best, own)
    if not np.array_equal(source, own):
        chosen = bits[source, :, own].T.reshape(ev.places.shape)
        cells = ev.want.copy()
        cells[ev.places] = chosen
        yield what, source, cells
