"""Small networks, each with something that a partitioner can get wrong; quantized with torch alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn, relu
from torch.export import ExportedProgram

from .network import Network, conv, linear, network, weight
from .quantize import ATEN, OPERATORS, quantize

transposed = partial(partial, nn.ConvTranspose2d)
FLOAT_OUTPUTS, DYNAMIC = {"float_outputs": True}, {"dynamic": True}


def one(m: Any, x: Tensor) -> Tensor:
    return m.a(x)


def two(m: Any, x: Tensor) -> Tensor:
    return m.b(relu(m.a(x)))


def three(m: Any, x: Tensor) -> Tensor:
    return m.c(relu(m.b(m.a(x))))


# --- linears and matrix products ---

CHAIN: dict[str, Any] = {"a": linear(16, 24), "b": linear(24, 8, bias=False), "c": linear(8, 12)}
PAIR: dict[str, Any] = {"a": linear(16, 20), "b": linear(20, 7)}
HEAD: dict[str, Any] = {"a": linear(16, 24), "b": linear(24, 12)}
BARE_HEAD: dict[str, Any] = {"a": linear(16, 24), "b": linear(24, 12, bias=False)}

LINEARS: dict[str, Network] = {
    "ChainedLinears": network(three, (6, 16), **CHAIN),
    "ChainedGemvs": network(three, (1, 16), **CHAIN),
    # the bias comes first; the weight is stored by output channel, as a linear's
    "Addmm": network(
        lambda m, x: torch.addmm(m.b, x, m.w.t()), (5, 16), options={"axes": {ATEN.addmm.default: 0}},
        w=weight(12, 16), b=weight(12, scale=1.0),
    ),
    # the weight is stored by input channel
    "AddmmByInput": network(lambda m, x: torch.addmm(m.b, x, m.w), (5, 16), w=weight(16, 12), b=weight(12)),
    # a square weight hides an exchange of its dims
    "SquareMm": network(lambda m, x: relu(torch.mm(x, m.w)), (5, 12), w=weight(12, 12)),
    "Bmm": network(lambda m, x: torch.bmm(x, m.w), (1, 5, 16), w=weight(1, 16, 12)),
    "Linear3D": network(two, (1, 7, 16), **PAIR),
    "Linear4D": network(two, (1, 2, 3, 16), **PAIR),
    # three rows, though the dim before the last is 1
    "LeadingRows": network(one, (3, 1, 16), a=linear(16, 8)),
    # 18 input channels do not fill words; 13 output channels need not
    "OddChannelsLinear": network(lambda m, x: m.b(m.a(x)), (6, 18), a=linear(18, 16), b=linear(16, 13)),
    "FloatHead": network(two, (6, 16), options=FLOAT_OUTPUTS, **HEAD),
    # a view on both sides of the product, which belong to it
    "FloatHead3D": network(two, (2, 3, 16), options=FLOAT_OUTPUTS, **HEAD),
    # a square weight, no bias
    "FloatMm": network(lambda m, x: torch.mm(x, m.w), (1, 16), options=FLOAT_OUTPUTS, w=weight(16, 16)),
    # two float results of one tensor
    "TwoHeads": network(
        lambda m, x: (m.a(x), m.b(x)), (6, 16), options=FLOAT_OUTPUTS,
        a=linear(16, 8), b=linear(16, 4, bias=False),
    ),
    # ten outputs and a bias
    "OddFloatHead": network(one, (6, 16), options=FLOAT_OUTPUTS, a=linear(16, 10)),
    # more dims than the kernels take
    "LinearFiveDims": network(one, (1, 2, 1, 3, 16), a=linear(16, 12)),
    # scales of activations are made at run time, as XNNPACKQuantizer does with is_dynamic
    "DynamicLinears": network(two, (6, 16), options=DYNAMIC, **BARE_HEAD),
    # a view on both sides of each product
    "DynamicLinears3D": network(two, (2, 3, 16), options=DYNAMIC, **BARE_HEAD),
}  # fmt: skip

# --- convolutions ---


def depthwise(m: Any, x: Tensor) -> Tensor:
    return m.d(relu(m.c(relu(m.b(relu(m.a(x)))))))


def batch(m: Any, x: Tensor) -> Tensor:
    y = relu(m.a(x))
    return m.b(y) + y


UP: dict[str, Any] = {
    "a": transposed(8, 12, 3, stride=2, padding=1, output_padding=1),
    "b": transposed(12, 8, 2, stride=2),
}

CONVOLUTIONS: dict[str, Network] = {
    "GroupedConvolution": network(
        three, (1, 16, 9, 7), a=conv(16, 24, 3, padding=1, groups=2),
        b=conv(24, 16, (3, 1), stride=(2, 1), padding=(1, 0), groups=2), c=conv(16, 16, 1, groups=4),
    ),
    # six input channels per group: a group begins in the middle of a word
    "OddGroupInputs": network(one, (1, 24, 9, 7), a=conv(24, 16, 3, padding=1, groups=4)),
    # three output channels per group: a group would share a word with the next
    "OddGroups": network(
        two, (1, 6, 8, 8), a=conv(6, 8, 3, padding=1), b=conv(8, 6, 3, padding=1, groups=2)
    ),
    "DilatedConvolution": network(
        two, (1, 3, 12, 10), a=conv(3, 8, 3, dilation=2, padding=2),
        b=conv(8, 8, 3, dilation=(1, 3), padding=(1, 3), bias=False),
    ),
    "DepthwiseConvolution": network(
        depthwise, (1, 3, 13, 11), a=conv(3, 16, 3, stride=2, padding=1),
        b=conv(16, 16, 3, padding=1, groups=16),
        c=conv(16, 16, 5, stride=2, padding=2, groups=16, bias=False), d=conv(16, 8, 1),
    ),
    "TransposedConvolution": network(two, (1, 8, 5, 6), **UP),
    # weights quantized along the input channels: no kernel takes that
    "TransposedWrongAxis": network(
        two, (1, 8, 5, 6), options={"axes": {ATEN.conv_transpose2d.input: 0}}, **UP
    ),
    "OddChannelsConvolution": network(
        three, (1, 5, 9, 7), a=conv(5, 13, 3), b=conv(13, 7, 1), c=conv(7, 3, 3, padding=1)
    ),
    # six depthwise channels do not fill words
    "OddDepthwise": network(one, (1, 6, 9, 7), a=conv(6, 6, 3, padding=1, groups=6)),
    "Batch": network(batch, (2, 8, 6, 6), a=conv(8, 8, 3, padding=1), b=conv(8, 8, 1)),
}  # fmt: skip

# --- where quantized operators meet ---


def residuals(m: Any, x: Tensor) -> Tensor:
    y = x + m.pw(x)
    z = relu(m.full(y)) + y
    return m.pw(m.dw(z) + m.pw(z))


def relu_elsewhere(m: Any, x: Tensor) -> Tensor:
    y = relu(m.a(x)) + x
    return relu(m.b(torch.flatten(y, 1)))


def add_to_itself(m: Any, x: Tensor) -> Tensor:
    y = m.a(x)
    return m.a(y + y)


def four_pixel_shuffles(m: Any, x: Tensor) -> Tensor:
    for up in m.up:
        x = nn.functional.pixel_shuffle(up(x).clone(), 2).clone()
    return m.out(x)


def classifier(m: Any, x: Tensor) -> Tensor:
    y = nn.functional.max_pool2d(relu(m.a(x)), 2)
    y = relu(m.b(y)).mean((2, 3), keepdim=True)
    return torch.softmax(m.c(torch.flatten(y, 1)), -1)


def float_islands(m: Any, x: Tensor) -> Tensor:
    y = nn.functional.hardswish(m.a(x))
    y = y * torch.sigmoid(m.b(y.mean((2, 3), keepdim=True)))
    small = nn.functional.avg_pool2d(y, 2)
    back = nn.functional.interpolate(small, scale_factor=2, mode="nearest")
    return m.c(torch.cat([y, back], 1))


def attention(m: Any, x: Tensor) -> Tensor:
    x = m.norm(torch.sigmoid(torch.exp(-x)))
    q, k, v = m.q(x), m.k(x), m.v(x)
    weights = torch.softmax(torch.bmm(q, k.transpose(1, 2)) * 0.35, -1)
    return torch.bmm(weights, v)


def shared_weights(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    y = m.a(x)
    return m.a(relu(y)), y


def bottlenecks(m: Any, x: Tensor) -> Tensor:
    x = nn.functional.max_pool2d(relu(m.stem(x)), 3, 2, 1)
    for block in m.blocks:
        y = block["expand"](relu(block["conv"](relu(block["reduce"](x)))))
        x = relu(y + (block["project"](x) if "project" in block else x))
    return m.head(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


def bottleneck(channels: int, width: int, stride: int, projects: bool = True) -> nn.ModuleDict:
    out = 4 * width
    parts = {
        "reduce": nn.Conv2d(channels, width, 1),
        "conv": nn.Conv2d(width, width, 3, stride, 1),
        "expand": nn.Conv2d(width, out, 1),
    }
    return nn.ModuleDict(parts | ({"project": nn.Conv2d(channels, out, 1, stride)} if projects else {}))


def five_dims(m: Any, x: Tensor, y: Tensor) -> Tensor:
    both = x + y
    return relu(both) + both


def add_relu(m: Any, x: Tensor) -> Tensor:
    return m.a(relu(x + m.a(x)))


IMAGE, POINTWISE, SAME = (1, 8, 6, 6), conv(8, 8, 1), conv(8, 8, 3, padding=1)

JOINED: dict[str, Network] = {
    # operands come from a pointwise, a general and a depthwise convolution, and from the input
    "Residuals": network(
        residuals, (1, 8, 10, 10), pw=POINTWISE, full=SAME, dw=conv(8, 8, 3, padding=1, groups=8)
    ),
    # the output's zero point is not -128: clamping does not do the relu
    "AddRelu": network(add_relu, IMAGE, options={"zero_points": {ATEN.add.Tensor: 3}}, a=POINTWISE),
    # the relu's range begins at 0, so the zero point is -128
    "AddReluAtMinimum": network(add_relu, IMAGE, a=POINTWISE),
    # behind a convolution and a linear, with zero points at which clamping does not do them
    "ReluElsewhere": network(
        relu_elsewhere, (1, 8, 3, 2), a=POINTWISE, b=linear(48, 8),
        options={"zero_points": {ATEN.conv2d.default: 3, ATEN.linear.default: -7}},
    ),
    "AddAlpha": network(lambda m, x: torch.add(m.a(x), x, alpha=2), IMAGE, a=POINTWISE),
    "BroadcastAdd": network(lambda m, x, y: x + y, IMAGE, (1, 8, 1, 1)),
    "AddToItself": network(add_to_itself, IMAGE, a=SAME),
    "FourPixelShuffles": network(
        four_pixel_shuffles, (1, 8, 3, 5), up=lambda: nn.ModuleList(nn.Conv2d(8, 32, 1) for _ in range(4)),
        out=conv(8, 3, 3, padding=1),
    ),
    # erf has no kernel in the delegate: what is before and after it cannot be one
    "TwoDelegates": network(
        lambda m, x: m.b(torch.erf(m.a(x))), (1, 16, 5, 7), a=conv(16, 8, 3), b=conv(8, 12, 1),
        options={"only": [op for op in OPERATORS if op is not ATEN.relu.default]},
    ),
    # pooling and a view between convolutions and a linear
    "Classifier": network(
        classifier, (1, 3, 16, 16), a=conv(3, 8, 3, stride=2), b=conv(8, 16, 3), c=linear(16, 10)
    ),
    # float operators inside the delegate: hardswish, sigmoid gates, resampling, concatenation
    "FloatIslands": network(
        float_islands, (1, 3, 12, 12), a=conv(3, 8, 3, padding=1), b=POINTWISE, c=conv(16, 8, 3, padding=1)
    ),
    # products of activations stay float; permutes, softmax and layer norm between linears
    "Attention": network(
        attention, (1, 6, 8), options={"only": [ATEN.linear.default]},
        **{name: linear(8, 8) for name in "qkv"}, norm=partial(nn.LayerNorm, 8),
    ),
    # a convolution that stays float, with a relu to clamp at
    "FloatConvolution": network(
        lambda m, x: torch.add(relu(m.a(x)), x) + 1.5, IMAGE, options={"only": [ATEN.add.Tensor]}, a=SAME
    ),
    # one convolution, called twice: its constants are stored once
    "SharedWeights": network(shared_weights, (1, 4, 6, 6), a=conv(4, 4, 3, padding=1)),
    # operators that work element by element take any number of dims
    "FiveDims": network(five_dims, (1, 8, 3, 4, 5), (1, 8, 3, 4, 5)),
    # three stages of bottlenecks: projections, additions of pointwise results, strided convolutions
    "SmallResNet": network(
        bottlenecks, (1, 3, 33, 33), stem=conv(3, 8, 7, stride=2, padding=3), head=linear(128, 10),
        blocks=lambda: nn.ModuleList([
            bottleneck(8, 8, 1), bottleneck(32, 16, 2), bottleneck(64, 16, 1, projects=False), bottleneck(64, 32, 2),
        ]),
    ),
}  # fmt: skip

NETWORKS: dict[str, Network] = {**LINEARS, **CONVOLUTIONS, **JOINED}


def program(name: str) -> tuple[ExportedProgram, tuple[Tensor, ...]]:
    """The quantized program of a network, and example inputs."""
    module, inputs = NETWORKS[name].made(name)
    return quantize(module, inputs, **NETWORKS[name].options), inputs


#: What is put behind each of the four pixel shuffles of FourPixelShuffles, once they are fused, as programs lose such
#: copies before they are tagged. A clone before the next stage, and a view in front of the last convolution.
IDENTITIES = (("clone", "default"), ("clone", "default"), ("clone", "default"), ("view_copy", "default"))
#: What the identities take -> clones that the graph dispatches: those three, and transitions around all four.
CLONES = {"float layouts": 11, "float and int8 layouts": 3}
