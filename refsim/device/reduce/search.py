"""The search for the smallest program on which a test still fails: first operators, then memory, sizes and channels.

Operators are taken away by delta debugging (Zeller and Hildebrandt, 2002), after the shortest beginning that fails, and
the shortest end of that. Nothing that is tried is sure to load; what is kept at any time was seen to fail.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from refsim.core.errors import RefsimError
from refsim.core.less import less
from refsim.device.calls import constant
from refsim.device.reduce.parts import Part, parts, program_of
from refsim.exec import shapes
from refsim.exec.model import Model, built
from refsim.formats.pte.read import Pte, read_pte
from refsim.formats.pte.schema import DelegateCall, Tensor
from refsim.formats.vkgraph.edit import GraphEditor
from refsim.formats.vkgraph.read import Blob, read_blob
from refsim.formats.vkgraph.schema import VkTensor
from refsim.graph.memory import with_objects
from refsim.graph.shapes import zeros
from refsim.ops.base.arg import Kind
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call

#: Whether a program still fails. It may raise `Over`.
Test = Callable[[bytes], bool]


class Over(Exception):
    """The time of a search is over."""


@dataclass(frozen=True)
class Reduced:
    """The smallest program that was found, and what it took. ``data`` is None where no smaller one fails.

    ``operators``: before and now. ``tried``: how many programs the test saw. ``ended``: nothing smaller is left to try,
    else the time was over, or somebody stopped it. ``shares``: tensors share memory, and without that it does not fail.
    """

    data: bytes | None
    operators: tuple[int, int]
    tried: int
    ended: bool
    shares: bool = False


@dataclass
class _Search:
    """What was tried, and the smallest program so far."""

    where: str
    fails: Test
    end: float
    smallest: Callable[[bytes], None]
    data: bytes | None = None
    tried: int = 0

    def __post_init__(self) -> None:
        self._seen: set[bytes] = set()

    def program(self, source: Pte) -> Pte:
        """The smallest so far."""
        return source if self.data is None else read_pte(self.data, self.where)

    def take(self, make: Maker) -> bool:
        """Try a program, and keep it if it fails. One that cannot be made, or not loaded, does not count."""
        try:
            data = make()
            digest = hashlib.sha256(data).digest()
            if digest in self._seen:
                return False
            self._seen.add(digest)
            built(read_pte(data, self.where), runs=False)
        except RefsimError:
            return False
        if time.monotonic() > self.end:
            raise Over
        self.tried += 1
        if not self.fails(data):
            return False
        self.data = data
        self.smallest(data)
        return True


def reduce(
    pte: Pte,
    fails: Test,
    end: float,
    smallest: Callable[[bytes], None] = lambda data: None,
) -> Reduced:
    """The smallest program found on which ``fails`` is true, as it must be of the program itself.

    ``end``: the time of `time.monotonic` at which the search stops. ``smallest`` is given each smaller program as it is
    found. GraphError for a program that cannot be cut.
    """
    every = parts(pte)
    search = _Search(pte.where, fails, end, smallest)
    shares = False
    try:
        kept = _fewest(every, lambda kept: search.take(partial(program_of, pte, kept)))
        search.take(partial(program_of, pte, kept, True))
        shares = _plainer(search, pte)
        while any(search.take(make) for make in smaller(search.program(pte))):
            pass  # until none fails
        ended = True
    except (Over, KeyboardInterrupt):
        ended = False
    now = len(every) if search.data is None else len(parts(read_pte(search.data, pte.where)))
    return Reduced(search.data, (len(every), now), search.tried, ended, shares)


def _fewest(every: Sequence[Part], fails: Callable[[Sequence[Part]], bool]) -> list[Part]:
    """The operators that are left when none of them can be left out."""
    kept = list(every)
    fails(kept)  # the whole program, written anew
    kept = kept[: _least(len(kept), lambda count: fails(kept[:count]))]
    kept = kept[len(kept) - _least(len(kept), lambda count: fails(kept[len(kept) - count :])) :]
    pieces = 2
    while len(kept) > 1:
        size = -(-len(kept) // pieces)
        chunks = [kept[at : at + size] for at in range(0, len(kept), size)]
        rests = [[part for part in kept if part not in chunk] for chunk in chunks]
        options = [*chunks, *rests] if len(chunks) > 2 else chunks
        found = next((option for option in options if fails(option)), None)
        if found is not None:
            kept, pieces = found, 2 if found in chunks else max(pieces - 1, 2)
        elif pieces >= len(kept):
            break
        else:
            pieces = min(2 * pieces, len(kept))
    return kept


def _least(count: int, fails: Callable[[int], bool]) -> int:
    """The least number that fails, where larger ones do; by halves."""
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(middle) else (middle, high)
    return high


def _plainer(search: _Search, source: Pte) -> bool:
    """The program without dynamic dims and without shared memory, if it fails so; whether memory stays shared."""
    search.take(partial(static, search.program(source)))
    pte = search.program(source)
    blobs = dict(pte.blobs(pte.plan()))
    if not any(map(_shares, blobs.values())):
        return False
    apart = {n: replace(blob, graph=with_objects(blob.graph, {})) for n, blob in blobs.items()}
    return not search.take(partial(program_of, replace(pte, held=apart), parts(pte)))


def _shares(blob: Blob) -> bool:
    """Whether two tensors of a delegate have one memory object."""
    held = [v.mem_obj_id for v in blob.graph.values if isinstance(v, VkTensor) and v.mem_obj_id >= 0]
    return len(set(held)) < len(held)


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
