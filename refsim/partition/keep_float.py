"""Keep operators of a quantized program in float: with the float program's weights, and values not rounded where no
int8 operator reads or writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import fx

from refsim.core import choices
from refsim.core.errors import GraphError, ParameterError
from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import DEQUANTIZE, DEQUANTIZE_PER_CHANNEL, QUANTIZE, calls
from refsim.partition.passes.weights import fuse_batch_norm
from refsim.partition.patterns import Match, find_all
from refsim.partition.patterns._match import Quantized

#: A weight is the one that was rounded if it is nowhere further from the rounded one than this, in steps.
_ROUNDED = 0.51


def run(program: FxProgram, names: Sequence[str], exact: FxProgram) -> FxProgram:
    """The program with these nodes in float. ``exact``: the float program, prepared in the same way.

    ParameterError for a node that is of no quantized operator with weights, GraphError where the float program lacks
    the weights.
    """
    program = program.copy()
    constants = exact.constants | fuse_batch_norm(exact).constants
    for name in names:
        matches = [item for _, item in find_all(program) if isinstance(item, Match)]
        there = {match: [node.name for node in (*match.nodes, match.output.node)] for match in matches}
        match = next((match for match, held in there.items() if name in held), None)
        rounded = [] if match is None else list(_weights(program, match))
        if match is None or not rounded:
            need = choices.need(name, [one.anchor.name for one in matches if any(_weights(program, one))])
            raise ParameterError("--keep-float", "no quantized operator with weights", got=name, need=need)
        for node in rounded:
            _exchange(
                node,
                program.add_constant(f"{match.anchor.name}_float", _exact(program, node, constants), False),
                match,
            )
        _open(match, {node for other in matches if other is not match for node in other.nodes})
    return program.clean()


def _weights(program: FxProgram, match: Match) -> Iterator[fx.Node]:
    """The dequantized constants of a match."""
    for node in match.nodes:
        if calls(node, DEQUANTIZE, DEQUANTIZE_PER_CHANNEL) and program.is_constant(node):
            yield node


def _exact(program: FxProgram, node: fx.Node, constants: dict[str, torch.Tensor]) -> torch.Tensor:
    """The constant that a dequantized one was rounded from."""
    value, scale = program.constant(node), node.args[1]
    assert value is not None
    held = program.constant(scale) if isinstance(scale, fx.Node) else torch.as_tensor(scale)
    assert held is not None
    alike = [one for one in constants.values() if one.shape == value.shape and one.is_floating_point()]
    found = min(alike, key=lambda one: float((one - value).abs().max()), default=None)
    apart = float("inf") if found is None else float((found - value).abs().max())
    if found is None or apart > _ROUNDED * float(held.max()):
        need = "the program before it was quantized"
        raise GraphError(
            "--float", f"holds no weight that rounds to that of {node}", got=f"{apart:g} apart", need=need
        )
    return found.detach().clone()


def _exchange(old: fx.Node, new: fx.Node, match: Match) -> None:
    for user in [user for user in old.users if user in match.nodes]:
        user.replace_input_with(old, new)


def _open(match: Match, fused: set[fx.Node]) -> None:
    """Drop the rounding of what the match reads and gives, where no other fused operator is on the other side."""
    for item in match.inputs:
        if calls(item.source, QUANTIZE) and item.source.args[0] not in fused:
            _exchange(item.node, item.source.args[0], match)
    if isinstance(match.output, Quantized):
        for dequantize in [user for user in match.output.node.users if calls(user, DEQUANTIZE)]:
            for user in [user for user in dequantize.users if user not in fused]:
                user.replace_input_with(dequantize, match.output.source)
