"""The same operators on less: a program whose tensors have smaller sizes, or fewer channels, and so fewer weights.

Nothing here is sure to be a program that loads; who asks for these tries them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from refsim.core.less import less
from refsim.device.calls import constant
from refsim.device.reduce.parts import parts, program_of
from refsim.exec import shapes
from refsim.exec.model import Model, built
from refsim.formats.pte.read import Pte
from refsim.formats.pte.schema import DelegateCall, Tensor
from refsim.formats.vkgraph.edit import GraphEditor
from refsim.formats.vkgraph.read import Blob, read_blob
from refsim.formats.vkgraph.schema import VkTensor
from refsim.graph.shapes import zeros
from refsim.ops.base.arg import Kind
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call

#: Makes a program, or raises RefsimError.
Maker = Callable[[], bytes]


def smaller(pte: Pte) -> Iterator[Maker]:
    """Programs with less in them, those that take most away first."""
    model = built(pte)
    border = model.input_shapes()
    rank = max((len(sizes) for sizes, _ in border), default=0)
    for axis in range(-rank, 0):
        for size in dict.fromkeys(sizes[axis] for sizes, _ in border if len(sizes) >= -axis):
            for one in less(size):
                yield partial(_at, model, [_put(sizes, axis, size, one) for sizes, _ in border])
    for axis, size in _channels(model):
        for one in dict.fromkeys((4, 8, size // 2, (size - 1) // 4 * 4)):
            if 0 < one < size:
                yield partial(_narrowed, model, axis, size, one)


def static(pte: Pte) -> bytes:
    """The program at its bound, without dynamic dims."""
    model = built(pte)
    return _at(model, [sizes for sizes, _ in model.input_shapes()])


def _put(sizes: tuple[int, ...], axis: int, size: int, to: int) -> tuple[int, ...]:
    at = len(sizes) + axis
    return (*sizes[:at], to, *sizes[at + 1 :]) if at >= 0 and sizes[at] == size else sizes


def _at(model: Model, sizes: Sequence[tuple[int, ...]]) -> bytes:
    """The program with inputs of these sizes; the other tensors follow."""
    given = [zeros(shape, dtype) for shape, (_, dtype) in zip(sizes, model.input_shapes(), strict=True)]
    plan, blobs = shapes.at(model, model.blobs, given, model.path)
    container = model.container
    assert container is not None and plan is not None
    found = replace(container, program=replace(container.program, plans=(plan,)), held=blobs)
    return program_of(found, parts(found))


# --- channels ----------------------------------------------------------------------------------------------


def _channels(model: Model) -> Iterator[tuple[int, int]]:
    """(Axis, size) of the channels of operators that have weights, the most first."""
    found = set()
    for _, node in model.nodes():
        call = node.call
        if call is not None and any(arg.channels is not None for arg in call.op.of_kind(Kind.CONST)):
            axis = call.op.channel_dim
            found |= {(axis, desc.shape[axis]) for desc in call.tensors.values() if len(desc.shape) >= -axis}
    yield from sorted(found, key=lambda pair: -pair[1])


def _narrowed(model: Model, axis: int, size: int, to: int) -> bytes:
    """The program with ``to`` channels in place of ``size``: each constant loses those that come last."""
    container, plan = model.container, model.plan
    assert container is not None and plan is not None
    blobs = {number: _narrow(model, number, blob, axis, size, to) for number, blob in model.blobs.items()}
    values = list(plan.values)
    for step in plan.chains[0].instructions:
        if isinstance(step, DelegateCall):
            graph = blobs[step.delegate_index].graph
            for number, argument in zip((*graph.input_ids, *graph.output_ids), step.args, strict=True):
                held, tensor = values[argument], graph.values[number]
                if isinstance(held, Tensor) and isinstance(tensor, VkTensor):
                    values[argument] = replace(held, sizes=tensor.dims)
    plans = (replace(plan, values=tuple(values)),)
    found = built(replace(container, program=replace(container.program, plans=plans), held=blobs))
    return _at(found, [sizes for sizes, _ in found.input_shapes()])  # the tensors between follow


def _narrow(model: Model, delegate: int, blob: Blob, axis: int, size: int, to: int) -> Blob:
    """A delegate whose tensors have ``to`` in place of ``size`` at an axis; constants and groups go with them."""
    assert model.container is not None
    calls = {node.node_id: node.call for node in model.graphs[delegate].nodes}
    editor = GraphEditor(replace(blob, graph=replace(blob.graph, chain=())), model.path)
    for step in blob.graph.chain:
        op, call = OPS.serialized(step.name), calls.get(step.node_id)
        args = list(step.args)
        if op is not None and call is not None and call.op.channel_dim == axis and len(op.args) == len(args):
            narrow = _constants(call, size, to)
            groups = getattr(call.params, "groups", 0)
            for at, arg in enumerate(op.args):
                if arg.name in narrow:
                    args[at] = constant(editor, narrow[arg.name])
                elif arg.name == "groups" and groups == size:
                    args[at] = editor.literal(to)
        editor.call(step.name, *args)
    made = read_blob(editor.blob(), model.path, model.container.named_data)
    values = tuple(
        replace(v, dims=_put(v.dims, axis, size, to)) if isinstance(v, VkTensor) and not v.is_constant else v
        for v in made.graph.values
    )
    return replace(made, graph=replace(made.graph, values=values))


def _constants(call: Call, size: int, to: int) -> dict[str, np.ndarray | None]:
    """The constants of a call that change with the channels of its input, its output, or both."""
    op, axis = call.op, call.op.channel_dim
    found, weight = dict(call.consts), call.consts.get("weight")
    if weight is None:
        return {}
    if next(iter(call.descs.values())).shape[axis] == size and (op.matrix or weight.shape[1:] == (size,)):
        taps = weight[:, None] if op.matrix is None else op.matrix(call).weight(weight)
        rows = taps[..., :to].reshape(len(weight), -1)
        found["weight"] = np.pad(rows, ((0, 0), (0, -rows.shape[1] % 4)))
        found["weight_sums"] = rows.sum(1, dtype=np.int32)
    for arg in op.of_kind(Kind.CONST):
        value = found[arg.name]
        if arg.channels is not None and value is not None and call.out.shape[axis] == size:
            found[arg.name] = value.take(range(to), arg.channels)
    return {name: value for name, value in found.items() if value is not call.consts[name]}
