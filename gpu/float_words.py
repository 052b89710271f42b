"""What the kernels of shaders/float are launched with, as rows of `refsim.core.push`.

They have no emulated kernel and no operator's file: what they compute is said by refsim.aten.
"""

from __future__ import annotations

from refsim.core.push import (
    Field,
    PushWords,
    SpecWords,
    float32,
    hashed,
    int32,
    one_of,
    switch,
    tensor,
    uint32,
    vectors,
)

#: Dims of a strided kernel that are left after those that lie one behind the other in all tensors were joined.
MAP_DIMS, REDUCE_DIMS, PRODUCT_DIMS = 6, 5, 4
FIRST_BINARY = 8


def each(count: int, *names: str) -> tuple[Field, ...]:
    """A word for each dim, the fastest first."""
    return tuple(int32(f"{name}_{dim}") for name in names for dim in range(count))


#: What `map` does with an element, or (from `FIRST_BINARY` on) with two.
OPS = {
    "COPY": 0, "ABS": 1, "NEG": 2, "CLAMP": 3, "HARDSWISH": 4, "HARDSIGMOID": 5, "LEAKY_RELU": 6,
    "ADD": FIRST_BINARY, "MUL": 9, "DIV": 10, "MAXIMUM": 11, "MINIMUM": 12,
}  # fmt: skip
#: The order in which `reduce` adds, or what it looks for.
HOW = {"IN_TURN": 0, "DEALT": 1, "PACKED": 2, "ROW": 3, "LARGEST": 4, "LEAST": 5}

MAP = (
    PushWords(
        *each(MAP_DIMS, "SIZE", "OUT", "A", "B"),
        *(int32(f"{name}_AT") for name in ("OUT", "A", "B")),
        int32("COUNT"), float32("P"), float32("Q"),
    ),
    SpecWords(one_of("OP", **OPS, FIRST_BINARY=FIRST_BINARY), uint32("DIMS", 1)),
)  # fmt: skip
REDUCE = (
    PushWords(
        *each(REDUCE_DIMS, "SIZE", "OUT", "A"), int32("OUT_AT"), int32("A_AT"), int32("COUNT"),
        *(int32(name) for name in ("LENGTH", "STEP", "INNER_LENGTH", "INNER_STEP")), float32("DIVISOR"),
    ),
    SpecWords(one_of("HOW", **HOW), uint32("DIMS", 1)),
)  # fmt: skip
POOL = (
    PushWords(
        *(int32(f"OUT_{what}") for what in ("W", "H", "C", "W_STRIDE", "H_STRIDE", "C_STRIDE", "N_STRIDE")),
        *(int32(f"X_{what}") for what in ("W", "H", "W_STRIDE", "H_STRIDE", "C_STRIDE", "N_STRIDE")),
        *(int32(f"{what}_{dim}") for what in ("KERNEL", "STRIDE", "PAD", "DILATION", "EDGE") for dim in "HW"),
        float32("DIVISOR"),
    ),
    SpecWords(switch("AVERAGE"), switch("CHANNELS_FIRST")),
)  # fmt: skip
PRODUCT = (
    PushWords(
        *each(PRODUCT_DIMS, "SIZE", "OUT", "A", "B", "C"),
        *(int32(f"{name}_AT") for name in ("OUT", "A", "B", "C")),
        *(int32(name) for name in ("COUNT", "LENGTH", "A_STEP", "B_STEP")),
    ),
    SpecWords(switch("BIAS"), uint32("DIMS", 1)),
)  # fmt: skip
#: An output's and an input's sizes and strides, of images.
IMAGES = (
    *(int32(f"OUT_{what}") for what in ("W", "H", "C", "W_STRIDE", "H_STRIDE", "C_STRIDE", "N_STRIDE")),
    *(int32(f"X_{what}") for what in ("W", "H", "W_STRIDE", "H_STRIDE", "C_STRIDE", "N_STRIDE")),
)
CONVOLUTION = (
    PushWords(
        *IMAGES,
        *(int32(f"WEIGHT_{dim}_STRIDE") for dim in "WHCN"),
        *(int32(f"{what}_{dim}") for what in ("KERNEL", "STRIDE", "PAD", "DILATION") for dim in "HW"),
        *(int32(name) for name in ("COUNT", "GROUP_IN", "GROUP_OUT", "BLOCK")), float32("LOW"), float32("HIGH"),
    ),
    SpecWords(switch("BIAS"), switch("BIAS_FIRST"), switch("CLAMP"), switch("CHANNELS_FIRST")),
)  # fmt: skip
BILINEAR = (
    PushWords(*IMAGES, int32("COUNT"), float32("STEP_H"), float32("STEP_W")),
    SpecWords(switch("ALIGN"), switch("CHANNELS_FIRST")),
)
BYTES = (
    PushWords(tensor("OUT"), tensor("X"), int32("PADDING")),
    SpecWords(hashed("OUT"), hashed("X"), vectors("OUT"), vectors("X")),
)
VALUES = (
    PushWords(tensor("OUT"), tensor("X")),
    SpecWords(hashed("OUT"), hashed("X"), vectors("OUT"), vectors("X")),
)

#: Push words and specialization words of each kernel.
ROWS: dict[str, tuple[PushWords, SpecWords]] = {
    "float/map": MAP,
    "float/reduce": REDUCE,
    "float/pool": POOL,
    "float/product": PRODUCT,
    "float/convolution": CONVOLUTION,
    "float/bilinear": BILINEAR,
    "float/bytes": BYTES,
    "float/values": VALUES,
}
