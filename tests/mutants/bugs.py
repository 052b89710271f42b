"""The kinds of bugs that really happened in packed int8 and quantized GPU kernels, and where they were seen."""

from __future__ import annotations

from dataclasses import dataclass

#: Places: kernels, launches and executor of the CPU; those of a Vulkan device; and the passes that make graphs.
CPU, GPU, LOWERING = PLACES = ("cpu", "gpu", "lowering")
EXECUTORS = (CPU, GPU)


@dataclass(frozen=True)
class Bug:
    """One kind: a short id, what went wrong, a report of it; the places where it can be, and why not on an executor."""

    id: str
    what: str
    seen: str
    places: tuple[str, ...] = EXECUTORS
    elsewhere: str = ""


_PASSES = "a pass decides it before there is an executor: the graph that it gives is the same for all"


def _in_passes(id: str, what: str, seen: str) -> Bug:
    return Bug(id, what, seen, (LOWERING,), _PASSES)


_ROWS = (
    _in_passes("G1", "addmm's arguments read in mm's order", "executorch#17567"),
    _in_passes("G2", "a chained linear takes its producer's input scale and zero point", "executorch#17567"),
    _in_passes("G3", "only the first operand of an add replaced by its quantized form", "executorch#15746"),
    Bug("G4", "an output found by counting arguments from the front", "executorch#16186", PLACES),
    _in_passes(
        "G5",
        "relu between add and quantize dropped though the zero point is above -128",
        "ET-VK's binary pattern",
    ),
    _in_passes("G6", "an operator serialized that no kernel exists for", "executorch#22429"),
    Bug("P1", "weight sums over the wrong dimension", "executorch#17504"),
    Bug("P2", "sums, scales or bias not padded to 4: a read past the end", "executorch#17505"),
    Bug("P3", "a transposed block that square shapes hide", "tvm#4038"),
    Bug("P4", "bytes within a word in the wrong order", "executorch#6200"),
    Bug("P5", "int8 read as uint8: wrong for negative values", "executorch#20491"),
    Bug("P6", "padding lanes leak", "executorch#17849"),
    Bug("P7", "batch index fixed at 0", "ET-VK's conv kernels"),
    Bug("I1", "dispatch grid floored instead of rounded up: the last tile is missing", "mlx#4250"),
    Bug("I2", "stride and dilation exchanged, or only one honoured", "executorch#7628"),
    Bug("I3", "H and W exchanged in stride, padding or kernel size", "common"),
    Bug("I4", "underflow gives zero workgroups: nothing is written", "executorch#17707"),
    Bug("I5", "a stale constant of the call before", "executorch#18558"),
    Bug("I6", "an out-of-bounds write that lands in a neighbour", "llama.cpp#29039"),
    Bug("N1", "ties away from zero, or truncation, instead of ties to even", "onnxruntime#25045"),
    Bug("N2", "image border padded with 0 instead of the zero point", "tvm#4807"),
    Bug("N3", "zero point folded twice, or not at all", "onnxruntime#27325"),
    Bug("N4", "clamp before the zero point is added", "class of N3"),
    Bug("N5", "relu bound taken as 0 in the quantized domain", "class of N3"),
    Bug("N6", "fused multiply-add where two roundings were meant", "device dependent"),
    Bug("N7", "alpha of add ignored", "ET-VK's q8ta_add kernel"),
    Bug("N8", "packed dot product treats one operand as unsigned", "DirectXShaderCompiler#6097"),
    Bug(
        "Q1",
        "4-bit weights: the nibbles of a byte exchanged, or 8 not taken from them",
        "class of P4 and P5",
    ),
    Bug("Q2", "the scale of another group", "ET-VK's embedding kernel"),
    Bug("S1", "a missing barrier", "executorch#17309"),
    Bug("S2", "shared memory reduced over one element too few", "llama.cpp#12722"),
    Bug("S3", "a buffer reused while still read", "executorch#20915"),
)

BUGS = {bug.id: bug for bug in _ROWS}
