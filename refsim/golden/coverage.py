"""What the corpus covers, by operator, layouts and features; and the holes in it.

A feature is a row of a table: which operators it applies to, and which cases have it. Each feature must occur for
each of its operators. A feature marked ``everywhere`` must also occur for each combination of layouts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from math import gcd, prod
from typing import Annotated

from refsim.golden.chain import ChainCase
from refsim.golden.chain_rules import KINDS
from refsim.ops.base.arg import Kind
from refsim.ops.base.case import Case
from refsim.ops.base.case_rule import ZERO_POINTS
from refsim.ops.base.conv import WindowVariant
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import OpSpec
from refsim.ops.base.styles import SPREAD
from refsim.ops.base.traits import BY_ROWS, INTEGER_SUMS, WINDOWED, Family

PRIMES = frozenset((2, 3, 5, 7, 11, 13, 17, 19, 23))
Pair = tuple[int, int]


@dataclass(frozen=True)
class Feature:
    """One property of cases."""

    name: str
    applies: Callable[[OpSpec], bool]
    has: Callable[[Case], bool]
    everywhere: bool = True


def _shape(case: Case) -> tuple[int, ...]:
    return tuple(case.params.get("shape") or next(iter(case.inputs.values()))[0])


def shape4(case: Case) -> tuple[int, ...]:
    """(N, C, H, W) of the tensor that carries the sizes: the first input, or what is staged."""
    shape = _shape(case)
    padded = (1,) * (4 - len(shape)) + tuple(shape)
    return (prod(padded[:-3]), *padded[-3:])


def _always(op: OpSpec) -> bool:
    return True


def _image(op: OpSpec) -> bool:
    """Operators on images of any size: all but those that work on rows."""
    return op.family not in BY_ROWS


def _any_rank(op: OpSpec) -> bool:
    return _image(op) and op.min_rank == 1


def _free_channels(op: OpSpec) -> bool:
    return _image(op) and op.any_channels


def has_window(op: OpSpec) -> bool:
    """Whether an operator has a window of several taps."""
    return op.family in WINDOWED and not op.one_tap


def dilates(op: OpSpec) -> bool:
    """Whether it takes a dilation."""
    return has_window(op) and not op.transposed


def _has_weights(op: OpSpec) -> bool:
    return op.family in INTEGER_SUMS


def _long_sums(op: OpSpec) -> bool:
    """Operators that sum over channels, however many there are."""
    return _has_weights(op) and op.family is not Family.DEPTHWISE


def _tiled(op: OpSpec) -> bool:
    """Operators whose kernels compute tiles of positions by channels."""
    return _long_sums(op) and not op.one_row


def _sums_floats(op: OpSpec) -> bool:
    """Operators on float rows whose weights have scales in groups."""
    return op.family is Family.WEIGHT_ONLY


def _several_scales(op: OpSpec) -> bool:
    return sum(arg.kind is Kind.PARAM and arg.name.endswith("scale") for arg in op.args) > 1


def _scalars(op: OpSpec) -> bool:
    return any(f.name.endswith("zp") for f in fields(op.params))


def _param(name: str) -> Callable[[OpSpec], bool]:
    return lambda op: any(f.name == name for f in fields(op.params))


_looks_up = _param("is_linear_weight")


def _pair(name: str, test: Callable[[int, int], bool]) -> Callable[[Case], bool]:
    return lambda case: test(*case.params[name])


def _param_is(name: str, value: object) -> Callable[[Case], bool]:
    return lambda case: bool(case.params[name] == value)


def _of_style(style: str) -> Callable[[Case], bool]:
    return lambda case: case.style == style


def _zero_points(case: Case) -> list[int]:
    return [v for k, v in case.params.items() if k.endswith("_zp") or k == "zp"]


def _scales(case: Case) -> list[float]:
    return [v for k, v in case.params.items() if k.endswith("scale")]


def _outputs(case: Case) -> int:
    return int(case.features["out_channels"])


def _one_row(case: Case) -> bool:
    return _shape(case)[-2] == 1


def _positions(case: Case) -> int:
    """About how many output positions there are: rows, or pixels divided by the stride (multiplied if transposed)."""
    shape = case.inputs["x"][0]
    if "groups" not in case.params:
        return prod(shape[:-1])
    strides = prod(case.params.get("stride", (1, 1)))
    pixels = prod(shape) // shape[-3]
    return pixels * strides if OPS[case.op].transposed else pixels // strides


def _k(case: Case) -> int:
    taps = prod(case.params.get("kernel_size", ()))
    shape = next(iter(case.inputs.values()))[0]
    return taps * (shape[-3] // case.params["groups"] if "groups" in case.params else shape[-1])


def _is_wide(case: Case) -> bool:
    window = case.params["kernel_size"] == (3, 3) and case.params["stride"] == (1, 1)
    return window and case.params["groups"] == 1 and case.inputs["x"][0][-3] > 227


def _several_blocks(case: Case) -> bool:
    _, c, h, w = shape4(case)
    return w > 4 and (c > 4 or h > 4)


def _windows(op: OpSpec) -> dict[tuple[Pair, Pair], WindowVariant]:
    """The windows, as (kernel, stride), for which the operator's shader has special builds."""
    return {(row.kernel, row.stride): row for row in op.variants if isinstance(row, WindowVariant)}


def _built() -> Iterator[Feature]:
    """A feature for each window that has such a build."""
    for window in {sides: row for op in OPS.values() for sides, row in _windows(op).items()}.values():
        wanted = {"kernel_size": window.kernel, "stride": window.stride}
        wanted |= {"padding": (window.pad_w,) * 2, "dilation": (1, 1)}
        yield Feature(
            "kernel {}x{}, stride {}x{}".format(*window.kernel, *window.stride),
            lambda op, sides=(window.kernel, window.stride): sides in _windows(op),  # type: ignore[misc]
            lambda case, wanted=wanted: wanted.items() <= case.params.items(),  # type: ignore[misc]
        )


#: In the order of the rows of `refsim golden coverage`.
FEATURES: tuple[Feature, ...] = (
    # sizes
    *(
        Feature(
            f"{name} % 4 == {residue}",
            _free_channels if name == "C" else _image,
            lambda case, dim=dim, residue=residue: shape4(case)[dim] % 4 == residue,  # type: ignore[misc]
        )
        for residue in range(4)
        for dim, name in ((3, "W"), (2, "H"), (1, "C"))
    ),
    Feature("N >= 2", _image, lambda case: shape4(case)[0] >= 2),
    Feature("N == 1", _image, lambda case: shape4(case)[0] == 1),
    Feature(
        "rows folded from leading dims",
        lambda op: op.family in BY_ROWS and not op.one_row,
        lambda c: len(_shape(c)) > (1 if OPS[c.op].family is Family.LOOKUP else 2),
    ),
    # weights with scales in groups
    *(
        Feature(f"groups of {n}", _param("group_size"), _param_is("group_size", n))
        for n in (4, 8, 16, 32, 64)
    ),
    Feature("one row", _sums_floats, _one_row),
    Feature("several rows", _sums_floats, lambda case: not _one_row(case)),
    Feature("float bias", _sums_floats, lambda case: case.features["bias"]),
    Feature("no float bias", _sums_floats, lambda case: not case.features["bias"]),
    Feature("a row of at least 512", _sums_floats, lambda case: _shape(case)[-1] >= 512),
    Feature("outputs % 8 == 4", _sums_floats, lambda case: _outputs(case) % 8 == 4),
    Feature("one row, more than 1024 outputs", _sums_floats, lambda c: _one_row(c) and _outputs(c) > 1024),
    Feature("one row, more than 4096 outputs", _sums_floats, lambda c: _one_row(c) and _outputs(c) > 4096),
    Feature(
        "more than 65,536 rows",
        lambda op: op.int4 is not None and op.family is not Family.GROUP_LINEAR,  # no device has such a grid
        lambda c: prod(_shape(c)[: len(_shape(c)) - (OPS[c.op].family is not Family.LOOKUP)]) > 65_536,
        False,
    ),
    Feature("even elements in low nibbles", _looks_up, lambda case: case.params["is_linear_weight"]),
    Feature("even elements in high nibbles", _looks_up, lambda case: not case.params["is_linear_weight"]),
    Feature("groups of no power of two", _looks_up, lambda case: case.params["group_size"] % 3 == 0, False),
    Feature("an index outside the table", _looks_up, lambda case: bool(case.features.get("outside"))),
    Feature("more than 1024 indices", _looks_up, lambda case: prod(_shape(case)) > 1024),
    # shapes
    Feature("rank below 4", _any_rank, lambda case: len(_shape(case)) < 4, False),
    Feature(
        "rank above 4",
        lambda op: (
            op.family in (Family.QUANTIZE, Family.DEQUANTIZE)
        ),  # upstream's kernel indexes more than four
        lambda c: len(c.inputs["x"][0]) > 4,
        False,
    ),
    Feature("prime H and W", _image, lambda case: {*shape4(case)[2:]} <= PRIMES),
    Feature("H != W", _image, lambda case: shape4(case)[2] != shape4(case)[3]),
    Feature("H and W without a common factor", _image, lambda case: gcd(*shape4(case)[2:]) == 1),
    Feature("several blocks a row", _image, _several_blocks),
    # quantization
    *(
        Feature(f"zero point {zp}", _scalars, lambda case, zp=zp: zp in _zero_points(case))  # type: ignore[misc]
        for zp in ZERO_POINTS[:5]
    ),
    Feature("distinct scales", _several_scales, lambda case: len(set(_scales(case))) == len(_scales(case))),
    Feature(
        "distinct zero points", _several_scales, lambda c: len(set(_zero_points(c))) == len(_zero_points(c))
    ),
    # tiles
    Feature("W > 64", lambda op: _any_rank(op) and _scalars(op), lambda case: shape4(case)[3] > 64),
    Feature("more than 32 output channels", _has_weights, lambda case: _outputs(case) > 32),
    Feature("more than 15,000 positions", _tiled, lambda case: _positions(case) > 15_000),
    Feature("more than 65,536 positions", _tiled, lambda case: _positions(case) > 65_536, False),
    Feature(
        "3x3 over more than 227 channels",
        lambda op: op.family is Family.CONVOLUTION and has_window(op),
        _is_wide,
        False,
    ),
    # data
    *(Feature(f"data {style}", _always, _of_style(style)) for style in SPREAD),
    Feature("sums that cancel", _has_weights, _of_style("cancelling"), False),
    Feature("biases of 2^24 steps", _has_weights, _of_style("far_bias"), False),
    Feature(
        "weights of the other sign",
        lambda op: _has_weights(op) or op.int4 is not None,
        lambda case: bool(case.features.get("negated")),
        False,
    ),
    Feature("poisoned padding", _always, lambda case: case.poison),
    Feature("zeroed padding", _always, lambda case: not case.poison),
    # sums
    Feature("bias", _has_weights, lambda case: bool(case.features.get("bias"))),
    Feature("no bias", _has_weights, lambda case: not case.features.get("bias")),
    *(
        Feature(
            f"activation {activation}",
            lambda op: _has_weights(op) and _param("activation")(op),
            _param_is("activation", activation),
        )
        for activation in ("relu", "none")
    ),
    Feature("output channels % 4 != 0", _long_sums, lambda case: _outputs(case) % 4 != 0),
    Feature("K >= 256", _long_sums, lambda case: _k(case) >= 256),
    Feature(
        "K > 100000", lambda op: op.family in BY_ROWS and _has_weights(op), lambda case: _k(case) > 100_000
    ),
    # windows
    Feature("stride > 1", has_window, _pair("stride", lambda h, w: max(h, w) > 1)),
    Feature("unequal strides", has_window, _pair("stride", lambda h, w: h != w)),
    Feature("padding", has_window, _pair("padding", lambda h, w: max(h, w) > 0)),
    Feature("unequal padding", has_window, _pair("padding", lambda h, w: h != w)),
    Feature("no padding", has_window, _pair("padding", lambda h, w: h == w == 0)),
    Feature("unequal kernel", has_window, _pair("kernel_size", lambda h, w: h != w)),
    Feature("dilation", dilates, _pair("dilation", lambda h, w: max(h, w) > 1)),
    Feature("unequal dilation", dilates, _pair("dilation", lambda h, w: h != w)),
    *_built(),
    Feature("output padding", _param("output_padding"), _pair("output_padding", lambda h, w: max(h, w) > 0)),
    Feature(
        "groups",
        lambda op: op.family in WINDOWED and op.family is not Family.DEPTHWISE,
        lambda case: case.params["groups"] > 1,
    ),
    Feature("alpha", _param("alpha"), lambda case: case.params["alpha"] != 1.0),
    Feature("upscale 2", _param("upscale"), _param_is("upscale", 2)),
    Feature("upscale not 2", _param("upscale"), lambda case: case.params["upscale"] != 2),
)


def layouts(case: Case) -> tuple[str, ...]:
    """Short names of a case's layouts, the output's last."""
    return (*(row for _, row in case.inputs.values()), case.out_layout)


@dataclass(frozen=True)
class OperatorCoverage:
    """What the corpus has of an operator.

    ``found``: the pairs of layouts and a feature that some case has.
    """

    op: str
    layouts: Annotated[dict[str, int], "Cases by layouts."]
    features: Annotated[dict[str, int], "Cases by feature."]
    found: set[tuple[str, str]]

    @property
    def cases(self) -> Annotated[int, "How many cases."]:
        return sum(self.layouts.values())

    def holes(self) -> Iterator[str]:
        """Legal combinations of layouts, and features that apply, that do not occur."""
        everywhere = [row.name for row in FEATURES if row.everywhere and row.name in self.features]
        for names, number in self.layouts.items():
            inputs, _, out = names.rpartition(" ")
            lacking = [name for name in everywhere if (names, name) not in self.found]
            yield from (
                f"{self.op} {inputs} -> {out}: {what}" for what in (lacking if number else ["no case"])
            )
        yield from (f"{self.op}: {name}" for name, number in self.features.items() if not number)


def chains_by_kind(chains: Iterable[ChainCase]) -> dict[str, int]:
    """How many chains of each kind there are, of kinds that have none as well."""
    found = Counter(chain.kind for chain in chains)
    return {kind.name: found[kind.name] for kind in KINDS}


def count(cases: Iterable[Case]) -> dict[str, OperatorCoverage]:
    """What there is of each operator; cases in layouts that it does not take do not count."""
    features = {name: [row for row in FEATURES if row.applies(op)] for name, op in OPS.items()}
    table = {
        name: OperatorCoverage(
            name,
            {" ".join(map(str, rows)): 0 for rows in op.layouts},
            {row.name: 0 for row in features[name]},
            set(),
        )
        for name, op in OPS.items()
    }
    for case in cases:
        row, names = table[case.op], " ".join(layouts(case))
        if names in row.layouts:
            shown = [feature.name for feature in features[case.op] if feature.has(case)]
            row.layouts[names] += 1
            row.features.update((name, row.features[name] + 1) for name in shown)
            row.found.update((names, name) for name in shown)
    return table
