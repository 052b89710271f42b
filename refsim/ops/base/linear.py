"""What the two linear operators share: parameters, meaning, launch, cases.

acc[m, o] = sum over k of q_x[m, k] * w[o, k];  then the integer epilogue
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from refsim.core.errors import ShapeError
from refsim.core.launch import Launch
from refsim.core.layout import Layout
from refsim.core.push import PushWords, SpecWords, hashed, int32, tensor
from refsim.core.rng import Rng
from refsim.ops.base import case_rule, epilogue, quantized, route_cases
from refsim.ops.base.arg import Arg, Shapes
from refsim.ops.base.case import Case, ErrorCase
from refsim.ops.base.case_rule import MANY, TAILS, CaseRule, CaseSlot, Hard, Made, quantization, twins
from refsim.ops.base.host.row import ModuleCall, with_dot_product
from refsim.ops.base.host.weights import MATRIX
from refsim.ops.base.padding import OnDevice, Pad, Padding
from refsim.ops.base.spec import Call, OpSpec
from refsim.ops.base.styles import CANCELLED
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Epilogue, Family, MatrixProblem, XQuads


@dataclass(frozen=True)
class LinearParams(quantized.InOutParams):
    """Quantization of input and output, and the activation."""

    activation: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        epilogue.check_activation(self)


def args(layout: Layout) -> tuple[Arg, ...]:
    """The arguments in serialized order."""
    return epilogue.args((layout,), (layout,), ("activation",))


EPILOGUE = Epilogue.INTEGER_ZP


def products(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """int64 (..., N): sums over K of int8 (..., K) times int8 (N, K)."""
    # in binary64 they are exact: |sum| < 2**31
    found: np.ndarray = (x.astype(np.float64) @ weight.T.astype(np.float64)).astype(np.int64)
    return found


def define(params: LinearParams, target: Target, x: np.ndarray, **consts: np.ndarray) -> np.ndarray:
    return epilogue.requantized(EPILOGUE, params, target, products(x, consts["weight"]), consts, (-1,))


def out_shape(
    params: LinearParams, shapes: Shapes, consts: Mapping[str, Any], declared: Any
) -> tuple[int, ...]:
    return (*shapes["x"][:-1], epilogue.out_channels(consts["weight"].shape[0], declared, -1))


def check(call: Call) -> None:
    where, k = call.params.where, call.descs["x"].shape[-1]
    if k % 4:
        raise ShapeError(where, "K does not fill words", got=f"K = {k}", need="a multiple of 4")
    (weight,) = call.given("weight")
    out = call.out.shape[-1]
    if weight.shape != (out, k):
        raise ShapeError(where, "weight has the wrong shape", got=weight.shape, need=f"({out}, {k})")
    epilogue.check_constants(call, out, k)


def padding(call: Call) -> Padding:
    """Lanes beyond the outputs hold the zero point. Rows beyond the last are 0."""
    return Padding(Pad(call.params.out_zp), Pad(0, OnDevice.WRITTEN))


#: The words of both kernels; K4 counts words of K.
PUSH = PushWords(tensor("X"), tensor("OUT"), int32("K4"), *epilogue.QUANTIZATION)
SPEC = SpecWords(hashed("X"), hashed("OUT"))
X, OUT, K4, IN_ZP, ZP, IN_SCALE, INV, FLAGS = PUSH.offsets
X_HASH, OUT_HASH = SPEC.offsets


def values(call: Call) -> dict[str, Any]:
    """The words of `PUSH`, by name."""
    return {"K4": call.descs["x"].shape[-1] // 4, **epilogue.quantization(call)}


def matrix(call: Call) -> MatrixProblem:
    """The product: rows are positions."""
    out, h, c, n = call.out.sizes_whcn
    k = call.descs["x"].shape[-1]
    return MatrixProblem(
        shader="coop/linear",
        push=PUSH.pack(call.tensors, **values(call)),
        positions=epilogue.align4(h) * c * n,
        channels=out,
        groups=1,
        depth=k,
        chunks=-(-k // 16),
        integer_zp=True,
        x_quads=XQuads.BLOCK,
        weight=lambda value: value[:, None, :],
    )


def work_item(launch: Launch, word: Any, w: Any, h: Any, c: Any, n: Any) -> tuple[Any, Any, Any]:
    """The work item that writes the word at a coordinate."""
    _, height, channels, _ = launch.out.sizes_whcn
    return (n * channels + c) * height + h, w // 4, 0 * n


def prepack(call: Call, name: str, value: np.ndarray) -> np.ndarray:
    """weight: words [input word][output channel], outputs padded to 4; the others padded to 4 entries."""
    if name != "weight":
        return epilogue.pad_rows(value, epilogue.align4(len(value))).view(np.int32)
    return epilogue.pack_weight(value[:, None, :])


def constants(params: LinearParams, shapes: Shapes, features: Mapping[str, Any], rng: Rng) -> dict[str, Any]:
    return epilogue.row_constants(params, features["out_channels"], shapes["x"][-1], features, rng)


def golden_params(slot: CaseSlot) -> dict[str, Any]:
    """Quantization of input and output, and the activation."""
    return {**quantization(slot, "in", "out"), "activation": slot.activation}


#: K of the two linear operators: mostly small, some that need every bit of the accumulator.
_LARGE_K = (1024, 4096, 16384, 131068)


def golden_k(slot: CaseSlot) -> tuple[int, int]:
    """(K, most outputs): few outputs where K is large."""
    if slot.number % 11 == 3:
        k = _LARGE_K[slot.number // 11 % len(_LARGE_K)]
        return k, 6 if k <= 4096 else 2
    return 4 * slot.rng.integer(1, 24), 44


def golden_rows(slot: CaseSlot) -> tuple[dict[str, tuple[int, ...]], dict[str, Any]]:
    """(The input of several rows, its features)."""
    k, most = golden_k(slot)
    lead = slot.rng.choice([(), (), (2,), (2, 3)])
    rows = slot.size(1, 8) if k < 1024 else 1 + slot.residue(1)
    out = min(slot.size(0, 20), most)
    if slot.large:
        k, lead = 4 * slot.rng.integer(1, 5), ()
        rows, out = 33 + slot.residue(1), 33 + slot.residue(0)
    if slot.huge:
        rows, out = 16411, {43: 36, 59: 21}[slot.number]
    return {"x": (*(lead if k < 1024 else ()), rows, k)}, {"out_channels": out, "bias": slot.bias}


def module(name: str, global_size: tuple[str, str, str], local_size: str) -> ModuleCall:
    """How upstream's host calls a linear kernel: 8 outputs at a time."""
    return ModuleCall(
        shaders=with_dot_product(name),
        bindings=("out", "x", *epilogue.CONSTS, "sizes:out", "sizes:x"),
        push=("in_scale", "in_zp", "inv_out_scale", "out_zp"),
        spec=("apply_bias", "activation"),
        global_size=global_size,
        local_size=local_size,
        packing={"weight": MATRIX},
    )


#: K of sums that pass 2**24, and one whose bias is millions of steps.
_DEEP_K = (2324, 4100, 20004, 131068)


def hard(make: Callable[[CaseSlot], Made], rows: bool = True) -> tuple[Hard, ...]:
    """Sums and biases that cancel, many rows if the operator takes more than one, twins, panels that are not full."""

    def cancelling(slot: CaseSlot) -> Made:
        params, _, _ = make(slot)
        k, by_bias = _DEEP_K[slot.number % len(_DEEP_K)], slot.number % 2 == 1
        # 1: so that the difference of sum and zero point stays below 2**31 for the largest K
        params["in_zp"] = 1 if by_bias else CANCELLED
        return params, {"x": (5 if rows else 1, k)}, {"out_channels": 9 + slot.number, "bias": by_bias}

    def positions(slot: CaseSlot) -> Made:
        params, _, _ = make(slot)
        return params, {"x": (MANY, 4)}, {"out_channels": 5 + slot.number, "bias": slot.bias}

    def tails(slot: CaseSlot) -> Made:
        params, _, _ = make(slot)
        k, count = (4, 12, 36, 60, 68, 124, 260, 20)[slot.number], (5, 13, 2, 3, 9, 12, 25, 1)[slot.number]
        features = {"out_channels": TAILS[slot.number], "bias": slot.bias}
        return params, {"x": (count if rows else 1, k)}, features

    def routed(slot: CaseSlot) -> Made:
        """As the routes of a CPU need it."""
        params, _, _ = make(slot)
        x, out = route_cases.rows(slot, not rows)
        return params, {"x": x}, {"out_channels": out, "bias": slot.bias}

    def far(slot: CaseSlot) -> Made:
        """Rows that nearly are one value, and a bias that takes all of it away."""
        params, _, _ = make(slot)
        params["in_zp"] = 1
        k = _DEEP_K[slot.number % 3]
        return params, {"x": (5 if rows else 1, k)}, {"out_channels": 41 + slot.number, "bias": True}

    found = [Hard("cancelling sums", 8, cancelling, "cancelling"), twins(make)]
    if rows:
        found.append(Hard("many positions", 2, positions, "position"))
    tail = Hard("tails", len(TAILS), tails, "random")
    return (*found, tail, Hard("routes", route_cases.ROWS, routed), Hard("far biases", 4, far, "far_bias"))


# --- what an operator says -------------------------------------------------------------------------------


def example(op: str, shape: tuple[int, ...], layout: str, out: str, **params: float) -> Case:
    """A few rows; ``params`` beside scale and zero point of the input."""
    given = {"in_scale": 0.02, "in_zp": 3, **params}
    return Case(op, given, {"x": (shape, layout)}, out, features={"out_channels": 7, "bias": True})


def rule(
    example: Case, bench: Mapping[str, Any], *refused: ErrorCase, make: Callable[[CaseSlot], Made],
    rows: bool = True,
) -> CaseRule:  # fmt: skip
    """The cases of a linear operator. ``bench`` are changes of its example; ``rows``: it takes more than one."""
    draws: dict[str, Any] = {"hard": hard(make, rows), "constants": constants}
    return case_rule.rule(example, bench, *refused, spread=960, make=make, **draws)


def operator(params: Any, **own: Any) -> OpSpec:
    """A linear operator: what all of them have in common, and what is its own."""
    shared: dict[str, Any] = {
        "name": params.where,
        "family": Family.LINEAR,
        "params": params,
        "define": define,
        "out_shape": out_shape,
        "padding": padding,
        "prepack": prepack,
        "check": check,
        "channel_dim": -1,
        "epilogue": EPILOGUE,
    }
    return OpSpec(**shared | own)
