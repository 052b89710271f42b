"""Graphs from delegates: layouts resolved, operators bound, and everything that is wrong with one refused by name."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from refsim.core.errors import (
    GraphError,
    LayoutError,
    ParameterError,
    RefsimError,
    ShapeError,
    UnknownOperatorError,
)
from refsim.core.layout import PACKED_4C, PACKED_4C1W, PACKED_4W4C, PACKED_CONV2D, WIDTH_PACKED
from refsim.exec.cpu import EmulatedExecutor
from refsim.exec.executor import run_graph
from refsim.formats.literals import Bool, BoolList, Double, DoubleList, Int, IntList, Null, String
from refsim.formats.pte import read as pte
from refsim.formats.vkgraph.check import check_graph
from refsim.formats.vkgraph.read import Blob
from refsim.formats.vkgraph.schema import OperatorCall, SymInt, ValueList, VkGraph, VkTensor
from refsim.graph.build import build, resolve_layouts
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target

MODELS = Path(__file__).parents[1] / "data" / "models"
INT8, FLOAT32 = 2, 5


def blob_of(name: str, number: int = 0) -> Blob:
    container = pte.load(MODELS / f"{name}.pte")
    return dict(container.blobs(container.plan()))[number]


LINEAR, MIXED = blob_of("linear_head"), blob_of("mixed_ops")


def changed(blob: Blob, **fields: object) -> Blob:
    return replace(blob, graph=replace(blob.graph, **fields))


def with_value(blob: Blob, number: int, value: object) -> Blob:
    values = list(blob.graph.values)
    values[number] = value
    return changed(blob, values=tuple(values))


def find(blob: Blob, name: str) -> OperatorCall:
    return next(c for c in blob.graph.chain if c.name == name)


# --- resolution of PACKED_INT8_CONV2D --------------------------------------------------------------------


def conv_graph(
    channels: int,
    size: int,
    groups: int = 1,
    layouts: tuple[int, int] = (9, 9),
    name: str = "et_vk.q8ta_conv2d.default",
) -> VkGraph:
    """One 1x1 convolution; only what resolution looks at."""
    values = (
        VkTensor(INT8, (1, channels, size, size), memory_layout=layouts[0]),
        Double(0.1), Int(0), Null(), Null(), Null(), Double(0.1), Int(0), Null(),
        IntList((1, 1)), IntList((1, 1)), IntList((0, 0)), IntList((1, 1)), Int(groups), String("none"),
        VkTensor(INT8, (1, channels, size, size), memory_layout=layouts[1]),
    )  # fmt: skip
    return VkGraph("", (OperatorCall(0, name, tuple(range(16))),), values, (0,), (15,))


@pytest.mark.parametrize(
    ("channels", "size", "groups", "mali", "need"),
    [
        (8, 64, 1, False, PACKED_4C),  # 4096 outputs: im2col
        (8, 65, 1, False, PACKED_4C1W),  # more, and fewer than 32 channels: general
        (32, 65, 1, False, PACKED_4C),
        (28, 65, 1, False, PACKED_4C1W),
        (8, 65, 1, True, PACKED_4C),
        (6, 8, 1, True, PACKED_4C1W),  # channels that fill no words: general everywhere
        (64, 8, 2, False, PACKED_4C1W),  # grouped: general, except on Mali
        (64, 8, 2, True, PACKED_4C),
    ],
)
def test_first_pass(channels: int, size: int, groups: int, mali: bool, need: object) -> None:
    layouts = resolve_layouts(conv_graph(channels, size, groups), Target(mali=mali))
    assert layouts[0] is need
    assert layouts[15] is need  # the second pass hands it on


def test_first_pass_depthwise() -> None:
    graph = conv_graph(8, 8, 8, name="et_vk.q8ta_conv2d_dw.default")
    assert resolve_layouts(graph, Target())[0] is PACKED_4C1W


def test_what_is_no_image_is_left_to_the_operator() -> None:
    """A convolution of fewer dims has no kernel to choose a layout for; that it is wrong is said where it is bound."""
    whole = conv_graph(8, 64)
    for number in (0, 15):
        for dims in ((8,), (8, 64)):
            values = list(whole.values)
            values[number] = VkTensor(INT8, dims, memory_layout=9)
            layouts = resolve_layouts(replace(whole, values=tuple(values)), Target())
            assert layouts[0] is layouts[15] is PACKED_4C1W


def test_second_pass_takes_the_first_concrete_layout() -> None:
    layouts = resolve_layouts(conv_graph(8, 8, layouts=(3, 9)), Target())
    assert (layouts[0], layouts[15]) == (PACKED_4W4C, PACKED_4W4C)
    layouts = resolve_layouts(conv_graph(8, 8, layouts=(9, 3)), Target())
    assert (layouts[0], layouts[15]) == (PACKED_4C, PACKED_4W4C)


def test_what_is_left_becomes_4c1w() -> None:
    values = (VkTensor(INT8, (1, 4, 2, 2), memory_layout=9), VkTensor(INT8, (1, 4, 2, 2), memory_layout=9))
    graph = VkGraph("", (OperatorCall(0, "aten.clone.default", (0, 1)),), values, (0,), (1,))
    assert set(resolve_layouts(graph, Target()).values()) == {PACKED_4C1W}


def test_float_layouts_are_kept_and_the_default_is_width() -> None:
    values = (VkTensor(FLOAT32, (4,)), VkTensor(FLOAT32, (4,), memory_layout=2))
    layouts = resolve_layouts(VkGraph("", (), values, (0,), (1,)), Target())
    assert layouts[0] is WIDTH_PACKED
    assert layouts[1].name == "TENSOR_CHANNELS_PACKED"


def test_unknown_layout_is_refused() -> None:
    graph = VkGraph("", (), (VkTensor(FLOAT32, (4,), memory_layout=7),), (0,), (0,))
    with pytest.raises(GraphError, match="value 0: unknown memory layout; got 7"):
        resolve_layouts(graph, Target())


def test_a_built_graph_has_no_open_layout() -> None:
    graph = build(MIXED, "mixed")
    assert PACKED_CONV2D not in {tensor.layout for tensor in graph.tensors.values()}


# --- refusals: each names the delegate, the node and the argument ------------------------------------------

Q = "et_vk.q8ta_linear.default"
first_linear = find(LINEAR, Q)
x, scale, zp, weight = first_linear.args[:4]
out = first_linear.args[-1]
tensor = LINEAR.graph.values[x]

REFUSED: dict[str, tuple[Blob, type[RefsimError], str]] = {
    "scale out of range": (with_value(LINEAR, scale, Double(0.0)), ParameterError, "scale is out of range; got 0.0"),
    "scale of another type": (with_value(LINEAR, scale, String("0.1")), ParameterError, "scale has the wrong type"),
    "scale missing": (with_value(LINEAR, scale, Null()), ParameterError, "a parameter is missing; need scale"),
    "zero point out of range": (with_value(LINEAR, zp, Int(-129)), ParameterError, "zp is out of range; got -129"),
    "zero point of another type": (with_value(LINEAR, zp, Double(0.5)), ParameterError, "zp has the wrong type"),
    "weight is an activation": (
        with_value(LINEAR, weight, replace(LINEAR.graph.values[weight], constant_id=-1)),
        GraphError, "weight: not a constant",
    ),
    "input is float": (with_value(LINEAR, x, replace(tensor, datatype=FLOAT32)), GraphError, "not an int8 or float32"),
    "input in another layout": (with_value(LINEAR, x, replace(tensor, memory_layout=5)), LayoutError, "x has a layout"),
    "input of another size": (
        with_value(LINEAR, x, replace(tensor, dims=(6, tensor.dims[1] - 4))), ShapeError, "shape",
    ),
    "output of another size": (
        with_value(LINEAR, out, replace(LINEAR.graph.values[out], dims=(5, 5))), ShapeError, "shape",
    ),
    "an argument too few": (
        changed(LINEAR, chain=(LINEAR.graph.chain[0], replace(first_linear, args=first_linear.args[1:]))),
        GraphError, "arguments: wrong number",
    ),
    "written twice": (
        changed(LINEAR, chain=(*LINEAR.graph.chain[:2], *LINEAR.graph.chain[1:])), GraphError, "writes a value again",
    ),
    "never written": (changed(LINEAR, chain=LINEAR.graph.chain[1:]), GraphError, "reads a value that nothing wrote"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str) -> None:
    blob, error, match = REFUSED[what]
    with pytest.raises(error) as caught:
        build(blob, "delegate")
    text = str(caught.value)
    assert match in text
    assert text.startswith("delegate: node ")
    assert "quantize_per_tensor" in text or Q in text


def test_interface_is_checked() -> None:
    constant = weight
    for blob, match in (
        (changed(LINEAR, input_ids=(scale,)), "input: not a tensor"),
        (changed(LINEAR, output_ids=(scale,)), "output: not a tensor"),
        (changed(LINEAR, input_ids=(*LINEAR.graph.input_ids, constant)), "input: is a constant"),
        (changed(LINEAR, input_ids=LINEAR.graph.input_ids * 2), "input: given twice"),
    ):
        with pytest.raises(GraphError, match=match):
            build(blob, "delegate")


def test_unknown_operator_names_itself_and_the_node() -> None:
    chain = list(LINEAR.graph.chain)
    chain[1] = replace(chain[1], name="my_ops.mystery.default")
    graph = build(changed(LINEAR, chain=tuple(chain)), "delegate")
    inputs = [np.zeros(graph.tensors[i].shape, graph.tensors[i].dtype) for i in graph.inputs]
    with pytest.raises(UnknownOperatorError, match=r"delegate: node 1 my_ops\.mystery\.default"):
        run_graph(graph, inputs, EmulatedExecutor())


def test_a_zero_point_may_arrive_as_a_double() -> None:
    """Upstream's serializer shares equal scalars: 6 and 6.0 are one value."""
    graph = build(with_value(LINEAR, zp, Double(3.0)), "delegate")
    node = next(graph.q8ta_nodes())
    assert node.call is not None
    assert any(n.call.params.in_zp == 3 for n in graph.q8ta_nodes() if n.call and n.name == Q)


# --- random damage to the structure -------------------------------------------------------------------------

INTS = (0, 1, 2, 3, 4, 5, 8, -1, -128, 127, 128, 300, 65536, 2**31 - 1, -(2**31), 2**40)
DOUBLES = (0.0, 1.0, -1.0, float("nan"), float("inf"), 1e-40, 1e30, 0.5, 2.0**-60, 6.0, 2.5)
NAMES = (
    "aten.clone.default", "aten.mean.dim", "aten.view_copy.default", "", "a", "aten.cat.default",
    "aten.max_pool2d_with_indices.default", "aten.avg_pool2d.default", "aten.permute_copy.default",
    "aten.hardtanh.default", *(op.serialized for op in OPS.values() if op.serialized.startswith("et_vk.")),
)  # fmt: skip


def any_value(rng: random.Random, count: int) -> object:
    def several(options: tuple) -> tuple:
        return tuple(rng.choice(options) for _ in range(rng.randrange(5)))

    kinds: tuple[Callable[[], object], ...] = (
        Null,
        lambda: Int(rng.choice(INTS)),
        lambda: Double(rng.choice(DOUBLES)),
        lambda: Bool(rng.random() < 0.5),
        lambda: String(rng.choice(("", "relu", "none", "x" * 50))),
        lambda: SymInt(rng.choice(INTS[:-1])),
        lambda: IntList(several(INTS)),
        lambda: DoubleList(several(DOUBLES)),
        lambda: BoolList(several((True, False))),
        lambda: ValueList(several(tuple(range(count)))),
        lambda: VkTensor(
            rng.choice((0, 2, 3, 5, 127)), several((0, 1, 3, 4, 8)), memory_layout=rng.choice((0, 3, 9))
        ),
    )
    return rng.choice(kinds)()


def damaged(graph: VkGraph, rng: random.Random) -> VkGraph:
    """Some values, arguments, names or interface ids are others: a well-formed file that makes no sense."""
    values, chain = list(graph.values), list(graph.chain)
    ids = {"input_ids": list(graph.input_ids), "output_ids": list(graph.output_ids)}
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.choice([a for c in chain for a in c.args])
        value, call = values[at], rng.randrange(len(chain))
        args = list(chain[call].args)
        kind = rng.randrange(9)
        if kind < 2:
            values[at] = any_value(rng, len(values))
        elif kind < 5 and isinstance(value, VkTensor):
            dims = list(value.dims) or [1]
            dims[rng.randrange(len(dims))] = rng.choice((0, 1, 3, 5, 8, 5000, 2**31))
            values[at] = rng.choice((
                replace(value, dims=tuple(dims)),
                replace(value, dims=value.dims[1:]),
                replace(value, dims=(2, *value.dims)),
                replace(value, datatype=rng.choice((0, 2, 3, 4, 5, 127))),
                replace(value, memory_layout=rng.choice((0, 2, 3, 4, 5, 6, 7, 8, 9, 255))),
                replace(value, constant_id=rng.choice((-1, 0, 1))),
            ))  # fmt: skip
        elif kind == 5:
            args[rng.randrange(len(args))] = rng.randrange(len(values))
            chain[call] = replace(chain[call], args=tuple(args))
        elif kind == 6:
            chain[call] = replace(
                chain[call], args=tuple(args[rng.randrange(2) :][: rng.randrange(1, 20)] or args)
            )
        elif kind == 7:
            chain[call] = replace(chain[call], name=rng.choice(NAMES))
        elif kind == 8:
            rng.choice(list(ids.values())).append(rng.randrange(len(values)))
    return replace(graph, values=tuple(values), chain=tuple(chain), **{k: tuple(v) for k, v in ids.items()})


@pytest.mark.parametrize("blob", [LINEAR, MIXED], ids=["linear_head", "mixed_ops"])
def test_damaged_graphs_give_typed_errors(blob: Blob) -> None:
    """Build, and run what is not too large: a result or a RefsimError, and nothing else."""
    outcomes: Counter[str] = Counter()
    for seed in range(250):
        graph = damaged(blob.graph, random.Random(seed))
        try:
            check_graph(graph, 1 << 30, "damaged")
            built = build(replace(blob, graph=graph), "damaged")
            outcomes["built"] += 1
            if sum(int(np.prod(t.shape)) for t in built.tensors.values() if t.data is None) > 1 << 22:
                continue
            inputs = [np.zeros(built.tensors[i].shape, built.tensors[i].dtype) for i in built.inputs]
            with np.errstate(all="ignore"):
                run_graph(built, inputs, EmulatedExecutor())
            outcomes["ran"] += 1
        except RefsimError as error:
            outcomes[type(error).__name__] += 1
            assert len(str(error)) < 2000
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    assert len(outcomes) > 4, outcomes
    assert outcomes["ran"], outcomes
