"""The float operators that a device computes, to the bits of refsim.aten: a row each, from ATen's name to launches.

A row's function gets a `Site`, which knows where the node's tensors lie, and yields launches with what they read. It
raises `Unfit`, and the host computes the node, if it has a form that no kernel takes. A device has only Vulkan's bounds
for exp, tanh or sqrt, so kernels compute these in integers (refsim_gpu.float_functions); functions that have no such
form stay with the host, but of bytes they are tables all the same (refsim.graph.bytewise).

What a device may do otherwise: give a NaN other bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf, prod
from typing import Any

import numpy as np

from refsim import aten
from refsim.aten.pool import PoolWindow, each
from refsim.aten.reduce import dealt_and_whole
from refsim.aten.row import Exact, axis
from refsim.aten.upsample import given_sizes, steps
from refsim.core.errors import RefsimError
from refsim.core.launch import Launch
from refsim.core.layout import C, W
from refsim_gpu import float_functions as functions
from refsim_gpu import float_norms as norms
from refsim_gpu import float_products as products
from refsim_gpu import word_kernels as words
from refsim_gpu.float_site import Launched, Row, Site
from refsim_gpu.float_words import GATHER, HOW, REDUCE_DIMS
from refsim_gpu.strided import Unfit, counted, image_strides, in_space, laid, reshaped


def launches(site: Site) -> list[Launched] | str:
    """The launches of a float node, or why there are none."""
    _, base, *overload = site.node.name.split(".")
    row = ROWS.get(".".join((base, *overload)), ROWS.get(base))
    if row is None:
        try:
            said = aten.find(site.node.name, str(site.node)).row
        except RefsimError:  # it is raised when the node runs
            said = None
        function = said is not None and said.exact is Exact.FUNCTION
        return "a function that devices do not compute exactly" if function else "no kernel of the device's"
    try:
        return list(row(site))
    except Unfit as reason:
        return str(reason)
    except (
        TypeError,
        ValueError,
        IndexError,
        RefsimError,
    ) as error:  # the host says what is wrong with the arguments
        return f"its arguments: {error}"


# --- single elements --------------------------------------------------------------------------------------


def unary(op: str, bounds: Callable[..., tuple[float, float]] = lambda: (0.0, 0.0)) -> Row:
    """An operation on each element; ``bounds`` makes its two numbers of the other arguments."""

    def row(site: Site) -> Iterator[Launched]:
        p, q = bounds(*site.args)
        yield site.mapped(site.out(), op, site.x, None, p, q)

    return row


def _clamp(low: float | None = None, high: float | None = None) -> tuple[float, float]:
    if low is None and high is None:
        raise Unfit("neither a least nor a greatest value")
    return (-inf if low is None else low), (inf if high is None else high)


def binary(op: str, sign: float = 1.0) -> Row:
    """An operation on two tensors that broadcast, or on a tensor and a number; ``alpha`` multiplies the second."""

    def row(site: Site) -> Iterator[Launched]:
        a, b, *rest = site.node.args
        if op == "ADD" and site.dtype(site.node.outputs[0]) == np.int32:
            yield words.added(site, int(sign))
            return
        if len(rest) > (op == "ADD") or (rest and not isinstance(rest[0], int | float)):
            raise Unfit(f"arguments {rest}")
        yield site.mapped(site.out(), op, site.real(a), site.real(b), sign * (rest[0] if rest else 1.0))

    return row


# --- moves ------------------------------------------------------------------------------------------------


def moved(view: Callable[..., np.ndarray]) -> Row:
    """A copy of a view of the input."""

    def row(site: Site) -> Iterator[Launched]:
        x, out = site.moved()
        yield site.mapped(out, "COPY", x.viewed(view(x.view, *site.args)))

    return row


def _reshape(site: Site) -> Iterator[Launched]:
    """A copy in logical order: the input in the output's shape, or the output in the input's."""
    x, out = site.moved()
    try:
        yield site.mapped(out, "COPY", x.viewed(reshaped(x.view, out.view.shape)))
    except Unfit:
        yield site.mapped(out.viewed(reshaped(out.view, x.view.shape)), "COPY", x)


def _slice(
    x: np.ndarray, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> np.ndarray:
    chosen = [slice(None)] * x.ndim
    chosen[axis(dim, x.ndim)] = slice(start, end, step)
    return x[tuple(chosen)]


def _select(x: np.ndarray, dim: int, index: int) -> np.ndarray:
    chosen: list[Any] = [slice(None)] * x.ndim
    chosen[axis(dim, x.ndim)] = index
    return x[tuple(chosen)]


def _expand(x: np.ndarray, size: Sequence[int], implicit: bool = False) -> np.ndarray:
    old = (1,) * (len(size) - x.ndim) + x.shape
    return np.broadcast_to(x, [o if s == -1 else s for s, o in zip(size, old, strict=True)])


def _cat(site: Site) -> Iterator[Launched]:
    tensors, *dim = site.node.args
    out, begin = site.out(), 0
    along = axis(dim[0] if dim else 0, out.view.ndim)
    for x in map(site.real, tensors):
        end = begin + x.view.shape[along]
        yield site.mapped(out.viewed(_slice(out.view, along, begin, end)), "COPY", x)
        begin = end


def _split(site: Site) -> Iterator[Launched]:
    """Those parts that somebody reads."""
    x, begin = site.x, 0
    along = axis(site.args[1] if len(site.args) > 1 else 0, x.view.ndim)
    for number, value in enumerate(site.node.outputs):
        end = begin + site.graph.tensors[value].shape[along]
        if value in site.wanted:
            yield site.mapped(site.out(number), "COPY", x.viewed(_slice(x.view, along, begin, end)))
        begin = end


def _pixel_shuffle(site: Site) -> Iterator[Launched]:
    x, out, r = site.x, site.out(), int(site.args[0])
    *lead, c, h, w = x.view.shape
    n = len(lead)
    source = reshaped(x.view, (*lead, c // r**2, r, r, h, w))
    target = reshaped(out.view, (*lead, c // r**2, h, r, w, r))
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    yield site.mapped(out.viewed(target), "COPY", x.viewed(source.transpose(order)))


def _nearest(site: Site) -> Iterator[Launched]:
    """By whole factors: every element stands in a block of its own."""
    x, out = site.x, site.out()
    *lead, h, w = x.view.shape
    *others, oh, ow = out.view.shape
    size, scales, *_ = (*site.args, None)
    if lead != others or oh % h or ow % w or given_sizes(x.view, size, scales) != (oh, ow):
        raise Unfit(f"{h} x {w} to {oh} x {ow}")
    blocks = (*lead, h, oh // h, w, ow // w)
    target = reshaped(out.view, blocks)
    source = np.broadcast_to(x.view[..., :, None, :, None], blocks)
    yield site.mapped(out.viewed(target), "COPY", x.viewed(source))


def _bilinear(site: Site) -> Iterator[Launched]:
    x, out = site.x, site.out()
    size, align, scales, *_ = (*site.args, None)
    if x.view.ndim != 4:
        raise Unfit(f"{x.view.ndim} dims")
    (*lead, xh, xw), (*others, oh, ow) = x.view.shape, out.view.shape
    if lead != others or given_sizes(x.view, size, scales) != (oh, ow):
        raise Unfit(f"{list(x.view.shape)} to {list(out.view.shape)}")
    step_h, step_w = steps(x.view, (oh, ow), None, align)
    words: dict[str, Any] = image_strides(OUT=out.view, X=x.view)
    words |= {"OUT_W": ow, "OUT_H": oh, "OUT_C": lead[1], "X_W": xw, "X_H": xh}
    words |= {"COUNT": prod(out.view.shape), "STEP_H": step_h, "STEP_W": step_w}
    channels_first, size = site.desc(out.key).layout.inner == C, counted(words["COUNT"])
    yield site.launched("bilinear", out, (x,), size, words, ALIGN=bool(align), CHANNELS_FIRST=channels_first)


# --- reductions -------------------------------------------------------------------------------------------


def reduction(how: str | None, divide: bool = False) -> Row:
    """A reduction of one or two dims; ``how`` None: a sum in the order of ET-VK's kernels."""

    def row(site: Site) -> Iterator[Launched]:
        given, *rest = site.args if site.args else (None,)
        listed = [given] if isinstance(given, int) else list(given or ())
        axes = [axis(d, site.x.view.ndim) for d in listed]
        if len(rest) > 1 and rest[1] is not None:
            raise Unfit("another dtype")
        yield from _reduced(site, axes, how, divide)

    return row


def _adaptive(site: Site) -> Iterator[Launched]:
    """The exporter makes a mean over (-1, -2) of an output of 1 x 1."""
    if list(site.args[0]) != [1, 1]:
        raise Unfit("more than one window")
    rank = site.x.view.ndim
    yield from _reduced(site, [rank - 1, rank - 2], None, True)


def _order(site: Site, axes: Sequence[int]) -> str:
    """As refsim.aten.reduce adds."""
    place, whcn = site.graph.place(site.node), site.x.view.ndim - 1 - axes[0]
    if len(axes) == 2:
        return "DEALT"
    if place.buffer and whcn == W:
        return "ROW"
    return "PACKED" if whcn == place.packed else "DEALT"


def _reduced(site: Site, axes: Sequence[int], how: str | None, divide: bool) -> Iterator[Launched]:
    x, out = site.x, site.alone()
    if len(axes) not in (1, 2) or len(set(axes)) != len(axes):
        raise Unfit(f"a reduction of {len(axes)} dims")
    first, *inner = dealt_and_whole(axes) if len(axes) == 2 else axes
    kept = [d for d in range(x.view.ndim) if d not in axes]
    left = x.view[tuple(slice(None) if d in kept else 0 for d in range(x.view.ndim))]
    words, rows = laid(REDUCE_DIMS, OUT=out.viewed(reshaped(out.view, left.shape)), A=x.viewed(left))
    sizes, steps = x.view.shape, [stride // 4 for stride in x.view.strides]
    words |= {
        "LENGTH": sizes[first], "STEP": steps[first],
        "INNER_LENGTH": sizes[inner[0]] if inner else 1, "INNER_STEP": steps[inner[0]] if inner else 0,
        "DIVISOR": np.float32(prod(sizes[d] for d in axes) if divide else 0),
    }  # fmt: skip
    order, size = HOW[how or _order(site, axes)], counted(words["COUNT"])
    yield site.launched("reduce", out, (x,), size, words, HOW=order, DIMS=rows)


# --- pools ------------------------------------------------------------------------------------------------


def _maximum(kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil: bool = False) -> Any:
    return kernel, stride, padding, dilation, ceil, False, None


def _average(
    kernel: Any, stride: Any = None, padding: Any = 0, ceil: bool = False, with_padding: bool = True,
    divisor: int | None = None,
) -> Any:  # fmt: skip
    return kernel, stride, padding, 1, ceil, with_padding, divisor


def pool(parameters: Callable[..., Any], average: bool) -> Row:
    """A pooling of the last two of four dims."""

    def row(site: Site) -> Iterator[Launched]:
        kernel, stride, padding, dilation, ceil, with_padding, divisor = parameters(*site.args)
        x, out = site.x, site.alone()
        desc, source = site.desc(out.key), site.desc(x.key)
        if x.view.ndim not in (3, 4):
            raise Unfit(f"{x.view.ndim} dims")
        taps = each(kernel, 1, 2)
        window = PoolWindow(
            x.view.shape[-2:],
            taps,
            each(stride, taps, 2),
            each(padding, 0, 2),
            each(dilation, 1, 2),
            bool(ceil),
        )
        (ow, oh, oc, n), (xw, xh, _, _) = desc.sizes_whcn, source.sizes_whcn
        words: dict[str, Any] = {
            f"{name}_{dim}_STRIDE": step
            for name, tensor in (("OUT", desc), ("X", source))
            for dim, step in zip("WHCN", tensor.strides_whcn, strict=True)
        }
        words |= in_space(
            KERNEL=window.kernel, STRIDE=window.stride, PAD=window.padding, DILATION=window.dilation,
            EDGE=window.padding if with_padding else (0, 0),
        )  # fmt: skip
        words |= {
            "OUT_W": ow,
            "OUT_H": oh,
            "OUT_C": oc,
            "X_W": xw,
            "X_H": xh,
            "DIVISOR": np.float32(divisor or 0),
        }
        channels_first = desc.layout.inner == C
        size = (oc * ow, oh, n) if channels_first else (ow * oh, oc, n)
        yield site.launched("pool", out, (x,), size, words, AVERAGE=average, CHANNELS_FIRST=channels_first)

    return row


def chosen_among(launch: Launch) -> int | None:
    """How many elements there are of which a launch takes those at places that its second tensor names; else None."""
    return launch.push[GATHER[0].at["LENGTH"]] if launch.shader == "float/gather" else None


#: By ATen's name without namespace, of every overload or of one. A name of several blanks is several.
_NAMED: dict[str, Row] = {
    "relu": unary("CLAMP", lambda: (0.0, inf)),
    "relu6": unary("CLAMP", lambda: (0.0, 6.0)),
    "hardtanh": unary("CLAMP", lambda low=-1.0, high=1.0: (low, high)),
    "clamp": unary("CLAMP", _clamp),
    "hardswish": unary("HARDSWISH"),
    "hardsigmoid": unary("HARDSIGMOID"),
    "leaky_relu": unary("LEAKY_RELU", lambda slope=0.01: (slope, 0.0)),
    "abs": unary("ABS"),
    "neg": unary("NEG"),
    "add": binary("ADD"),
    "sub": binary("ADD", -1.0),
    "mul": binary("MUL"),
    "div": binary("DIV"),
    "minimum min.other": binary("MINIMUM"),
    "maximum max.other": binary("MAXIMUM"),
    "clone clone_copy alias_copy detach_copy contiguous _clone_dim_order": moved(lambda x, *options: x),
    "_to_copy _to_dim_order_copy": words.converted,
    "view view_copy reshape _reshape_copy _unsafe_view et_view squeeze squeeze_copy unsqueeze unsqueeze_copy flatten":
        _reshape,
    "permute permute_copy": moved(lambda x, dims: x.transpose(tuple(dims))),
    "transpose transpose_copy": moved(lambda x, a, b: x.swapaxes(axis(a, x.ndim), axis(b, x.ndim))),
    "t t_copy": moved(lambda x: x.T),
    "slice slice_copy": moved(_slice),
    "select select_copy": moved(_select),
    "expand expand_copy": moved(_expand),
    "cat": _cat,
    "split split_copy split_with_sizes split_with_sizes_copy": _split,
    "pixel_shuffle": _pixel_shuffle,
    "mean": reduction(None, divide=True),
    "sum": reduction(None),
    "amax": reduction("LARGEST"),
    "amin": reduction("LEAST"),
    "adaptive_avg_pool2d _adaptive_avg_pool2d": _adaptive,
    "max_pool2d_with_indices max_pool2d": pool(_maximum, average=False),
    "avg_pool2d": pool(_average, average=True),
    "mm": products.product(2),
    "bmm": products.product(3),
    "matmul": products.product(),
    "linear": products.linear,
    "addmm baddbmm": products.added_product,
    "convolution": products.convolution(products.general),
    "conv_with_clamp": products.convolution(products.clamped),
    "conv1d conv2d": products.convolution(products.short),
    "upsample_nearest2d": _nearest,
    "upsample_bilinear2d": _bilinear,
    **functions.ROWS,
    **norms.ROWS,
    **words.ROWS,
}  # fmt: skip
ROWS: dict[str, Row] = {name: row for names, row in _NAMED.items() for name in names.split()}
