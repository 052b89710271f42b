"""Bugs seeded into operators with 4-bit weights in groups: emulated kernels, native kernels and shaders."""

# ruff: noqa: E501  (anchors are quoted as they stand in the sources)

from __future__ import annotations

from mutants.mutant import Mutant
from mutants.seeded.emulated import cpu
from mutants.seeded.native import native
from mutants.seeded.shaders import gpu

LINEAR, ROWS, TABLE, RANGE = "linear_q4gsw", "linear_dq8ca_q4gsw", "embedding_q4gsw", "choose_qparams_affine"

_OPS, _SHADERS = "refsim/ops/", "shaders/"
_KERNEL, _PREPACK = (f"refsim/exec/cpu/groups/{name}.py" for name in ("kernel", "prepack"))
_NIBBLES, _SCALES = "nibbles read wrong", "scale of another group"


# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    # --- emulated kernels, and what is prepacked for them ------------------------------------------------
    cpu("Q1-order", "Q1", ROWS, (_NIBBLES,),
        (f"{_OPS}{ROWS}.py", "int4.HALVES.words(int4.unpacked(value))", "int4.HALVES.words(int4.unpacked(value << 4 | value >> 4))")),
    cpu("Q1-eight", "Q1", TABLE, (_NIBBLES,),
        (_OPS + "base/int4.py", "return ((word >> shift) & 15) - 8", "return (word >> shift) & 15")),
    cpu("Q2-linear", "Q2", LINEAR, (_SCALES,),
        (f"{_OPS}{LINEAR}.py", "scales[k4 // push[GROUP4] * columns + n]", "scales[(k4 // push[GROUP4] + 1) % (push[K4] // push[GROUP4]) * columns + n]")),
    cpu("N3-rows", "N3", ROWS, ("zero point of rows",),
        (f"{_OPS}{ROWS}.py", "acc -= zero * sums[", "acc -= 2 * zero * sums[")),
    cpu("S2-tree", "S2", LINEAR, ("reduction too short",),
        (_OPS + "base/group_linear.py", "for t in range(half):", "for t in range(half - (2 * half == lanes)):")),
    cpu("S2-range", "S2", RANGE, ("range of rows",),
        (_OPS + "base/row_range.py", "range(row * k, row * k + k):", "range(row * k, row * k + k // 4 * 4):")),
    # --- native kernels ----------------------------------------------------------------------------------
    native("Q1-order", "Q1", LINEAR, _NIBBLES,
        (_KERNEL, "return ((both & 15) - ZERO).to_f32(), (both.shr(4) - ZERO).to_f32()", "return (both.shr(4) - ZERO).to_f32(), ((both & 15) - ZERO).to_f32()")),
    native("Q1-table", "Q1", TABLE, _NIBBLES,
        (_PREPACK, "weight if call.params.is_linear_weight else weight << 4 | weight >> 4", "weight")),
    native("Q1-eight", "Q1", TABLE, _NIBBLES,
        (_KERNEL, "fn.store((nibbles - ZERO).to_f32()", "fn.store(nibbles.to_f32()")),
    native("Q2-row", "Q2", LINEAR, _SCALES,
        (_KERNEL, "group = b * (BLOCK // 2) // a.group_pairs", "group = (b * (BLOCK // 2) // a.group_pairs + 1) % a.groups")),
    native("N3-rows", "N3", ROWS, "zero point of rows",
        (_KERNEL, "fn.store(whole.to_f32(), a.pointer(\"values\")", "fn.store(whole.to_f32() - zp.splat(width), a.pointer(\"values\")")),
    native("S2-tree", "S2", LINEAR, "reduction too short",
        (_KERNEL, "fn.loop(half, add)", "fn.loop(half - (2 * half == tree), add)")),
    native("S2-range", "S2", RANGE, "range of rows",
        (_KERNEL, "fn.loop(k, single, [lo, hi], start=whole)", "fn.loop(k - k % 4, single, [lo, hi], start=whole)")),
    # --- shaders -----------------------------------------------------------------------------------------
    gpu("Q1-eight", "Q1", TABLE, _NIBBLES, (_SHADERS + "include/int4.glsl", ">> 4 * high & 15) - 8)", ">> 4 * high & 15))")),
    gpu("Q2-linear", "Q2", LINEAR, _SCALES,
        (f"{_SHADERS}{LINEAR}.comp", "scales[k4 / push[GROUP4] * outputs + n4]", "scales[(k4 / push[GROUP4] + 1) % (k4s / push[GROUP4]) * outputs + n4]")),
    gpu("N3-rows", "N3", ROWS, "zero point of rows", (f"{_SHADERS}{ROWS}.comp", "acc - zero * sums[at]", "acc - 2 * zero * sums[at]")),
    gpu("S2-tree", "S2", LINEAR, "reduction too short", (f"{_SHADERS}{LINEAR}.comp", "if (lane < left)", "if (lane < left - int(2 * left == LANES))")),
)
# fmt: on
