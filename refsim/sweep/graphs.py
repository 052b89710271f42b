"""Random graphs of 3 to 12 operators and the dequantizes of what they leave, drawn from a seed.

What executors compute in one step depends on an operator's neighbours, so operators alone do not show it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from refsim.core.errors import RefsimError
from refsim.core.rng import Rng
from refsim.golden.chain import ChainCase, Shape
from refsim.ops.base.case_rule import ZERO_POINTS, rounded
from refsim.sweep.draft import MENU, GraphDraft, dequantized, quantized

#: Operators of a graph before its end, and how many draws may fail before it is left as it is.
LEAST, MOST, TRIES = 3, 12, 60
#: What a seed is mixed with where a smaller shape is drawn, so that the graph itself stays what it was.
_SHAPES = 1 << 40
CHANNELS = (1, 3, 4, 5, 8, 12, 16, 17, 32, 50, 64)


def draw(seed: int) -> ChainCase:
    """The graph of a seed: the same on every machine."""
    rng = Rng(seed)
    channels = rng.choice(CHANNELS)
    shape: Shape = (
        rng.integer(1, 3 if channels < 32 else 1),
        channels,
        rng.integer(1, 12),
        rng.integer(1, 14),
    )
    rows = (rng.choice((1, 1, 3, 6, 9)), 4 * rng.integer(1, 16))
    shape = rows if rng.chance(20) else shape[1:] if rng.chance(5) else shape
    q = (rounded(rng.scale_moderate()), rng.choice(ZERO_POINTS))
    draft = GraphDraft(rng, rng.integer(0, (1 << 31) - 1) & ~1, shape, q)
    count = rng.integer(LEAST, MOST - 1)
    quantized(draft, draft.values[0], q)
    for _ in range(TRIES):
        if len(draft.links) >= count:
            break
        rng.choice(MENU)(draft)
    return _smaller(draft.chain(*_outputs(draft)), Rng(seed ^ _SHAPES))


def _smaller(chain: ChainCase, rng: Rng) -> ChainCase:
    """With a shape below that of the chain, which is then its bound, if every operator takes it."""
    keeps = (
        max(len(chain.shape) - 3, 0) if len(chain.shape) > 2 else 1
    )  # channels, or the products of a linear
    shape = tuple(size if dim == keeps else rng.integer(1, size) for dim, size in enumerate(chain.shape))
    made = replace(chain, smaller=shape)
    try:
        return chain if shape == chain.shape else replace(made, smaller=made.shrunk().shape)
    except (RefsimError, ValueError):
        return chain


def _outputs(draft: GraphDraft) -> tuple[int, ...]:
    """All values that no node reads, dequantized where they are int8, and sometimes one that is read too."""
    read = {value for link in draft.links for value in link.inputs}
    found = []
    for value in list(draft.values):
        if value.number in read:
            continue
        found.append(value if value.q is None else dequantized(draft, value) or value)
    between = [value for value in draft.of(int8=False) if value.number in read and value.number]
    if between and draft.rng.chance(25):
        found.append(draft.rng.choice(between))
    return tuple(dict.fromkeys(value.number for value in found))


def told(chain: ChainCase) -> str:
    """The input and the operators of a graph, in one line."""
    names = (link.op.removeprefix("aten.").removesuffix(".default") for link in chain.links)
    return " > ".join(("x".join(map(str, chain.shape)), *names))


def cut(chain: ChainCase) -> Iterator[ChainCase]:
    """The first nodes of a graph, with the last one's result as its only output: the fewest first."""
    value = 1
    for count, link in enumerate(chain.links, 1):
        yield replace(chain, links=chain.links[:count], outputs=(value,))
        value += max(1, len(link.shapes))
