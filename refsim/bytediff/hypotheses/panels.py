"""Constants of outputs that lie in panels, row by row, read at other distances: part of "constants of other channels".

A panel of so many outputs has four rows of words: what sums begin with, scales, biases, and what a zero point adds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refsim.bytediff.evidence import Evidence
from refsim.bytediff.rerun import has_weights, integer_sums
from refsim.core.qmath import inv_scale
from refsim.ops.base.epilogue import PER_CHANNEL
from refsim.ops.base.traits import Epilogue

F = np.float32
#: Outputs of a panel: vectors of 4, 8 or 16, one or several of them.
PANELS = (4, 8, 12, 16, 24, 32, 48, 64, 96)
#: Larger outputs are left alone; a rule is told if it makes so much of what is wrong.
MOST_ELEMENTS, LEAST_SHARE = 1 << 13, 0.25


def constants(ev: Evidence) -> Iterator[tuple[str, np.ndarray]]:
    """(which rows were read where, the cells) of rows, or panels, at another distance."""
    if not has_weights(ev) or ev.call.out.numel > MOST_ELEMENTS or getattr(ev.call.params, "groups", 1) > 1:
        return
    outputs = ev.call.out.shape[ev.call.op.channel_dim]
    got, wrong = ev.got[ev.places], ev.differing[ev.places]
    enough = LEAST_SHARE * np.count_nonzero(wrong)
    rows = _rows(ev)
    seen = {rows.tobytes()}
    for panel in PANELS:
        padded = np.zeros((4, -(-outputs // panel) * panel), np.int32)
        padded[:, :outputs] = rows
        memory = np.ascontiguousarray(padded.reshape(4, -1, panel).transpose(1, 0, 2)).reshape(-1)
        for what, at in _places(outputs, panel):
            inside = (at >= 0) & (at < memory.size)
            read = np.where(inside, memory[np.where(inside, at, 0)], 0).astype(np.int32)
            if read.tobytes() in seen:
                continue
            seen.add(read.tobytes())
            with np.errstate(all="ignore"):
                cells = _cells(ev, _made(ev, read))
            if np.count_nonzero((cells[ev.places] == got) & wrong) >= enough:
                yield f"{what}, of panels of {panel} outputs", cells


def _cells(ev: Evidence, values: np.ndarray) -> np.ndarray:
    """The buffer of these values; any NaN stands for any other, as the bits of an integer may be one."""
    cells = ev.with_values(values)
    if not ev.desc.is_int8:
        none = np.isnan(cells.view(F)) & np.isnan(ev.got.view(F))
        cells[none] = ev.got[none]
    return cells


def _places(outputs: int, panel: int) -> Iterator[tuple[str, np.ndarray]]:
    """(rule, word of each row of each output)."""
    row, output = np.arange(4)[:, None], np.arange(outputs)[None, :]
    own, within = output // panel, output % panel
    apart = (
        panel // 4 + 1,
        panel // 4,
        panel // 2,
        2 * panel,
        4 * panel,
        5 * panel // 4,
        3 * panel // 4,
        0,
        -panel,
    )
    for other in dict.fromkeys((*apart, panel + 1, panel - 1)):
        yield f"rows of constants {other} words apart", own * 4 * panel + row * other + within
    for other in (
        0,
        panel,
        2 * panel,
        3 * panel,
        5 * panel,
        8 * panel,
        panel + 1,
        4 * panel + 1,
        4 * panel - 1,
    ):
        yield f"panels of constants {other} words apart", own * other + row * panel + within
    for by in (1, -1, 4, -4):
        yield f"constants {by:+d} words away", own * 4 * panel + row * panel + within + by


def _rows(ev: Evidence) -> np.ndarray:
    """int32 (4, outputs): what sums begin with, scales, biases, what the zero point adds to floats."""
    call = ev.call
    sums, scales, bias = (call.consts[name] for name in PER_CHANNEL)
    assert sums is not None and scales is not None
    outputs = call.out.shape[call.op.channel_dim]
    found = np.zeros((4, outputs), np.int32)
    zp = call.params.in_zp
    if _float_zp(ev):
        found[3] = (-sums.astype(F) * F(zp)).view(np.int32)[:outputs]
    else:
        found[0] = (-zp * sums.astype(np.int64)).astype(np.int32)[:outputs]
    found[1] = (scales * F(call.params.in_scale)).astype(F).view(np.int32)[:outputs]
    if bias is not None:
        found[2] = bias.astype(F).view(np.int32)[:outputs]
    return found


def _float_zp(ev: Evidence) -> bool:
    """Whether the zero point is taken off sums that are floats already."""
    return ev.writing.epilogue is Epilogue.FLOAT_ZP and ev.desc.is_int8


def _made(ev: Evidence, rows: np.ndarray) -> np.ndarray:
    """Values by other rows of constants."""
    p = ev.call.params
    spread = (-1, 1, 1) if ev.call.op.channel_dim == -3 else (-1,)
    first = rows[0].reshape(spread)
    scale, bias, term = (row.view(F).reshape(spread) for row in rows[1:])
    t = (integer_sums(ev) + first).astype(np.int32).astype(F)
    t = t + term if _float_zp(ev) else t
    t = t * scale + bias
    if not ev.desc.is_int8:
        return t.astype(F)
    t = np.maximum(t, F(0)) if getattr(p, "activation", "none") == "relu" else t
    whole = np.clip(np.nan_to_num(np.rint(t * inv_scale(p.out_scale))), -(1 << 24), 1 << 24)
    return np.clip(whole + p.out_zp, -128, 127)
