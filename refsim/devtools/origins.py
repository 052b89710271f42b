"""Which lines of a model's code made the operators of a delegate, from the torch.export program that it was made from.

A .pte holds no names and no lines of code. Its debug handles don't help: ExecuTorch's Vulkan backend numbers the
operators of each delegate anew. So the delegate is laid beside the exported program, and values are recognized by what
they are. An int8 value has a scale, a zero point and a shape, which the quantize operator of the program has too. What
it is computed from must be what the delegate's operator reads. An operator that is not recognized so is left out.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose

from refsim.core.errors import FormatError, LimitError
from refsim.devtools.program import ExportedProgram
from refsim.devtools.record import Exported, read_exported
from refsim.exec.model import Model
from refsim.formats.dumps import value_name
from refsim.formats.pte.schema import DelegateCall
from refsim.graph.graph import Graph, Node, refs
from refsim.graph.origin import ExportedNode, Origin, Origins
from refsim.ops.base.traits import Family

#: Most comparisons of values; real programs of thousands of operators need some millions.
_MOST_WORK = 1 << 24
#: Most operators of a program that one operator of a delegate stands for.
_MOST_FUSED = 64


def origins(
    graphs: Mapping[int, Graph], program: ExportedProgram, handles: Mapping[int, frozenset[int]] | None = None
) -> dict[tuple[int, int], Origin]:
    """The origins of the operators that were recognized, by delegate and number of the node.

    ``handles``: the debug handles of the program's operators that went into a delegate, where they are known.
    """
    aliased = _Aliases(program)
    used: set[str] = set()
    found: dict[tuple[int, int], Origin] = {}
    for number, graph in graphs.items():
        own = (handles or {}).get(number)
        ends = aliased.read_by(own) if own is not None else [] if found else list(program.inputs)
        matcher = _Matcher(graph, aliased, used, own)
        matcher.bind(ends)
        for node in graph.nodes:
            origin = matcher.match(node)
            if origin is not None:
                found[number, node.number] = origin
    return found


def read_origins(model: Model, record: str) -> Origins:
    """FormatError if the record is none, or of another program."""
    method = "forward" if model.plan is None else model.plan.name
    given = read_exported(record, method)
    found = origins(model.graphs, given.program, _handles(model, given))
    places = {(number, node.number): node for number, node in model.nodes()}
    if places and not found:
        raise FormatError(
            record, "none of the operators are in this program", got=f"0 of {len(places)}",
            need=f"the record of {model.path}",
        )  # fmt: skip
    values = {place: value_name(place[0], places[place].outputs[0]) for place in found}
    computed = sum(1 for number, node in places.items() if _reads(model, number[0], node))
    return Origins(found, values, record, max(computed, len(found)))


def _reads(model: Model, number: int, node: Node) -> bool:
    """Whether a node reads more than constants."""
    return any(model.graphs[number].tensors[value].data is None for value in refs(node.args))


def _handles(model: Model, given: Exported) -> dict[int, frozenset[int]]:
    """The debug handles behind each delegate."""
    if model.plan is None or not given.handles:
        return {}
    steps = [step for chain in model.plan.chains for step in chain.instructions]
    return {
        step.delegate_index: given.handles[at]
        for at, step in enumerate(steps)
        if isinstance(step, DelegateCall) and at in given.handles
    }


class _Aliases:
    """The exported program with one name for values that are equal: the same quantize or dequantize written twice."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self.nodes = program.nodes
        self.alias: dict[str, str] = {}
        seen: dict[object, tuple[str, ...]] = {}
        self.work = 0
        self.others: list[int] = []
        converters: dict[str, list[int]] = {"quantize": [], "dequantize": []}
        for number, node in enumerate(program.nodes):
            if program.computed.isdisjoint(node.outputs):
                continue
            kind = _operation(node)
            own = converters.get(kind, self.others)
            own.append(number)
            if kind:
                key = (node.target, tuple(map(self.name, node.inputs)), tuple(sorted(node.numbers.items())))
                first = seen.setdefault(key, node.outputs)
                self.alias.update(zip(node.outputs, first, strict=False))
        self.quantizers = _by_zero_point(program, converters["quantize"])
        self.dequantizers = _by_zero_point(program, converters["dequantize"])
        self.users: dict[str, list[int]] = {}
        for number in (*converters["quantize"], *converters["dequantize"], *self.others):
            for name in self.activations(program.nodes[number]):
                self.users.setdefault(name, []).append(number)

    def name(self, name: str) -> str:
        return self.alias.get(name, name)

    def charge(self, work: int) -> None:
        """LimitError if a file is made so that the search does not end."""
        self.work += work
        if self.work > _MOST_WORK:
            raise LimitError(
                self.program.where, "too many operators are alike", got=self.work, need=f"<= {_MOST_WORK}"
            )

    def activations(self, node: ExportedNode) -> list[str]:
        """What a node reads that depends on an input."""
        return [self.name(name) for name in node.inputs if name in self.program.computed]

    def read_by(self, handles: frozenset[int]) -> list[str]:
        """What the operators with these debug handles read from outside."""
        own = [node for node in self.nodes if node.handle in handles]
        made = {self.name(name) for node in own for name in node.outputs}
        return [
            name
            for name in dict.fromkeys(n for node in own for n in self.activations(node))
            if name not in made
        ]

    def behind(self, names: Sequence[str], known: set[str]) -> tuple[set[str], set[int]] | None:
        """What values are computed from, back to values that are known, quantized or inputs; and by which nodes.

        None for more nodes than are ever fused.
        """
        ends: set[str] = set()
        region: set[int] = set()
        left = list(names)
        while left:
            name = left.pop()
            number = self.program.producer.get(name)
            if name in known or number is None or _operation(self.nodes[number]) == "quantize":
                ends.add(name)
            elif number not in region:
                region.add(number)
                if len(region) > _MOST_FUSED:
                    return None
                more = self.activations(self.nodes[number])
                self.charge(len(more))
                left += more
        return ends, region

    def source(self, number: int) -> str:
        """What a node quantizes or dequantizes; its further inputs are scales and zero points."""
        first, *_ = self.nodes[number].inputs
        return self.name(first)

    def origin(self, region: Sequence[int], name: str = "") -> Origin:
        """The origin of nodes; if they only quantize, or are none, that of what computed the value ``name``."""
        code = [number for number in region if not _operation(self.nodes[number])]
        while not code:
            number = self.program.producer.get(name)
            if number is None:
                return Origin((), input=name)
            if not _operation(self.nodes[number]):
                code = [number]
            else:
                name = self.source(number)
        return Origin(tuple(self.nodes[number] for number in code))


def _by_zero_point(program: ExportedProgram, numbers: Sequence[int]) -> dict[float | None, list[int]]:
    found: dict[float | None, list[int]] = {}
    for number in numbers:
        found.setdefault(program.nodes[number].numbers.get("zero_point"), []).append(number)
    return found


def _operation(node: ExportedNode) -> str:
    """``quantize``, ``dequantize``, or nothing for any other operator."""
    base = node.target.partition(".")[2]
    return next((kind for kind in ("quantize", "dequantize") if base.startswith(f"{kind}_")), "") * bool(
        node.inputs
    )


@dataclass
class _Matcher:
    graph: Graph
    program: _Aliases
    used: set[str]
    handles: frozenset[int] | None
    #: what was recognized: id of the delegate's value -> name in the program
    known: dict[int, str] = field(default_factory=dict)
    #: the number of the operator that was recognized last
    last: int = -1
    #: what is computed from constants alone, such as weights that are prepacked
    constants: set[int] = field(default_factory=set)

    def bind(self, names: Sequence[str]) -> None:
        """Take the inputs of the delegate for these values, where their shapes leave no choice or agree in order."""
        own = [(value, self.graph.tensors[value].shape) for value in self.graph.inputs]
        given = [(name, self.program.program.shapes.get(name)) for name in names]
        if [shape for _, shape in own] == [shape for _, shape in given]:
            self.known.update({value: name for (value, _), (name, _) in zip(own, given, strict=True)})

    def match(self, node: Node) -> Origin | None:
        inputs = [value for value in dict.fromkeys(refs(node.args)) if not self._is_constant(value)]
        if not inputs or not node.outputs:
            self.constants.update(node.outputs)
            return None
        spec = node.call.op if node.call is not None else None if node.meaning is None else node.meaning.op
        family = None if spec is None else spec.family
        if family is Family.RELAYOUT or ".clone." in node.name:
            # a clone is the value in another layout: no program of a user needs one of its own
            return self._passed_on(node, inputs)
        if family is Family.QUANTIZE:
            return self._converted(node, inputs, self.program.quantizers)
        if family is Family.DEQUANTIZE:
            return self._converted(node, inputs, self.program.dequantizers)
        if spec is not None and all(self.graph.tensors[value].dtype == "int8" for value in node.outputs):
            return self._quantized(node, inputs)
        return self._computed(node, inputs)

    def _is_constant(self, value: int) -> bool:
        return self.graph.tensors[value].data is not None or value in self.constants

    def _passed_on(self, node: Node, inputs: list[int]) -> Origin | None:
        source, *_ = inputs
        name = self.known.get(source)
        if name is None:
            return None
        self.known.update(dict.fromkeys(node.outputs, name))
        return self.program.origin((), name)

    def _fits(self, number: int, node: Node) -> bool:
        """Shape and debug handle; a shape that is not known fits."""
        made = self.program.nodes[number]
        if self.handles is not None and made.handle is not None and made.handle not in self.handles:
            return False
        (name, *_), (value, *_) = made.outputs, node.outputs
        shape = self.program.program.shapes.get(name)
        own = self.graph.tensors[value].shape
        return self.program.name(name) not in self.used and (shape is None or shape == own)

    def _candidates(self, node: Node, converters: Mapping[float | None, list[int]]) -> list[int]:
        """The nodes of the program whose scale, zero point and shape are those of a node's output, in order."""
        scale, zp = _scale(node)
        rows = converters.values() if zp is None else [converters.get(zp, []), converters.get(None, [])]
        numbers = sorted(number for row in rows for number in row)
        self.program.charge(len(numbers))
        nodes = self.program.nodes
        return [n for n in numbers if _same_scale(nodes[n], scale) and self._fits(n, node)]

    def _take(self, node: Node, number: int) -> None:
        for value, name in zip(node.outputs, self.program.nodes[number].outputs, strict=False):
            self.known[value] = self.program.name(name)
            self.used.add(self.program.name(name))
        self.last = number

    def _next(self, candidates: list[int]) -> int | None:
        """The candidate that comes next, where nothing is known of what it reads; they are in order."""
        return next(iter(candidates[bisect(candidates, self.last) :]), None)

    def _converted(
        self, node: Node, inputs: list[int], converters: Mapping[float | None, list[int]]
    ) -> Origin | None:
        """A node that only quantizes or dequantizes."""
        found = self._candidates(node, converters)
        value, *_ = inputs
        source = self.known.get(value)
        read = {number: self.program.source(number) for number in found}
        exact = [number for number in found if read[number] == source]
        chosen = exact[0] if exact else self._next(found) if source is None else None
        if chosen is None:
            return None
        self.known.setdefault(value, read[chosen])
        self._take(node, chosen)
        return self.program.origin((), read[chosen])

    def _quantized(self, node: Node, inputs: list[int]) -> Origin | None:
        """A node that computes with int8 values: it stands for what lies between two quantize operators."""
        found = self._candidates(node, self.program.quantizers)
        return self._best(node, inputs, found)

    def _best(self, node: Node, inputs: list[int], found: list[int]) -> Origin | None:
        wanted = {self.known[value] for value in inputs if value in self.known}
        whole = all(value in self.known for value in inputs)
        known = set(self.known.values())
        self.program.charge(len(known))
        regions: dict[int, set[int]] = {}
        for number in found:
            behind = self.program.behind([self.program.source(number)], known)
            if behind is None:
                continue
            if behind[0] == wanted if whole else behind[0] >= wanted:
                regions[number] = behind[1]
        chosen = min(regions, default=None) if whole else self._next(sorted(regions))
        if chosen is None:
            return None
        self._take(node, chosen)
        return self.program.origin(sorted(regions[chosen]), self.program.source(chosen))

    def _computed(self, node: Node, inputs: list[int]) -> Origin | None:
        """A node with a float output: the operator of its name, else the last of those that it can stand for."""
        wanted = {self.known.get(value) for value in inputs}
        if None in wanted:
            return self._by_name(node)
        known = set(self.known.values())
        self.program.charge(len(known))
        regions: dict[int, set[int]] = {}
        for number in self._reached(wanted):
            if self._fits(number, node):
                behind = self.program.behind(self.program.activations(self.program.nodes[number]), known)
                if behind is not None and behind[0] == wanted:
                    regions[number] = behind[1] | {number}
        named = [number for number in regions if self._is_named(number, node)]
        own = {_plain(other.name) for other in self.graph.nodes}
        fused = [number for number in regions if _plain(self.program.nodes[number].target) not in own]
        chosen = min(named, default=None)
        if chosen is None:
            chosen = self._last_of(sorted(fused))
        if chosen is None:
            return None
        self._take(node, chosen)
        return self.program.origin(sorted(regions[chosen]))

    def _is_named(self, number: int, node: Node) -> bool:
        return _plain(self.program.nodes[number].target) == _plain(node.name)

    def _by_name(self, node: Node) -> Origin | None:
        """The next operator of a node's name and shape, where nothing is known of what it reads."""
        named = [number for number in self.program.others if self._is_named(number, node)]
        chosen = self._next([number for number in named if self._fits(number, node)])
        if chosen is None:
            return None
        self._take(node, chosen)
        return self.program.origin([chosen])

    def _reached(self, wanted: set[str | None]) -> Iterator[int]:
        """The float operators that are computed from values, the nearest first; int8 values are dequantized first."""
        left = [name for name in wanted if name is not None]
        seen: set[int] = set()
        while left and len(seen) <= _MOST_FUSED:
            users = self.program.users.get(left.pop(0), ())
            for number in (number for number in users if number not in seen):
                kind = _operation(self.program.nodes[number])
                if kind == "quantize":
                    continue
                seen.add(number)
                left += self.program.nodes[number].outputs
                if not kind:
                    yield number

    def _last_of(self, numbers: list[int]) -> int | None:
        """The end of a chain of operators, each of which alone reads the one before."""
        if not numbers:
            return None
        at, *_ = numbers
        while True:
            value, *_ = self.program.nodes[at].outputs
            readers = self.program.users.get(value, [])
            if len(readers) != 1 or not {*readers} <= {*numbers}:
                return at
            (at,) = readers


def _scale(node: Node) -> tuple[float | None, float | None]:
    """Scale and zero point of what a node writes, or of what it dequantizes; None where they are not parameters."""
    held = node.call or node.meaning
    params = None if held is None else held.params
    scale = getattr(params, "out_scale", getattr(params, "scale", None))
    inverse = getattr(params, "out_inv_scale", None)
    if scale is None and inverse:
        scale = 1 / inverse
    zp = getattr(params, "out_zp", getattr(params, "zp", None))
    return _number(scale), _number(zp)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _same_scale(node: ExportedNode, scale: float | None) -> bool:
    """What is not a plain number on both sides fits."""
    given = node.numbers.get("scale")
    return given is None or scale is None or isclose(given, scale, rel_tol=1e-6)


def _plain(target: str) -> str:
    """The name without what marks a variant that does the same: ``aten.view_copy.default``, ``aten.relu_.default``."""
    space, _, rest = target.partition(".")
    return f"{space}.{rest.partition('.')[0].removesuffix('_').removesuffix('_copy')}"
