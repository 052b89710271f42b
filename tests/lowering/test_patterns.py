"""Patterns: what is fused with which parameters and constants, and what is refused for which reason."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed
from torch import Tensor, nn

from refsim.partition.fx_program import FxProgram
from refsim.partition.lower import prepare
from refsim.partition.nodes import target_name
from refsim.partition.passes import fuse_patterns
from refsim.partition.passes.weights import linear
from refsim.partition.patterns import Match, find_all
from refsim.partition.refusal import CODES, RefusedNode

F = nn.functional
OPS = torch.ops.quantized_decomposed
INT8 = (-128, 127, torch.int8)
IN, OTHER, OUT = (0.03, 5), (0.07, -9), (0.11, 2)
DEPTH = torch.randint(-127, 128, (4, 1, 3, 3), dtype=torch.int8)


def q(x: Tensor, parameters: tuple[float, int] = OUT, info: tuple[Any, ...] = INT8) -> Tensor:
    return OPS.quantize_per_tensor.default(x, *parameters, *info)


def dq(x: Tensor, parameters: tuple[float, int] = IN, info: tuple[Any, ...] = INT8) -> Tensor:
    return OPS.dequantize_per_tensor.default(x, *parameters, *info)


class Net(nn.Module):
    """``function`` of a module with a quantized weight ``m.w()``, its parts and a bias."""

    def __init__(self, function: Any, weight: Tensor, axis: int = 0, **parts: Tensor) -> None:
        super().__init__()
        self.function, self.axis = function, axis
        count = weight.shape[axis]
        defaults = {
            "values": weight,
            "scale": torch.linspace(0.01, 0.02, count),
            "zero": torch.zeros(count, dtype=torch.int64),
            "bias": torch.linspace(-1, 1, count),
        }
        for name, value in (defaults | parts).items():
            self.register_buffer(name, value)

    def w(self) -> Tensor:
        return OPS.dequantize_per_channel.default(
            self.values, self.scale, self.zero, self.axis, -127, 127, torch.int8
        )

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(self, *inputs)


def prepared(net: nn.Module, *inputs: Tensor) -> FxProgram:
    return linear(prepare(torch.export.export(net, inputs)))


def find(function: Any, weight: Tensor, *inputs: Tensor, **parts: Any) -> Match | RefusedNode | None:
    """The only match or near miss of a network."""
    found = [item for _pattern, item in find_all(prepared(Net(function, weight, **parts), *inputs))]
    assert len(found) <= 1
    return found[0] if found else None


def fused(function: Any, weight: Tensor, *inputs: Tensor, **parts: Any) -> tuple[str, list[Any]]:
    """The q8ta operator that a network becomes, and its arguments; constants as tensors."""
    after, made = fuse_patterns.run(prepared(Net(function, weight, **parts), *inputs))
    assert len(made) == 1
    (node,) = [n for n in after.calls() if target_name(n).startswith("et_vk")]
    return target_name(node), [after.constants.get(str(a), a) for a in node.args]


def ints(*shape: int) -> Tensor:
    return torch.randint(-127, 128, shape, dtype=torch.int8)


X = torch.zeros(1, 8, 6, 6, dtype=torch.int8)
ROWS = torch.zeros(3, 8, dtype=torch.int8)


# --- convolutions ---


def conv(m: Any, x: Tensor, relu: bool = False, **options: Any) -> Tensor:
    y = F.conv2d(dq(x), m.w(), m.bias, **options)
    return q(torch.relu(y) if relu else y)


@pytest.mark.parametrize(
    ("weight", "options", "name"),
    [
        (ints(6, 8, 3, 3), {"padding": 1}, "q8ta_conv2d"),
        (ints(6, 8, 1, 1), {}, "q8ta_conv2d_pw"),
        (ints(6, 8, 1, 1), {"stride": 2}, "q8ta_conv2d"),
        (ints(6, 8, 1, 1), {"padding": 1}, "q8ta_conv2d"),
        (ints(8, 4, 1, 1), {"groups": 2}, "q8ta_conv2d_pw"),
        (ints(8, 4, 3, 1), {"groups": 2, "dilation": (1, 2)}, "q8ta_conv2d"),
        (ints(8, 1, 3, 3), {"groups": 8}, "q8ta_conv2d_dw"),
        (ints(8, 1, 1, 1), {"groups": 8}, "q8ta_conv2d_dw"),
    ],
)
@pytest.mark.parametrize("relu", [False, True])
def test_convolutions(weight: Tensor, options: dict[str, Any], name: str, relu: bool) -> None:
    found, args = fused(lambda m, x: conv(m, x, relu, **options), weight, X)
    assert found == f"et_vk.{name}.default"
    pair = lambda key, default: list(torch.nn.modules.utils._pair(options.get(key, default)))  # noqa: E731
    assert (*args[1:3], *args[6:8]) == (*IN, *OUT)
    assert args[9:] == [
        list(weight.shape[2:]),
        pair("stride", 1),
        pair("padding", 0),
        pair("dilation", 1),
        options.get("groups", 1),
        "relu" if relu else "none",
    ]


@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_rows(groups: int) -> None:
    weight = ints(8, 4, 3, 2)  # (IC, OC per group, KH, KW)

    def f(m: Any, x: Tensor) -> Tensor:
        bias = torch.cat([m.bias] * groups)
        return q(
            F.conv_transpose2d(
                dq(x), m.w(), bias, stride=(2, 3), padding=1, output_padding=(1, 2), groups=groups
            )
        )

    name, args = fused(f, weight, X, axis=1)
    assert name == "et_vk.q8ta_conv2d_transposed.default"
    assert args[9:] == [[3, 2], [2, 3], [1, 1], [1, 2], [1, 1], groups, "none"]
    values, ic = args[3], 8 // groups
    assert values.shape == (4 * groups, 6 * ic)
    for g in range(groups):
        for oc in range(4):
            row = values[g * 4 + oc].reshape(3, 2, ic)
            assert torch.equal(row, weight[g * ic : (g + 1) * ic, oc].permute(1, 2, 0))
    assert torch.equal(args[5], torch.linspace(0.01, 0.02, 4).repeat(groups))


# --- linears ---


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ((2, 3, 8), "linear"),
        ((1, 1, 8), "linear_gemv"),
        ((3, 1, 8), "linear_gemv"),
        ((1, 2, 2, 8), "linear"),
        ((8,), "linear_gemv"),
    ],
)
def test_rows_are_those_of_the_last_dim_but_one(shape: tuple[int, ...], name: str) -> None:
    found, _args = fused(
        lambda m, x: q(torch.relu(F.linear(dq(x), m.w(), m.bias))),
        ints(6, 8),
        torch.zeros(shape, dtype=torch.int8),
    )
    assert found == f"et_vk.q8ta_{name}.default"


# --- linears with a float output ---

HEADS: list[tuple[str, Any, int, tuple[int, ...]]] = [
    ("linear", lambda m, x: F.linear(dq(x), m.w(), m.bias), 0, (3, 8)),
    ("no bias", lambda m, x: F.linear(dq(x), m.w()), 0, (3, 8)),
    ("addmm", lambda m, x: torch.addmm(m.bias, dq(x), m.w().t()), 0, (3, 8)),
    ("mm", lambda m, x: torch.mm(dq(x), m.w()), 1, (3, 8)),
    ("relu", lambda m, x: torch.relu(F.linear(dq(x), m.w(), m.bias)), 0, (3, 8)),
    ("float operator", lambda m, x: q(torch.sigmoid(F.linear(dq(x), m.w(), m.bias))), 0, (3, 8)),
    ("two users", lambda m, x: (lambda y: (q(y), y))(F.linear(dq(x), m.w(), m.bias)), 0, (3, 8)),
    ("leading dims", lambda m, x: F.linear(dq(x), m.w(), m.bias), 0, (2, 3, 8)),
    ("view", lambda m, x: F.linear(dq(x), m.w(), m.bias).view(3, 2, 3), 0, (3, 8)),
]


@pytest.mark.parametrize(("function", "axis", "shape"), [row[1:] for row in HEADS], ids=[r[0] for r in HEADS])
def test_float_output(function: Any, axis: int, shape: tuple[int, ...]) -> None:
    """Only the product is fused; a relu or a view that is not its own stays behind it."""
    weight = ints(6, 8) if axis == 0 else ints(8, 6)
    after, (made,) = fuse_patterns.run(
        prepared(Net(function, weight, axis=axis), torch.zeros(shape, dtype=torch.int8))
    )
    (node,) = [n for n in after.calls() if target_name(n).startswith("et_vk")]
    assert target_name(node) == "et_vk.linear_q8ta_q8csw.default"
    assert str(node.args[0]) == "inputs_0" and node.args[1:3] == IN
    rows, sums, scales, bias = (after.constants.get(str(a), a) for a in node.args[3:])
    assert torch.equal(rows, weight if axis == 0 else weight.t())
    assert torch.equal(sums[:6], rows.sum(1, dtype=torch.int32)) and len(sums) == len(scales) == 8
    assert bias is None or len(bias) == 8
    assert tuple(node.meta["val"].shape) == (*shape[:-1], 6)
    assert node.meta["val"].dtype == torch.float32
    assert made.quantize in made.replaced and "refuses the file" in made.notes[0]
    left = {target_name(n).split(".")[1] for n in after.calls()} - {"linear_q8ta_q8csw"}
    assert left <= {"relu", "sigmoid", "quantize_per_tensor", "view_copy"}
    assert ("view_copy" in left) == (HEADS[-1][1] is function)


# --- refusals ---

LINEAR = lambda m, x: q(F.linear(dq(x), m.w(), m.bias))  # noqa: E731
UINT8 = (0, 255, torch.uint8)
REFUSED: list[tuple[str, Any, Tensor, tuple[Tensor, ...], dict[str, Any]]] = [
    ("input-float", lambda m, x, y: q(dq(x) + y), DEPTH, (X, X.float()), {}),
    ("output-float", lambda m, x: q(F.pixel_shuffle(dq(x), 2).sigmoid()), DEPTH, (X,), {}),
    ("input-float", lambda m, x: (lambda y: (q(F.pixel_shuffle(y, 2)), y))(dq(x)), DEPTH, (X,), {}),
    ("quant-range", lambda m, x: q(torch.relu(dq(x, info=UINT8))), DEPTH, (X.to(torch.uint8),), {}),
    ("quant-range", lambda m, x: q(torch.relu(dq(x)), info=(-127, 127, torch.int8)), DEPTH, (X,), {}),
    ("quant-range", lambda m, x: q(torch.relu(dq(x)), info=UINT8), DEPTH, (X,), {}),
    ("high-dim", LINEAR, ints(6, 8), (ROWS[None, None, None],), {}),
    ("weight-not-constant", lambda m, x, y: q(torch.mm(dq(x), dq(y))), DEPTH, (ROWS, ROWS.t()), {}),
    ("weight-float", lambda m, x: q(F.linear(dq(x), m.values)), torch.randn(6, 8), (ROWS,), {}),
    ("weight-zero-point", LINEAR, ints(6, 8), (ROWS,), {"zero": torch.tensor([0, 0, 3, 0, 0, 0])}),
    ("weight-axis", LINEAR, ints(6, 8), (ROWS,), {"axis": 1, "bias": torch.zeros(6)}),
    ("bias-not-constant", lambda m, x, y: q(F.linear(dq(x), m.w(), y)), ints(6, 8), (ROWS, torch.zeros(6)), {}),
    ("in-channels", LINEAR, ints(6, 7), (ROWS[:, :7],), {}),
    ("rows", lambda m, x: q(F.linear(dq(x).flatten(1), m.w(), m.bias)), ints(6, 8), (ROWS.reshape(3, 2, 4),), {}),
    ("batch", lambda m, x: q(torch.bmm(dq(x), m.w())), ints(2, 8, 6), (ROWS.expand(2, 3, 8),), {"axis": 2}),
    ("out-channels", lambda m, x: conv(m, x, groups=2), ints(6, 4, 3, 3), (X,), {}),
    ("in-channels", lambda m, x: conv(m, x, groups=4), ints(16, 2, 3, 3), (X,), {}),
    ("out-channels", lambda m, x: conv(m, x, groups=6), ints(6, 1, 3, 3), (X[:, :6],), {}),
    ("rank", lambda m, x: q(F.conv1d(dq(x), m.w(), m.bias)), ints(6, 8, 3), (X[:, :, 0],), {}),
    (
        "dilation",
        lambda m, x: q(F.conv_transpose2d(dq(x), m.w(), m.bias, dilation=2)),
        ints(8, 4, 3, 3),
        (X,),
        {"axis": 1},
    ),
    ("weight-axis", lambda m, x: q(F.conv_transpose2d(dq(x), m.w())), ints(8, 4, 3, 3), (X,), {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "function", "weight", "inputs", "parts"),
    REFUSED,
    ids=[f"{i} {r[0]}" for i, r in enumerate(REFUSED)],
)
def test_refused(
    code: str, function: Any, weight: Tensor, inputs: tuple[Tensor, ...], parts: dict[str, Any]
) -> None:
    found = find(function, weight, *inputs, **parts)
    assert isinstance(found, RefusedNode) and found.code == code, found
    assert CODES[code] in str(found) and found.node in str(found)


def test_float_operators_are_none_of_the_patterns_business() -> None:
    def f(m: Any, x: Tensor) -> Tensor:
        y = F.conv2d(x, m.values.float())
        return torch.relu(y) + F.pixel_shuffle(torch.cat([y] * 4, 1), 2)[..., :4, :4]

    assert find(f, ints(8, 8, 3, 3), X.float()) is None


@pytest.mark.parametrize(("shape", "noted"), [((1, 2, 3, 4, 5), False), ((2, 2, 3, 4, 5), True)])
def test_more_than_four_dims(shape: tuple[int, ...], noted: bool) -> None:
    x = torch.zeros(shape, dtype=torch.int8)
    for function in (lambda m, x: q(torch.relu(dq(x))), lambda m, x: q(dq(x) + dq(x, OTHER))):
        found = find(function, DEPTH, x)
        assert isinstance(found, Match) and bool(found.notes) is noted


def test_a_scale_that_changes_between_runs() -> None:
    def f(m: Any, x: Tensor, s: Tensor) -> Tensor:
        y = OPS.dequantize_per_tensor.tensor(x, s, torch.zeros(1, dtype=torch.int64), *INT8)
        return q(torch.relu(y))

    assert find(f, DEPTH, X, torch.ones(1)) is None


def test_a_weight_with_one_scale_for_all() -> None:
    def f(m: Any, x: Tensor) -> Tensor:
        return q(F.linear(dq(x), dq(m.values, (0.5, 0))))

    _name, args = fused(f, ints(6, 8), ROWS)
    assert args[5].tolist() == [0.5] * 6 + [0, 0]


def test_a_bias_that_is_quantized() -> None:
    def f(m: Any, x: Tensor) -> Tensor:
        bias = OPS.dequantize_per_tensor.default(m.bias, 0.5, 1, -(2**31), 2**31 - 1, torch.int32)
        return q(F.linear(dq(x), m.w(), bias))

    _name, args = fused(f, ints(6, 8), ROWS, bias=torch.arange(6, dtype=torch.int32))
    assert args[8].tolist() == [-0.5, 0, 0.5, 1, 1.5, 2, 0, 0]
