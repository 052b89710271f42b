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
CHOOSE_DIMS = 5


def whole(*names: str) -> tuple[Field, ...]:
    """An int32 of each name."""
    return tuple(map(int32, names))


def laid(most: int, *operands: str) -> tuple[Field, ...]:
    """Sizes and each operand's strides, the fastest dim first; where each begins; how many elements there are."""
    dims = (f"{name}_{dim}" for name in ("SIZE", *operands) for dim in range(most))
    return whole(*dims, *(f"{name}_AT" for name in operands), "COUNT")


def pairs(*names: str) -> tuple[Field, ...]:
    """A number for rows and one for columns."""
    return whole(*(f"{name}_{dim}" for name in names for dim in "HW"))


#: What `map` does with an element, or (from `FIRST_BINARY` on) with two; from `FIRST_WHOLE` on, of int32 or bool words.
FIRST_COMPARED, FIRST_WHOLE = 13, 20
OPS = {
    "COPY": 0, "ABS": 1, "NEG": 2, "CLAMP": 3, "HARDSWISH": 4, "HARDSIGMOID": 5, "LEAKY_RELU": 6, "NUMBER": 7,
    "ADD": FIRST_BINARY, "MUL": 9, "DIV": 10, "MAXIMUM": 11, "MINIMUM": 12,
    "EQUAL": FIRST_COMPARED, "UNEQUAL": 14, "BELOW": 15, "UP_TO": 16, "ABOVE": 17, "FROM": 18, "NEAR": 19,
    "WHOLE_ADD": FIRST_WHOLE, "WHOLE_EQUAL": 21, "WHOLE_UNEQUAL": 22, "AND": 23, "OR": 24,
}  # fmt: skip
#: The order in which `reduce` adds, or what it looks for.
HOW = {"IN_TURN": 0, "DEALT": 1, "PACKED": 2, "ROW": 3, "LARGEST": 4, "LEAST": 5}

MAP = (
    PushWords(*laid(MAP_DIMS, "OUT", "A", "B"), float32("P"), float32("Q")),
    SpecWords(
        one_of("OP", **OPS, FIRST_BINARY=FIRST_BINARY, FIRST_COMPARED=FIRST_COMPARED, FIRST_WHOLE=FIRST_WHOLE),
        uint32("DIMS", 1),
    ),
)  # fmt: skip
#: The elements of the first tensor at the places that the second one names, ``STEP`` words apart.
GATHER = (
    PushWords(*laid(MAP_DIMS, "OUT", "A", "B"), *whole("LENGTH", "STEP")),
    SpecWords(uint32("DIMS", 1)),
)
#: Of two tensors the first where a third is true.
CHOOSE = (PushWords(*laid(CHOOSE_DIMS, "OUT", "A", "B", "C")), SpecWords(uint32("DIMS", 1)))
#: What `function` computes of an element.
FUNCTIONS = {
    "EXP": 0, "SIGMOID": 1, "SILU": 2, "TANH": 3, "GELU": 4, "SQRT": 5, "RSQRT": 6, "ROOT_OF_SIZE": 7, "RECIPROCAL": 8,
    "LOG": 9,
}  # fmt: skip
FUNCTION = (MAP[0], SpecWords(one_of("FUNCTION", **FUNCTIONS), uint32("DIMS", 1)))
#: Rows of a softmax: how they lie, and how each goes on.
SOFTMAX = (
    PushWords(*laid(REDUCE_DIMS, "OUT", "A"), *whole("LENGTH", "OUT_STEP", "A_STEP")),
    SpecWords(
        *map(switch, ("LOGARITHM", "BY_TEXELS", "BOUNDED", "FINITE")), uint32("LANES", 1), uint32("DIMS", 1)
    ),
)  # fmt: skip
#: What a norm gives: the result, the mean, the inverse deviation.
NORMED = (uint32("WHAT"), switch("WEIGHT"), switch("BIAS"))
LAYER_NORM = (
    PushWords(
        *laid(REDUCE_DIMS, "OUT", "A"), *whole("LENGTH", "OUT_STEP", "A_STEP", "WEIGHT_STEP", "BIAS_STEP"),
        float32("EPS"),
    ),
    SpecWords(
        *NORMED, switch("TEXELS"), switch("HALVES"), switch("FROM_MEAN"), uint32("LANES", 1), uint32("DIMS", 1)
    ),
)  # fmt: skip
GROUP_NORM = (
    PushWords(
        *whole(*(f"{name}_{dim}_STRIDE" for name in ("OUT", "X") for dim in "NCHW")),
        *whole("WIDTH", "HEIGHT", "DEPTH"), float32("EPS"),
    ),
    SpecWords(*NORMED),
)  # fmt: skip
REDUCE = (
    PushWords(
        *laid(REDUCE_DIMS, "OUT", "A"), *whole("LENGTH", "STEP", "INNER_LENGTH", "INNER_STEP"), float32("DIVISOR"),
    ),
    SpecWords(one_of("HOW", **HOW), uint32("DIMS", 1)),
)  # fmt: skip
#: An output's and an input's sizes and strides, of images.
IMAGES = whole(
    *(f"OUT_{what}" for what in ("W", "H", "C", "W_STRIDE", "H_STRIDE", "C_STRIDE", "N_STRIDE")),
    *(f"X_{what}" for what in ("W", "H", "W_STRIDE", "H_STRIDE", "C_STRIDE", "N_STRIDE")),
)
POOL = (
    PushWords(
        *IMAGES, *pairs("KERNEL", "STRIDE", "PAD", "DILATION", "EDGE"), float32("DIVISOR"),
    ),
    SpecWords(switch("AVERAGE"), switch("CHANNELS_FIRST")),
)  # fmt: skip
PRODUCT = (
    PushWords(*laid(PRODUCT_DIMS, "OUT", "A", "B", "C"), *whole("LENGTH", "A_STEP", "B_STEP")),
    SpecWords(switch("BIAS"), uint32("DIMS", 1)),
)  # fmt: skip
CONVOLUTION = (
    PushWords(
        *IMAGES,
        *whole(*(f"WEIGHT_{dim}_STRIDE" for dim in "WHCN")),
        *pairs("KERNEL", "STRIDE", "PAD", "DILATION"), *whole("COUNT", "GROUP_IN", "GROUP_OUT", "BLOCK"),
        float32("LOW"), float32("HIGH"),
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
    "float/gather": GATHER,
    "float/choose": CHOOSE,
    "float/function": FUNCTION,
    "float/softmax": SOFTMAX,
    "float/layer_norm": LAYER_NORM,
    "float/group_norm": GROUP_NORM,
    "float/reduce": REDUCE,
    "float/pool": POOL,
    "float/product": PRODUCT,
    "float/convolution": CONVOLUTION,
    "float/bilinear": BILINEAR,
    "float/bytes": BYTES,
    "float/values": VALUES,
}
