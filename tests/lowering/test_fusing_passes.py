"""The passes that make one operator of several: what they fuse or fold, and what they leave."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed
from torch import Tensor, nn

from refsim.partition.nodes import shape_of, target_name
from refsim.partition.passes import decompose
from refsim.partition.passes.prepare import functional, scalars
from refsim.partition.passes.simplify import fold_qdq, fuse_clamp, fuse_rms_norm, fuse_views
from refsim.partition.passes.weights import fold_constants, fuse_batch_norm, linear, weight_only

from .small_programs import DQ, INT8, Q, names, prepared, program, values


def test_linear() -> None:
    w, b = torch.randn(5, 4), torch.randn(5)

    def f(m: Any, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (
            torch.addmm(m.b, x, m.w.t()),
            torch.mm(x, m.w.t()),
            torch.mm(x, y),
            torch.mm(x, y.t().contiguous().t()),
        )

    after = linear(prepared(f, (3, 4), (4, 5), w=w, b=b))
    assert names(after)[:2] == ["linear", "linear"]
    first, second = list(after.calls())[:2]
    assert first.args[1] is second.args[1] and torch.equal(after.constants[first.args[1].name], w)
    assert torch.equal(after.constants[first.args[2].name], b) and len(second.args) == 2
    # a product of activations is no linear, transposed or not
    assert names(after).count("mm") == 2


@pytest.mark.parametrize(
    ("activation", "bounds"),
    [
        (torch.relu, (0.0, 1.7976931348623157e308)),
        (nn.functional.relu6, (0.0, 6.0)),
        (nn.functional.hardtanh, (-1.0, 1.0)),
    ],
)
def test_clamp(activation: Any, bounds: tuple[float, float]) -> None:
    after = fuse_clamp(
        program(
            lambda m, x: activation(nn.functional.conv2d(x, m.w)), (1, 2, 4, 4), w=torch.randn(3, 2, 3, 3)
        )
    )
    (node,) = after.calls()
    assert target_name(node) == "et_vk.conv_with_clamp.default"
    assert node.args[-2:] == bounds and len(node.args) == 11 and shape_of(node) == (1, 3, 2, 2)


def test_no_clamp_of_what_others_read() -> None:
    def f(m: Any, x: Tensor) -> Tensor:
        y = nn.functional.conv2d(x, m.w)
        return torch.relu(y) + y

    assert names(fuse_clamp(program(f, (1, 2, 4, 4), w=torch.randn(3, 2, 1, 1)))) == [
        "convolution",
        "relu",
        "add.Tensor",
    ]


@pytest.mark.parametrize("readers", [1, 2])
def test_views_around_a_linear_of_what_is_quantized_at_run_time(readers: int) -> None:
    """They go, unless something else reads the tensor."""

    def f(m: Any, x: Tensor, s: Tensor, z: Tensor) -> Tensor:
        y = torch.ops.quantized_decomposed.dequantize_per_tensor.tensor(
            x.to(torch.int8), s, z.to(torch.int64), *INT8
        )
        return sum(torch.mm(y.view(6, 4), m.w.t()).view(2, 3, 5) for _ in range(readers))

    after = linear(prepared(f, (2, 3, 4), (1,), (1,), w=torch.randn(5, 4)))
    shapes = [shape_of(node) for node in after.calls() if target_name(node) == "aten.linear.default"]
    assert shapes == ([(2, 3, 5)] if readers == 1 else [(6, 5)] * 2)


def test_fold_qdq() -> None:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        q = Q(torch.sigmoid(x), 0.5, 3, *INT8)
        same, other = DQ(q, 0.5, 3, *INT8), DQ(q, 0.25, 3, *INT8)
        return torch.exp(same), torch.exp(other)

    given = program(f, (2, 3))
    after = fold_qdq(given)
    assert names(given).count("quantized_decomposed.dequantize_per_tensor") == 2
    first, second = after.outputs()
    assert target_name(first.args[0]) == "aten.sigmoid.default"
    # other parameters on the way back are no round trip
    assert target_name(second.args[0]) == "quantized_decomposed.dequantize_per_tensor.default"


def test_fold_constants() -> None:
    """Only what an operator packs as a weight: the bias is computed as well, the factor is left to the device."""
    scale, zero = torch.tensor([0.5, 0.25]), torch.zeros(2, dtype=torch.int64)
    weight = torch.tensor([[2, 4, 6], [8, 12, 16]], dtype=torch.int8)

    def f(m: Any, x: Tensor) -> Tensor:
        w = torch.ops.quantized_decomposed.dequantize_per_channel.default(
            m.w, m.s, m.z, 0, -127, 127, torch.int8
        )
        return torch.ops.aten.linear.default(x * m.s.sum(), w, m.s + 1)

    after = fold_constants(linear(prepared(f, (3, 3), w=weight, s=scale, z=zero))).clean()
    assert names(after)[-2:] == ["mul.Tensor", "linear"] and "add.Tensor" not in names(after)
    _x, folded, bias = (after.constants.get(str(arg)) for arg in list(after.calls())[-1].args)
    assert folded is not None and bias is not None
    assert torch.equal(folded, torch.tensor([[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]])) and folded.is_contiguous()
    assert torch.equal(bias, torch.tensor([1.5, 1.25]))


def test_fuse_views() -> None:
    def f(x: Tensor) -> Tensor:
        return torch.sqrt(torch.abs(x.view(2, 6).view(3, 4)).view(4, 3)).view(12)

    after = fuse_views(prepared(f, (2, 2, 3)))
    assert names(after) == ["view_copy", "abs", "sqrt"]
    assert [shape_of(n) for n in after.calls()] == [(12,)] * 3


def test_views_that_others_read_stay() -> None:
    def f(x: Tensor) -> Tensor:
        y = x.view(2, 6)
        return torch.abs(y).view(12) + y.view(12)

    assert names(fuse_views(prepared(f, (2, 2, 3)))).count("view_copy") == 3


@pytest.mark.parametrize("transposed", [False, True])
def test_fuse_batch_norm(transposed: bool) -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.ConvTranspose2d(4, 8, 2, 2) if transposed else nn.Conv2d(4, 8, 3, bias=False)
            self.n, self.b = nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1)
            self.n.running_mean.normal_()
            self.n.running_var.uniform_(0.5, 2.0)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.b(self.n(self.a(x)))
            return self.n(y), y  # read twice: stays a norm

    module, x = Normed().eval(), torch.randn(1, 4, 6, 5)
    before = functional(decompose.run(torch.export.export(module, (x,))))
    after = fuse_batch_norm(before)
    assert [name for name in names(before) if "norm" in name] == ["_native_batch_norm_legit_no_training"] * 2
    assert [name for name in names(after) if "norm" in name] == ["_native_batch_norm_legit_no_training"]
    for got, need in zip(values(after, x), module(x), strict=True):
        assert torch.allclose(got, need, atol=1e-5)


@pytest.mark.parametrize(
    ("low", "zero", "axis", "fused"),
    [(-100, 0, 0, True), (-8, 0, 0, False), (-100, 1, 0, False), (-100, 0, 1, False)],
)
def test_weight_only(low: int, zero: int, axis: int, fused: bool) -> None:
    constants = {"w": torch.randint(low, 8, (4, 4), dtype=torch.int8), "s": torch.rand(4) + 0.5}
    constants["w"][0, 0] = low
    constants |= {"z": torch.full((4,), zero), "bias": torch.randn(4)}

    def f(m: Any, x: Tensor) -> Tensor:
        w = torch.ops.quantized_decomposed.dequantize_per_channel.default(
            m.w, m.s, m.z, axis, -128, 127, torch.int8
        )
        return torch.nn.functional.linear(x, w, m.bias)

    before = linear(prepared(f, (3, 4), **constants))
    after = weight_only(before)
    assert names(after)[-2:] == (["_weight_int8pack_mm", "add.Tensor"] if fused else names(before)[-2:])
    x = torch.randn(3, 4)
    assert torch.allclose(values(after, x)[0], values(before, x)[0], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda m, x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * m.w, True),
        (lambda m, x: m.w * (torch.rsqrt(1e-6 + x.pow(2).mean(-1, keepdim=True)) * x), True),
        (lambda m, x: x * torch.rsqrt((x * x).mean(0, keepdim=True) + 1e-6) * m.w, False),
        (lambda m, x: x * torch.rsqrt((x * x).mean(-1) + 1e-6)[:, None] * m.w, False),
        (lambda m, x: x * torch.rsqrt((x * m.w).mean(-1, keepdim=True) + 1e-6) * m.w, False),
        (lambda m, x: x * torch.rsqrt(x.pow(3).mean(-1, keepdim=True) + 1e-6) * m.w, False),
        (lambda m, x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + m.w) * m.w, False),
    ],
)
def test_fuse_rms_norm(function: Any, found: bool) -> None:
    after = fuse_rms_norm(scalars(prepared(function, (3, 4), w=torch.rand(4))))
    assert ("et_vk.rms_norm" in names(after)) == found
    if found:
        (node,) = after.calls()
        x, weight, eps = node.args
        assert x in after.inputs() and str(weight) in after.constants and eps == pytest.approx(1e-6)
