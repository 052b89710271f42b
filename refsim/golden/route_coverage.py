"""Which native routes the cases of products take on each instruction set, and what they meet there; and the holes.

A product is a convolution or a linear operator. Its route is asked for (`refsim.exec.cpu.routes.choose`), never run, so
every machine counts the routes of all. A feature is a row of a table, as in `refsim.golden.coverage`. Each pair of
features of different topics must occur on each route of each instruction set, if an operator can have both; and so
must each way of computing that a route has, such as the shapes of its tiles. The cases behind the spread ones are few,
and enough for all of this: they alone are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from refsim.exec.cpu import routes
from refsim.exec.cpu.amx import prepack as amx
from refsim.exec.cpu.conv_problem import ConvProblem
from refsim.exec.cpu.gemm import prepack as gemm
from refsim.exec.cpu.isa import ISAS, Isa
from refsim.exec.cpu.routes import RouteChoice
from refsim.exec.cpu.strides import NHWC
from refsim.exec.cpu.winograd import prepack as winograd
from refsim.exec.cpu.winograd.kernel import TRANSFORMS
from refsim.golden.coverage import dilates, has_window
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import OpSpec
from refsim.ops.base.traits import WINDOWED, Epilogue, Family

WINOGRAD = {"winograd4": 4, "winograd2": 2}
ONE_PIXEL, DEPTHWISE, TILES, BYTE_PAIRS = "gemv", "depthwise", routes.AMX, "gemm8"
MATRICES = (TILES, *WINOGRAD, ONE_PIXEL, BYTE_PAIRS, "gemm")
ROUTES = (*MATRICES, DEPTHWISE)
#: Output channels of a vector; wider ones have as many, or fewer of them.
LANES = 16


@dataclass(frozen=True)
class RouteFeature:
    """One property of problems. ``never``: the routes that no problem with it takes. A feature without a ``topic`` must
    occur, but not with each other one."""

    topic: str
    name: str
    has: Callable[[ConvProblem], bool]
    applies: Callable[[OpSpec], bool]
    never: tuple[str, ...] = ()


def _product(op: OpSpec) -> bool:
    return any(rule.takes(op) for rule in routes.RULES if rule.route in ROUTES)


def _image(op: OpSpec) -> bool:
    return op.family in WINDOWED


def _grouped(op: OpSpec) -> bool:
    return op.family is Family.CONVOLUTION


def _words(op: OpSpec) -> bool:
    return _grouped(op) and op.any_channels


def _floats_zp(op: OpSpec) -> bool:
    return op.epilogue is Epilogue.FLOAT_ZP and op.family is not Family.DEPTHWISE


def _bytes(op: OpSpec) -> bool:
    return op.family is not Family.FLOAT_LINEAR


def _tiled(op: OpSpec) -> bool:
    return op.family is not Family.DEPTHWISE


def _steps(conv: ConvProblem, axis: int) -> int:
    return conv.stride[axis] * conv.input_dilation[axis]


def _apart(conv: ConvProblem, axis: int) -> bool:
    return conv.dilation[axis] > 1 and conv.kernel[axis] > 1


def _outputs(conv: ConvProblem) -> int:
    return int(conv.weight.shape[1])


def _rounds(conv: ConvProblem) -> bool:
    return conv.float_zp and not conv.zp_is_exact


_PLAIN = tuple(WINOGRAD)
FEATURES = (
    RouteFeature("groups", "one group", lambda conv: conv.groups == 1, _tiled),
    RouteFeature("groups", "groups", lambda conv: conv.groups > 1, _grouped, _PLAIN),
    RouteFeature("dilation", "no dilation", lambda c: not _apart(c, 0) and not _apart(c, 1), _product),
    RouteFeature("dilation", "dilated rows", lambda conv: _apart(conv, 0), dilates, _PLAIN),
    RouteFeature("dilation", "dilated columns", lambda conv: _apart(conv, 1), dilates, _PLAIN),
    RouteFeature("stride", "stride 1", lambda conv: _steps(conv, 0) == _steps(conv, 1) == 1, _product),
    RouteFeature("stride", "stride of rows", lambda conv: _steps(conv, 0) > 1, has_window, _PLAIN),
    RouteFeature("stride", "stride of columns", lambda conv: _steps(conv, 1) > 1, has_window, _PLAIN),
    RouteFeature("bias", "bias", lambda conv: conv.bias is not None, _product),
    RouteFeature("bias", "no bias", lambda conv: conv.bias is None, _product),
    RouteFeature("", "zero point in the sums", lambda conv: not _rounds(conv), _product),
    # no style of data has sums as large of weights so small
    RouteFeature("", "zero point in binary32", _rounds, _floats_zp, (BYTE_PAIRS,)),
    RouteFeature("activation", "relu", lambda conv: conv.relu, _bytes),
    RouteFeature("activation", "no relu", lambda conv: not conv.relu, _product),
    RouteFeature("K", "channels fill words", lambda conv: conv.weight.shape[4] % 4 == 0, _tiled),
    RouteFeature("K", "channels fill no words", lambda conv: conv.weight.shape[4] % 4 != 0, _words),
    RouteFeature("outputs", "outputs fill vectors", lambda conv: _outputs(conv) % LANES == 0, _tiled),
    RouteFeature("outputs", "outputs fill no vectors", lambda conv: _outputs(conv) % LANES != 0, _tiled),
    RouteFeature("pixels", "pixels fill fours", lambda c: c.out.pixels % 4 == 0, _product, (ONE_PIXEL,)),
    RouteFeature("pixels", "pixels fill no fours", lambda c: c.out.pixels % 4 != 0, _product),
    RouteFeature("images", "one image", lambda conv: conv.out.images == 1, _product),
    RouteFeature("images", "images", lambda conv: conv.out.images > 1, _image, (ONE_PIXEL,)),
    RouteFeature("written", "written as it lies", lambda conv: conv.out.kind == NHWC, _image),
    RouteFeature("written", "written through scratch", lambda conv: conv.out.kind != NHWC, _image),
)
#: Pairs that no call has: the channels of a group fill words.
NEVER = {frozenset({"groups", "channels fill no words"})}


def _tile_ways(choice: RouteChoice) -> Iterator[str]:
    conv, layout = choice.context.conv, amx.TileSizes(choice.context.conv)
    made = amx.divide(layout, choice.context.threads)
    lines = made.cut.block[1] if not made.cut.flat else layout.span(made.cut.block[1]) * made.cut.block[0]
    yield f"{made.shapes.a} by {made.shapes.b} tiles"
    yield "lines of several rows" if made.cut.flat else "lines of one row"
    yield "read as it lies" if layout.in_place else "read through scratch"
    yield "one block" if made.cut.block == layout.size[1:] else "several blocks"
    yield "one chunk of a run" if layout.window.chunks == 1 else "several chunks of a run"
    yield "whole rows of a tile" if made.shapes.k_bytes == amx.ROW_BYTES else "parts of rows of a tile"
    yield "tiles of 16 pixels" if made.cut.rows == amx.ROWS else "tiles of fewer pixels"
    if lines % made.cut.rows:
        yield "a tile beyond the last pixel"
    if -(-_outputs(conv) // amx.COLUMNS) > made.shapes.b:
        yield "several panels"


def _winograd_ways(choice: RouteChoice) -> Iterator[str]:
    conv, context, m = choice.context.conv, choice.context, WINOGRAD[choice.route]
    sides = [-(-size // m) for size in (conv.out.rows, conv.out.pixels)]
    blocks = winograd.blocks(conv, TRANSFORMS[m], context.isa, context.threads)
    yield "whole tiles" if conv.out.rows % m == conv.out.pixels % m == 0 else "tiles beyond the last pixel"
    yield "one block" if all(s <= b for s, b in zip(sides, blocks, strict=True)) else "several blocks"


def _gemm_ways(choice: RouteChoice) -> Iterator[str]:
    conv, context = choice.context.conv, choice.context
    made = gemm.cut(conv, context.isa, routes.DOTS[choice.route](context.isa))
    yield f"{made.tile.vectors} vectors of outputs"
    yield "windows copied" if made.gathered else "windows as they lie"
    if choice.route != ONE_PIXEL:
        yield "one block" if made.block == (conv.out.rows, conv.out.pixels) else "several blocks"
        rest = made.block[0] * made.block[1] % made.tile.rows
        yield "a tile beyond the last pixel" if rest else "whole tiles"


#: Route -> how a choice is computed on it, and what there must be of that. Few pixels need no second block of tiles.
_BLOCKS = ("one block", "several blocks")
_VECTORS = tuple(f"{count} vectors of outputs" for count in (1, 2, 3, 4))
_MOVED = ("windows copied", "windows as they lie")
_LAST = ("whole tiles", "a tile beyond the last pixel")
WAYS: Mapping[str, tuple[Callable[[RouteChoice], Iterator[str]], tuple[str, ...]]] = {
    TILES: (
        _tile_ways,
        (
            *(f"{a} by {b} tiles" for a, b in amx.SHAPES if (a, b) != (1, 1)),
            *("lines of several rows", "lines of one row", "read as it lies", "read through scratch"),
            *("one chunk of a run", "several chunks of a run", "whole rows of a tile"),
            *("parts of rows of a tile", "tiles of 16 pixels", "tiles of fewer pixels"),
            *("a tile beyond the last pixel", "several panels", *_BLOCKS),
        ),
    ),
    "winograd4": (_winograd_ways, ("whole tiles", "tiles beyond the last pixel", "one block")),
    "winograd2": (_winograd_ways, ("whole tiles", "one block")),
    ONE_PIXEL: (_gemm_ways, _MOVED),
    BYTE_PAIRS: (_gemm_ways, (*_VECTORS, *_MOVED, *_LAST, *_BLOCKS)),
    "gemm": (_gemm_ways, (*_VECTORS, *_MOVED, *_LAST, *_BLOCKS)),
    DEPTHWISE: (lambda choice: iter(()), ()),
}


def has(isa: Isa, route: str) -> bool:
    """Whether any product takes a route on an instruction set."""
    return {TILES: isa.tiles, BYTE_PAIRS: isa.maddubs and not isa.dpbusd}.get(route, True)


@dataclass(frozen=True)
class RouteTable:
    """How many cases take each (instruction set, route), and with which features, pairs of them and ways."""

    routes: Counter[tuple[str, str]]
    found: Counter[tuple[str, str, frozenset[str]]]

    def holes(self) -> list[str]:
        """What no case has, although an operator can."""
        return [
            f"{route} on {isa.name}: {' with '.join(sorted(wanted))}"
            for isa in ISAS
            for route in ROUTES
            if has(isa, route)
            for wanted in WANTED[route]
            if not self.found[isa.name, route, wanted]
        ]

    def by_isa(self) -> dict[str, dict[str, int]]:
        """Instruction set -> route -> cases."""
        return {
            isa.name: {route: n for (name, route), n in self.routes.items() if name == isa.name}
            for isa in ISAS
        }


def _wanted(route: str) -> Iterator[frozenset[str]]:
    """The features, pairs of them and ways that there must be on a route."""
    rule = next(rule for rule in routes.RULES if rule.route == route)
    taken = [op for op in OPS.values() if op.expand is None and rule.takes(op)]
    rows = [row for row in FEATURES if route not in row.never and any(map(row.applies, taken))]
    for a, b in combinations(rows, 2):
        possible = any(a.applies(op) and b.applies(op) for op in taken)
        if "" not in (a.topic, b.topic) and a.topic != b.topic and possible and {a.name, b.name} not in NEVER:
            yield frozenset({a.name, b.name})
    yield from (frozenset({row.name}) for row in rows)
    yield from (frozenset({way}) for way in WAYS[route][1])


WANTED = {route: tuple(_wanted(route)) for route in ROUTES}


def count(cases: Iterable[Case]) -> RouteTable:
    """The table of these cases; those that are no products do not count."""
    table = RouteTable(Counter(), Counter())
    for case in cases:
        if not _product(OPS[case.op]):
            continue
        call, names = bind(case).call, list[str]()
        for isa in ISAS:
            choice = routes.choose(call, isa=isa)
            names = names or [row.name for row in FEATURES if row.has(choice.context.conv)]
            table.routes[isa.name, choice.route] += 1
            single = (*names, *WAYS[choice.route][0](choice))
            for wanted in (*((name,) for name in single), *combinations(names, 2)):
                table.found[isa.name, choice.route, frozenset(wanted)] += 1
    return table
