"""Operators that compute every output word by itself: the launch, the walk over words, random shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refsim.draw import Draw
from refsim.index import block_numel
from refsim.jit import jitable
from refsim.launch import PLANE_ROW, Launch, plane_domain, words
from refsim.layout import Layout
from refsim.op import Arg, Call, Kind, OnDevice, Pad, Padding

UNSPECIFIED = Padding(Pad(0, OnDevice.UNSPECIFIED), Pad(0, OnDevice.UNSPECIFIED))


def padding_unspecified(call: Call) -> Padding:
    """Padding 0 here; upstream computes it from its inputs' padding, or leaves it to chance."""
    return UNSPECIFIED


def launch(call: Call, spec: Sequence[int], params: Sequence[object]) -> Launch:
    """Every output word by itself. Push words: output sizes and strides, those of each input, parameters."""
    inputs = [call.descs[a.name] for a in call.op.args if a.kind is Kind.INPUT]
    return Launch(
        shader=call.op.name,
        out=call.out,
        spec=tuple(spec),
        push=words(call.out.meta, *(d.meta for d in inputs), *params),
        domain=plane_domain(call.out),
        local=(256, 1, 1),
        tile=(4, 1, 1),
    )


def point(launch: Launch, word: Any, w: Any, h: Any, c: Any, n: Any) -> tuple[Any, Any, Any]:
    """The domain point that writes a word, the inverse of `word_number`."""
    each = launch.domain[0]
    plane = word // each
    return word % each, plane // PLANE_ROW, plane % PLANE_ROW


@jitable
def word_number(x: Any, y: Any, z: Any, meta: Any, at: Any, hashed: Any) -> Any:
    """The output word that a domain point of `launch` stands for; the number of words or more if there is none."""
    second_slowest = (hashed >> 8) & 15
    elements = meta[at + 4 + second_slowest] * block_numel(hashed)
    return (y * PLANE_ROW + z) * (elements // 4 if block_numel(hashed) > 1 else elements) + x


def same_shape(params: Any, shapes: Any, consts: Any, declared: Any) -> tuple[int, ...]:
    """The output has the shape of the first input."""
    return next(iter(shapes.values()))


def tensor(name: str, layouts: Sequence[Layout], kind: Kind = Kind.INPUT) -> Arg:
    return Arg(name, kind, tuple(layouts))


def params(*names: str) -> tuple[Arg, ...]:
    return tuple(Arg(name) for name in names)


def random_shape(draw: Draw, max_rank: int = 4, largest: Sequence[int] = (3, 13, 7, 11)) -> tuple[int, ...]:
    """A small shape of random rank, NCHW, every residue mod 4 likely; outer dims beyond 4 stay tiny."""
    rank = draw.integer(1, max_rank)
    limits = ([2] * 4 + list(largest))[-rank:]
    return tuple(draw.integer(1, limit) for limit in limits)


def compatible(first: Layout, layouts: Sequence[Layout]) -> list[Layout]:
    """The layouts that pack the same dim in the same block size."""
    return [row for row in layouts if row.packed_dim_info == first.packed_dim_info]
