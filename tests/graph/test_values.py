"""What a graph says of its values and nodes: bytes, where a float operator computes, what upstream gets wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from refsim.aten.row import Place
from refsim.core.errors import GraphError
from refsim.core.layout import PACKED_4C, PACKED_4W4C, WIDTH_PACKED, C, Layout, W
from refsim.core.qmath import LAVAPIPE
from refsim.core.tensor import TensorDesc
from refsim.graph.graph import Graph, Node, Ref, Tensor
from refsim.ops.base.binding import bind
from refsim.ops.base.defect import Defect
from refsim.ops.base.meaning import Meaning
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Upstream
from refsim.ops.base.target import Target


def tensor(
    shape: tuple[int, ...], dtype: str, layout: Layout | None, number: int = 0, **more: bool
) -> Tensor:
    return Tensor(number, shape, np.dtype(dtype), layout, **more)


@pytest.mark.parametrize(
    "value, desc, nbytes",
    [
        (tensor((1, 5, 2, 3), "int8", PACKED_4W4C), ((1, 5, 2, 3), PACKED_4W4C, "int8"), 64),
        (tensor((1, 5, 2, 3), "int8", PACKED_4C), ((1, 5, 2, 3), PACKED_4C, "int8"), 48),
        (tensor((5, 3), "float32", WIDTH_PACKED), ((5, 3), WIDTH_PACKED, "float32"), 60),
        (tensor((), "float32", WIDTH_PACKED), ((1,), WIDTH_PACKED, "float32"), 4),
        (tensor((7,), "int32", WIDTH_PACKED, index=True), ((7,), WIDTH_PACKED, "int32"), 28),
        # no kernel reads these words: there is no buffer, only elements
        (tensor((7,), "int32", WIDTH_PACKED), None, 28),
        (tensor((7, 3), "int64", WIDTH_PACKED), None, 168),
        (tensor((7, 3), "float32", WIDTH_PACKED, index=True), None, 84),
        (tensor((7, 3), "int8", WIDTH_PACKED), None, 21),
        (tensor((7, 3), "float32", PACKED_4C), None, 84),
        (tensor((7, 3), "float32", None), None, 84),
        (tensor((), "float32", None), None, 4),
        (tensor((0,), "float32", WIDTH_PACKED), None, 0),
        (tensor((2, 0, 3), "int8", PACKED_4C), None, 0),
    ],
)
def test_a_buffer_and_its_bytes(
    value: Tensor, desc: tuple[tuple[int, ...], Layout, str] | None, nbytes: int
) -> None:
    assert value.desc == (None if desc is None else TensorDesc(*desc))
    assert value.nbytes == nbytes


def test_a_run_holds_its_inputs_and_what_nodes_make_once_each() -> None:
    tensors = {n: tensor((4**n,), "float32", None, n) for n in range(6)}
    nodes = (Node(0, 0, "any.thing", (Ref(0), Ref(2)), (1, 3)), Node(1, 1, "any.thing", (Ref(1),), (4,)))
    # 2 is a constant, 5 is nobody's; 0 is given and 1 is given and made anew
    graph = Graph("test", tensors, nodes, (0, 1), (4,), Target())
    assert graph.nbytes == 4 * (4**0 + 4**1 + 4**3 + 4**4)
    assert replace(graph, nodes=()).nbytes == 4 * (4**0 + 4**1)
    assert replace(graph, inputs=()).nbytes == 4 * (4**1 + 4**3 + 4**4)


@pytest.mark.parametrize(
    "args, packed, buffer",
    [
        ((Ref(0), Ref(1)), C, False),
        ((Ref(1), Ref(0)), W, True),
        ((2.5, (Ref(3), Ref(0)), Ref(1)), C, True),
        ((Ref(2), Ref(3)), W, True),  # its layout is open
        ((Ref(9), Ref(3)), C, True),  # 9 is no tensor
        ((2.5, ()), W, False),
    ],
)
@pytest.mark.parametrize("target", [Target(), Target(LAVAPIPE, mali=True)])
def test_a_float_operator_computes_as_its_first_tensor_lies(
    args: tuple[object, ...], packed: int, buffer: bool, target: Target
) -> None:
    tensors = {
        0: tensor((1, 4, 2, 2), "int8", PACKED_4C, 0),
        1: tensor((4,), "float32", WIDTH_PACKED, 1, buffer=True),
        2: tensor((4,), "float32", None, 2, buffer=True),
        3: tensor((1, 4, 2, 2), "int8", PACKED_4C, 3, buffer=True),
    }
    node = Node(0, 0, "any.thing", args, (0,))
    found = Graph("test", tensors, (node,), (), (), target).place(node)
    assert found == Place(packed, buffer, target.profile, target.mali)


def test_what_upstream_gets_wrong_may_be_so_in_textures_only() -> None:
    everywhere = Defect("everywhere", "wrong everywhere", lambda call: True)
    textures = Defect("textures", "wrong in textures", lambda call: True, textures=True)
    never = Defect("never", "never wrong", lambda call: False)
    op = OPS["q8ta_relu"]
    call = bind(op.cases.example).call
    call = replace(call, op=replace(op, upstream=Upstream(defects=(everywhere, textures, never))))
    node = Node(0, 0, "any.thing", (), (1,), Prepared(call))
    assert node.upstream == "wrong everywhere; wrong in textures"
    noted = replace(node, buffers=True, notes=("odd", "odder"))
    assert noted.upstream == "wrong everywhere; odd; odder"
    only = replace(
        node, prepared=Prepared(replace(call, op=replace(op, upstream=Upstream(defects=(textures,)))))
    )
    assert only.upstream == "wrong in textures" and replace(only, buffers=True).upstream is None
    meant = Node(
        0, 0, "any.thing", (), (1,), meaning=Meaning(op, None, Target(), {}, "refused"), buffers=True
    )
    assert meant.upstream == "refused" and replace(meant, notes=("odd",)).upstream == "refused; odd"
    assert Node(0, 0, "any.thing", (), (1,)).upstream is None


@pytest.mark.parametrize("output", [Ref(1), 0.5, "1"])
def test_an_output_that_is_no_value(output: Any) -> None:
    """Where a node is made, not where something is missing later."""
    with pytest.raises(
        GraphError, match=r"node 3 any\.thing: an output is no value; got .*, need its number"
    ):
        Node(3, 0, "any.thing", (Ref(0),), (output,))
