"""Float products and convolutions on a device: one chain of products and sums, in the order of refsim.aten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf, prod
from typing import Any

import numpy as np

from refsim.aten.convolution import order_of
from refsim.core.layout import C
from refsim_gpu.float_site import Launched, Row, Site
from refsim_gpu.float_words import PRODUCT_DIMS
from refsim_gpu.strided import Operand, Unfit, counted, image_strides, in_space, laid, reshaped

# --- products of matrices ---------------------------------------------------------------------------------


def product(rank: int | None = None) -> Row:
    """Two tensors; ``rank`` is how many dims each must have."""

    def row(site: Site) -> Iterator[Launched]:
        a, b = map(site.real, site.node.args)
        if rank is not None and {a.view.ndim, b.view.ndim} != {rank}:
            raise Unfit(f"tensors of {a.view.ndim} and {b.view.ndim} dims")
        yield _product(site, a, b, None)

    return row


def linear(site: Site) -> Iterator[Launched]:
    x, weight = site.x, site.real(site.args[0])
    if weight.view.ndim != 2:
        raise Unfit(f"a weight of {weight.view.ndim} dims")
    bias = site.real(site.args[1]) if len(site.args) > 1 and site.args[1] is not None else None
    yield _product(site, x, weight.viewed(weight.view.T), bias)


def added_product(site: Site) -> Iterator[Launched]:
    bias, a, b, *factors = site.node.args
    if any(factor != 1 for factor in factors):
        raise Unfit(f"factors {factors}")
    yield _product(site, site.real(a), site.real(b), site.real(bias))


def _product(site: Site, a: Operand, b: Operand, bias: Operand | None) -> Launched:
    """(.., M, K) times (.., K, N), and a bias that broadcasts."""
    out = site.out()
    shape = out.view.shape
    if min(a.view.ndim, b.view.ndim) < 2:
        raise Unfit("a product with a vector")
    (m, length), (rows, n) = a.view.shape[-2:], b.view.shape[-2:]
    lead = np.broadcast_shapes(a.view.shape[:-2], b.view.shape[:-2])
    if length != rows or (*lead, m, n) != shape:
        raise Unfit(f"{list(a.view.shape)} times {list(b.view.shape)} for {list(shape)}")
    firsts = zip((a, b, bias or out), (a.view[..., :1], b.view[..., :1, :], (bias or out).view), strict=True)
    left, right, more = (operand.viewed(np.broadcast_to(view, shape)) for operand, view in firsts)
    words, dims = laid(PRODUCT_DIMS, OUT=out, A=left, B=right, C=more)
    words |= {"LENGTH": length, "A_STEP": a.view.strides[-1] // 4, "B_STEP": b.view.strides[-2] // 4}
    reads, size = (a, b, bias or a), counted(words["COUNT"])
    return site.launched("product", out, reads, size, words, BIAS=bias is not None, DIMS=dims)


# --- convolutions -----------------------------------------------------------------------------------------


def convolution(parameters: Callable[..., Any]) -> Row:
    """A convolution along one or two dims; ``parameters`` sorts the arguments behind the bias, bounds last."""

    def row(site: Site) -> Iterator[Launched]:
        weight_arg, *more = site.args
        bias_arg = more[0] if more else None
        *given, transposed, groups, low, high = parameters(*more[1:])
        x, weight, out = site.x, site.real(weight_arg), site.out()
        bias = None if bias_arg is None else site.real(bias_arg)
        count = x.view.ndim - 2
        if transposed:
            raise Unfit("a transposed convolution")
        if count not in (1, 2) or weight.view.ndim != x.view.ndim:
            raise Unfit(f"an image of {x.view.ndim} dims, and a weight of {weight.view.ndim}")
        stride, padding, dilation = (_pair(v, count) for v in given)
        oc, ic, *kernel = weight.view.shape
        sizes = [
            (size + 2 * p - d * (k - 1) - 1) // s + 1
            for size, p, d, k, s in zip(x.view.shape[2:], padding, dilation, kernel, stride, strict=True)
        ]
        right = (x.view.shape[0], oc, *sizes) == out.view.shape and x.view.shape[1] == ic * groups
        if not right or oc % groups or (bias is not None and bias.view.shape != (oc,)):
            raise Unfit(f"{list(x.view.shape)} and a weight {list(weight.view.shape)} in {groups} groups")
        if bias is not None and oc > 1 and bias.view.strides != (4,):
            raise Unfit("a bias whose elements lie apart")
        block, bias_first = order_of(site.graph.place(site.node), weight.view.shape, stride, dilation, groups)
        images = [_image(operand.view) for operand in (out, x, weight)]
        words: dict[str, Any] = image_strides(**dict(zip(("OUT", "X", "WEIGHT"), images, strict=True)))
        words |= in_space(
            KERNEL=images[2].shape[2:], STRIDE=(1, *stride)[-2:], PAD=(0, *padding)[-2:], DILATION=(1, *dilation)[-2:],
        )  # fmt: skip
        (_, _, oh, ow), (_, _, xh, xw) = images[0].shape, images[1].shape
        words |= {
            "OUT_W": ow, "OUT_H": oh, "OUT_C": oc, "X_W": xw, "X_H": xh, "COUNT": prod(out.view.shape),
            "GROUP_IN": ic, "GROUP_OUT": oc // groups, "BLOCK": block,
            "LOW": _bound(low, -inf), "HIGH": _bound(high, inf),
        }  # fmt: skip
        yield site.launched(
            "convolution", out, (x, weight, bias or weight), counted(words["COUNT"]), words, BIAS=bias is not None,
            BIAS_FIRST=bias_first, CLAMP=(low, high) != (None, None),
            CHANNELS_FIRST=site.desc(out.key).layout.inner == C,
        )  # fmt: skip

    return row


def general(
    stride: Any, padding: Any, dilation: Any, transposed: bool = False, output_padding: Any = 0, groups: int = 1
) -> Any:  # fmt: skip
    return stride, padding, dilation, transposed, groups, None, None


def clamped(
    stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int, low: Any, high: Any
) -> Any:  # fmt: skip
    if low is None and high is None:
        raise Unfit("neither a least nor a greatest value")
    return stride, padding, dilation, transposed, groups, low, high


def short(stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Any:
    return stride, padding, dilation, False, groups, None, None


def _bound(value: float | None, none: float) -> np.float32:
    """A bound in float32, infinite beyond its numbers."""
    with np.errstate(over="ignore"):
        return np.float32(none if value is None else value)


def _pair(value: Any, count: int) -> tuple[int, ...]:
    """One number for all dims, or one for each."""
    given = [value] if isinstance(value, int) else list(value)
    if len(given) not in (1, count):
        raise Unfit(f"{len(given)} numbers for {count} dims")
    return tuple(given * (count // len(given)))


def _image(view: np.ndarray) -> np.ndarray:
    """A tensor with two dims of space."""
    return view if view.ndim == 4 else reshaped(view, (*view.shape[:2], 1, *view.shape[2:]))
