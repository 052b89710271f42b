"""Whatever a file holds, `check` gives findings or a typed error, soon."""

from __future__ import annotations

import time
from math import prod
from typing import Any

from check.broken import BROKEN
from check.small_files import Graph, T, call, program
from formats.test_write import graphs
from hypothesis import example, given, settings
from hypothesis import strategies as st

from refsim.check.finding import Finding, Level
from refsim.check.run import check_bytes
from refsim.check.runtime import runtime
from refsim.core.errors import RefsimError
from refsim.formats.literals import Null
from refsim.formats.vkgraph.schema import OperatorCall, VkGraph
from refsim.formats.vkgraph.write import write_blob


def findings(data: bytes) -> list[Finding]:
    """What `check` finds; nothing where it refuses the file with a typed error."""
    start = time.process_time()
    try:
        found = check_bytes(data, "damaged")
    except RefsimError as error:
        assert str(error) and len(str(error)) < 500
        found = []
    # of the processor, not of the clock: machines are shared. A hang takes far longer
    assert time.process_time() - start < 20
    for finding in found:
        assert len(finding.what) < 4000 and finding.why and finding.fix and str(finding.place)
    return found


@settings(max_examples=100)
@given(graphs())
@example((VkGraph("", (OperatorCall(0, "mul", (0,)),), (Null(),), (), ()), b""))
def test_graphs_of_anything(case: tuple[Any, bytes]) -> None:
    """Values, names and ids at random: every operator that there is not is told, whatever stands beside it.

    Hypothesis takes words of this project for names, so one may be an operator that there is.
    """
    graph, raw = case
    found = findings(write_blob(graph, raw))
    missing = {f.place.node for f in found if f.rule in ("missing-operator", "claimed-operator")}
    known = set(runtime().operators)
    assert missing == {node for node, call in enumerate(graph.chain) if call.name not in known}


def _written(one: T) -> T:
    """A tensor that a file can hold: of at most 2 GB, and a constant of few elements."""
    one = one.but(dims=one.dims[:4]) if prod(one.dims) >= 1 << 28 else one
    return one.but(constant=False) if prod(one.dims) >= 1 << 16 else one


tensors = st.builds(
    T,
    st.lists(st.sampled_from((0, 1, 2, 3, 4, 8, 64)), max_size=5).map(tuple),
    st.sampled_from(("float32", "float16", "int8", "int32", "bool", "uint8")),
    st.sampled_from((0, 1, 2, 255)),
    st.sampled_from((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 255)),
    st.booleans(),
    st.sampled_from((-1, 0, 1)),
).map(_written)
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-8, 300),
    st.floats(-2, 2, width=32),
    st.sampled_from(("none", "relu", "tanh", "floor")),
    st.lists(st.integers(-3, 9), max_size=4),
)
arguments = st.lists(
    st.one_of(tensors, plain, st.lists(st.one_of(tensors, st.none()), max_size=3)), max_size=10
)


@settings(max_examples=200)
@given(st.sampled_from(sorted(runtime().operators)), arguments, tensors)
def test_any_arguments_of_any_operator(operator: str, given: list[Any], out: T) -> None:
    findings(call(operator, *given, out))


@settings(max_examples=100)
@given(st.sampled_from(BROKEN), st.integers(0, 11), st.one_of(tensors, plain))
def test_one_argument_of_another_kind(row: Any, at: int, other: Any) -> None:
    """A call that is right but for one argument."""
    args = list(row.twins[0] if row.twins else row.bad)
    args[at % len(args)] = other
    if not isinstance(args[-1], T | list):
        args.append(T((4,)))
    findings(call(row.operator, *args))


#: Operators of one tensor that keep its shape, for float textures packed along the channels.
UNARY = tuple(
    f"aten.{name}.default" for name in ("relu", "sigmoid", "tanh", "exp", "abs", "hardswish", "neg", "sqrt")
)
BINARY = {"aten.add.Tensor": (1,), "aten.sub.Tensor": (1,), "aten.mul.Tensor": (), "aten.minimum.default": ()}


@settings(max_examples=100)
@given(st.data())
def test_sound_graphs_have_no_findings(draw: st.DataObject) -> None:
    """Operators in any order, on values that are there, in any of the places that all of them take."""
    dims = draw.draw(st.lists(st.sampled_from((1, 3, 4, 8, 17)), min_size=1, max_size=4).map(tuple))
    kind = T(
        dims,
        draw.draw(st.sampled_from(("float32", "float16"))),
        draw.draw(st.sampled_from((0, 1))),
        draw.draw(st.sampled_from((0, 2))),
    )
    values, graph = [kind, kind.but()], Graph()
    for _ in range(draw.draw(st.integers(1, 8))):
        name = draw.draw(st.sampled_from((*UNARY, *BINARY)))
        reads = [draw.draw(st.sampled_from(values)) for _ in range(1 + (name in BINARY))]
        values.append(kind.but())
        graph.call(name, *reads, *BINARY.get(name, ()), values[-1])
    assert not check_bytes(program(graph))
    assert not [f for f in check_bytes(graph.blob()) if f.level is not Level.NOTE]
