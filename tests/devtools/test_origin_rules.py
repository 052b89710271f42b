"""Small programs and delegates, and which operators of one stand for which of the other: each rule by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from refsim.core.errors import LimitError
from refsim.core.layout import WIDTH_PACKED
from refsim.core.plain import plain
from refsim.devtools import origins as module
from refsim.devtools.origins import origins
from refsim.devtools.program import ExportedProgram
from refsim.graph.graph import Graph, Node, Ref, Tensor
from refsim.graph.origin import ExportedNode, Frame, Origin
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target

SHAPE = (2, 8)
#: Operator of a row below -> what a delegate binds it to; all others are float operators of their own name.
BOUND = {
    "quantize": "q8ta_quantize", "dequantize": "q8ta_dequantize", "move": "q8ta_clone", "both": "q8ta_add",
    "head": "linear_q8ta_q8csw",
}  # fmt: skip
INT8 = ("quantize", "both", "slice")


def parsed(row: str) -> tuple[list[str], str, list[str], dict[str, float | None]]:
    """Outputs, operator, inputs and numbers of ``y z = operator x scale=0.5 zero_point=3``."""
    left, _, right = row.partition("=")
    operator, *rest = right.split()
    numbers = [word.partition("=") for word in rest if "=" in word]
    given = {name: None if value == "?" else float(value) for name, _, value in numbers}
    return left.split(), operator, [word for word in rest if "=" not in word], given


def program(
    *rows: str, inputs: str = "x", shapes: Mapping[str, Any] | None = None, handles: Any = ()
) -> ExportedProgram:
    nodes = []
    for number, row in enumerate(rows):
        outputs, operator, read, numbers = parsed(row)
        target = f"aten.{operator}.default"
        if operator.startswith(("quantize_", "dequantize_")):
            target = f"quantized_decomposed.{operator}.default"
        elif operator in BOUND:
            target = f"quantized_decomposed.{operator}_per_tensor.default"
        handle = handles[number] if number < len(handles) else None
        plain = {name: value for name, value in numbers.items() if value is not None}
        nodes.append(ExportedNode(target, tuple(read), tuple(outputs), plain, handle=handle))
    names = {name for node in nodes for name in (*node.inputs, *node.outputs)} | set(inputs.split())
    known = dict.fromkeys(names, SHAPE) | dict(shapes or {})
    return ExportedProgram("program", tuple(nodes), tuple(inputs.split()), known)


def delegate(
    *rows: str, inputs: str = "0", shapes: Mapping[int, Any] | None = None, stored: tuple[int, ...] = ()
) -> Graph:
    nodes, dtypes = [], dict.fromkeys(map(int, inputs.split()), np.dtype(np.float32))
    for number, row in enumerate(rows):
        outputs, operator, read, numbers = parsed(row)
        spec = OPS[BOUND[operator]] if operator in BOUND else None
        held: Any = None if spec is None else SimpleNamespace(op=spec, params=SimpleNamespace(**numbers))
        values, refs = tuple(map(int, outputs)), tuple(Ref(int(value)) for value in read)
        dtypes |= dict.fromkeys([*map(int, read)], np.dtype(np.float32)) | dtypes
        dtypes |= dict.fromkeys(values, np.dtype(np.int8 if operator in INT8 else np.float32))
        nodes.append(Node(number, number, f"aten.{operator}.default", refs, values, meaning=held))
    tensors = {
        value: Tensor(value, (shapes or {}).get(value, SHAPE), dtype, WIDTH_PACKED)
        for value, dtype in dtypes.items()
    }
    for value in stored:
        tensors[value] = replace(tensors[value], data=np.zeros(SHAPE, np.float32))
    given = tuple(map(int, inputs.split()))
    return Graph("delegate", tensors, tuple(nodes), given, (), Target())


def told(found: Mapping[tuple[int, int], Origin]) -> dict[tuple[int, int], str]:
    """Of every node what it was made from: ``input x``, or the outputs of the program's operators."""
    return {
        place: f"input {origin.input}" if origin.input else " ".join(node.outputs[0] for node in origin.nodes)
        for place, origin in found.items()
    }


def of(exported: ExportedProgram, *graphs: Graph, **more: Any) -> dict[tuple[int, int], str]:
    return told(origins(dict(enumerate(graphs)), exported, **more))


Q, D = "scale=0.5 zero_point=3", "scale=0.5 zp=3"

#: What -> the program, the delegate, and what stands for each of its nodes.
RULES: dict[str, tuple[ExportedProgram, Graph, dict[int, str]]] = {
    "an operator of the same name": (program("y = tanh x"), delegate("1 = tanh 0"), {0: "y"}),
    "the first of two that read the same": (
        program("a = tanh x", "b = tanh x"), delegate("1 = tanh 0", "2 = tanh 0"), {0: "a", 1: "b"},
    ),
    "of another shape": (
        program("a = tanh x", shapes={"a": (4, 4)}), delegate("1 = tanh 0"), {},
    ),
    "of the shape that fits": (
        program("a = tanh x", "b = tanh x", shapes={"a": (4, 4)}), delegate("1 = tanh 0"), {0: "b"},
    ),
    "of a shape that is dynamic": (
        program("a = tanh x", shapes={"a": None}), delegate("1 = tanh 0"), {0: "a"},
    ),
    "of other outputs none is of it": (
        program("m a = tanh x", shapes={"m": (4, 4)}), delegate("1 = tanh 0"), {},
    ),
    "one that makes several values": (
        program("a b = both2 x", "c = tanh b", "d = tanh a"), delegate("1 2 = both2 0", "3 = tanh 2", "4 = tanh 1"),
        {0: "a", 1: "c", 2: "d"},
    ),
    "inputs in order, where their shapes agree": (
        program("a = tanh y", "b = tanh x", inputs="x y"), delegate("2 = tanh 0", "3 = tanh 1", inputs="0 1"),
        {0: "b", 1: "a"},
    ),
    "inputs of other shapes are not taken": (
        program("a = tanh y", "b = tanh x", inputs="x y", shapes={"y": (4, 4), "a": (4, 4)}),
        delegate("2 = sin 0", "3 = tanh 1", inputs="0 1", shapes={0: (4, 4), 2: (4, 4)}),
        {1: "b"},
    ),
    "inputs of other shapes: the next of a name": (
        program("a = tanh x", "b = tanh x", "c = sin b", "e = tanh c", "f = tanh x", shapes={"x": None}),
        delegate("2 = sin 1", "3 = tanh 0", inputs="0 1"),
        {0: "c", 1: "e"},
    ),
    "two in a row of one name, whose inputs are not known": (
        program("a = tanh x", "b = tanh y", "c = tanh x", inputs="x y", shapes={"x": None}),
        delegate("2 = tanh 0", "3 = tanh 1", inputs="0 1"),
        {0: "a", 1: "b"},
    ),
    "a chain, by its end": (
        program("a = tanh x", "b = sin a", "c = cos b"), delegate("1 = lib 0"), {0: "a b c"},
    ),
    "a chain whose first makes several values": (
        program("y mean rstd = norm x", "z = tanh y"), delegate("1 = lib 0"), {0: "y z"},
    ),
    "a chain ends where its value is read twice": (
        program("a = tanh x", "b = sin a", "c = cos b", "d = tan b"), delegate("1 = lib 0", "2 = cos 1"),
        {0: "a b", 1: "c"},
    ),
    "a chain ends before an operator that the delegate has": (
        program("a = tanh x", "b = sin a", "c = cos b"), delegate("1 = lib 0", "2 = cos 1"), {0: "a b", 1: "c"},
    ),
    "an operator that reads another value as well": (
        program("a = tanh x", "b = add a y", inputs="x y"), delegate("2 = lib 0", "3 = add 2 1", inputs="0 1"),
        {0: "a", 1: "b"},
    ),
    "variants of a name": (
        program("a = tanh_ x", "b = view_copy a"), delegate("1 = tanh 0", "2 = view 1"), {0: "a", 1: "b"},
    ),
    "a clone passes on what it reads": (
        program("b = tanh y", "a = tanh x", inputs="x y"), delegate("2 = clone 0", "3 = tanh 2", inputs="0 1"),
        {0: "input x", 1: "a"},
    ),
    "a clone of what is not known": (
        program("a = tanh x"), delegate("1 = tanh 0", "2 = sin 1", "3 = clone 2"), {0: "a"},
    ),
    "an int8 clone": (
        program(f"q = quantize x {Q}", f"d = dequantize q {Q}"),
        delegate(f"1 = quantize 0 {D}", "2 = move 1", f"3 = dequantize 2 {D}"),
        {0: "input x", 1: "input x", 2: "input x"},
    ),
    "what is quantized is told by what computed it": (
        program("a = tanh x", f"q = quantize a {Q}", f"d = dequantize q {Q}", "b = sin d"),
        delegate("1 = tanh 0", f"2 = quantize 1 {D}", f"3 = dequantize 2 {D}", "4 = sin 3"),
        {0: "a", 1: "a", 2: "a", 3: "b"},
    ),
    "by its first tensor, the others are scales": (
        program("s = sin x", "a = tanh x", "q = quantize_per_channel a s", "d = dequantize_per_channel q s"),
        delegate("1 = sin 0", "2 = tanh 0", "3 = quantize 2 scale=0.5 zp=?", "4 = dequantize 3 scale=0.5 zp=?"),
        {0: "s", 1: "a", 2: "a", 3: "a"},
    ),
    "another scale": (
        program("q = quantize x scale=0.5 zero_point=3"), delegate("1 = quantize 0 scale=0.25 zp=3"), {},
    ),
    "a scale that is hardly another": (
        program("q = quantize x scale=0.5 zero_point=3"), delegate("1 = quantize 0 scale=0.5000004 zp=3"),
        {0: "input x"},
    ),
    "a scale that is another": (
        program("q = quantize x scale=0.5 zero_point=3"), delegate("1 = quantize 0 scale=0.50000075 zp=3"), {},
    ),
    "another zero point": (
        program("q = quantize x scale=0.5 zero_point=3"), delegate("1 = quantize 0 scale=0.5 zp=4"), {},
    ),
    "a scale that is stored inverted": (
        program("q = quantize x scale=0.125 zero_point=3"), delegate("1 = quantize 0 out_inv_scale=8 out_zp=3"),
        {0: "input x"},
    ),
    "another that is stored inverted": (
        program("q = quantize x scale=8 zero_point=3"), delegate("1 = quantize 0 out_inv_scale=8 out_zp=3"), {},
    ),
    "the output's scale, where there are several": (
        program("q = quantize x scale=0.5 zero_point=3"),
        delegate("1 = quantize 0 scale=4 zp=9 out_inv_scale=7 out_scale=0.5 out_zp=3"), {0: "input x"},
    ),
    "no scale that is written down fits all": (
        program("q = quantize x zero_point=3"), delegate("1 = quantize 0 scale=0.25 zp=3"), {0: "input x"},
    ),
    "no zero point that is written down fits all": (
        program("q = quantize x scale=0.5"), delegate("1 = quantize 0 scale=0.5 zp=3"), {0: "input x"},
    ),
    "no zero point in the delegate": (
        program("p = quantize x scale=0.25 zero_point=9", "q = quantize x scale=0.5 zero_point=3"),
        delegate("1 = quantize 0 scale=0.5 zp=?"), {0: "input x"},
    ),
    "of two that quantize a value alike, the first first": (
        program(f"p = quantize x {Q} most=1", f"q = quantize x {Q} most=2", f"d = dequantize p {Q}", "a = sin d",
                f"e = dequantize q {Q}", "b = sin e"),
        delegate(f"1 = quantize 0 {D}", f"2 = quantize 0 {D}", f"3 = dequantize 1 {D}", "4 = sin 3"),
        {0: "input x", 1: "input x", 2: "input x", 3: "a"},
    ),
    "the same quantize three times": (
        program(f"p = quantize x {Q}", f"q = quantize x {Q}", f"r = quantize x {Q}", f"d = dequantize p {Q}",
                f"e = dequantize q {Q}", f"f = dequantize r {Q}", "a = sin d", "b = cos e", "c = tan f"),
        delegate(f"1 = quantize 0 {D}", f"2 = dequantize 1 {D}", "3 = sin 2", "4 = cos 2", "5 = tan 2"),
        {0: "input x", 1: "input x", 2: "a", 3: "b", 4: "c"},
    ),
    "what is quantized tells what it was": (
        program("a = tanh x", "b = sin x", f"q = quantize b {Q}", "e = cos a", "c = cos b", shapes={"x": (9,)}),
        delegate("1 = strange 0", f"2 = quantize 1 {D}", "3 = cos 1"), {1: "b", 2: "c"},
    ),
    "the next that quantizes so, where what it reads is not known": (
        program(f"p = quantize x {Q}", f"q = quantize y {Q}", f"r = quantize z {Q}", inputs="x y z",
                shapes={"x": (1, 16)}),
        delegate(f"3 = quantize 0 {D}", f"4 = quantize 1 {D}", f"5 = quantize 2 {D}", inputs="0 1 2"),
        {0: "input x", 1: "input y", 2: "input z"},
    ),
    "nothing that quantizes another value": (
        program(f"q = quantize y {Q}", inputs="x y"), delegate(f"2 = quantize 0 {D}", inputs="0 1"), {},
    ),
    "arithmetic on int8 values": (
        program(f"d = dequantize x {Q}", f"e = dequantize y {Q}", "s = add d e", f"q = quantize s {Q}", inputs="x y"),
        delegate(f"2 = both 0 1 {D}", inputs="0 1"), {0: "s"},
    ),
    "by what is quantized, not by its scales": (
        program(f"d = dequantize x {Q}", "s = sin y", "t = cos d", "q = quantize_per_channel t s", inputs="x y"),
        delegate("2 = both 0 scale=0.5 zp=?", inputs="0 1"), {0: "t"},
    ),
    "an operator from int8 to floats": (
        program(f"d = dequantize x {Q}", "y = linear d w"), delegate("1 = head 0"), {0: "y"},
    ),
    "an operator of floats that moves int8 values": (
        program("v = slice x", f"q = quantize x {Q}"), delegate("1 = slice 0"), {0: "v"},
    ),
    "of those that could be it the first": (
        program(f"d = dequantize x {Q}", "s = sin d", f"q = quantize s {Q} most=1", "t = cos d",
                f"r = quantize t {Q} most=2"),
        delegate(f"1 = both 0 {D}", f"2 = both 0 {D}"), {0: "s", 1: "t"},
    ),
    "arithmetic on other values is another": (
        program(f"d = dequantize x {Q}", f"e = dequantize y {Q}", "s = add d e", f"q = quantize s {Q}",
                "t = sin d", f"r = quantize t {Q}", inputs="x y"),
        delegate(f"2 = both 0 {D}", inputs="0 1"), {0: "t"},
    ),
    "up to a value that is quantized": (
        program("a = tanh x", f"p = quantize a {Q}", f"d = dequantize p {Q}", "s = sin d",
                "q = quantize s scale=2 zero_point=1", shapes={"x": None}),
        delegate("1 = strange 0", "2 = both 1 scale=2 zp=1"), {1: "s"},
    ),
    "up to an input, where what is read is not known": (
        program(f"d = dequantize x {Q}", "s = add d y", f"q = quantize s {Q}", inputs="x y", shapes={"y": None}),
        delegate(f"2 = both 0 1 {D}", inputs="0 1"), {0: "s"},
    ),
    "partly known, in order": (
        program("a = tanh x", "s = add a a", f"p = quantize s {Q}", "t = add a p", f"q = quantize t {Q}"),
        delegate("1 = strange 0", "2 = tanh 0", f"3 = both 2 1 {D}", f"4 = both 2 1 {D}", "5 = add 1 1"),
        {1: "a", 2: "s", 3: "t"},
    ),
    "partly known, but not of another value": (
        program("a = tanh x", "u = cos x", f"p = quantize u {Q} most=1", "s = add a a", f"q = quantize s {Q}"),
        delegate("1 = strange 0", "2 = tanh 0", f"3 = both 2 1 {D}", "4 = add 1 1", "5 = cos 1"), {1: "a", 2: "s"},
    ),
    "partly known, and not what came before": (
        program("a = tanh x", "s = add a a", f"p = quantize s {Q}", "t = add a a", "q = quantize t scale=8"),
        delegate("1 = strange 0", "2 = tanh 0", "3 = both 2 1 scale=8 zp=?", f"4 = both 2 1 {D}", "5 = add 1 1"),
        {1: "a", 2: "t"},
    ),
    "known, in another order": (
        program("s = sin x", f"p = quantize s {Q}", "t = sin x", "q = quantize t scale=8"),
        delegate("1 = both 0 scale=8 zp=?", f"2 = both 0 {D}"), {0: "t", 1: "s"},
    ),
    "what is quantized again is told by what computed it": (
        program("a = tanh x", f"p = quantize a {Q}", f"d = dequantize p {Q}", "q = quantize d scale=8"),
        delegate("1 = tanh 0", f"2 = quantize 1 {D}", "3 = both 2 scale=8 zp=?"), {0: "a", 1: "a", 2: "a"},
    ),
    "of one name, what reads the same": (
        program("a = add x y", "b = add x x", inputs="x y"), delegate("2 = add 0 0", inputs="0 1"), {0: "b"},
    ),
    "what is stored counts for nothing": (
        program("m = mul x w", "a = mul y w", inputs="x y"), delegate("3 = mul 1 2", inputs="0 1", stored=(2,)),
        {0: "a"},
    ),
    "nor what is made of it": (
        program("m = mul x w", "a = mul y w", inputs="x y"),
        delegate("3 = full", "4 = neg 3", "5 = mul 1 4", inputs="0 1"), {2: "a"},
    ),
    "what makes nothing is passed over": (
        program("a = tanh x"), delegate(" = print 0", "1 = tanh 0"), {1: "a"},
    ),
    "a value is read once, however often it is named": (
        program("a = add x x"), delegate("1 = add 0 0"), {0: "a"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", RULES)
def test_rule(what: str) -> None:
    exported, graph, wanted = RULES[what]
    assert of(exported, graph) == {(0, node): said for node, said in wanted.items()}


def test_inputs_of_the_first_delegate_alone_are_the_programs() -> None:
    exported = program("a = tanh x", "b = sin a", "c = tanh b")
    assert of(exported, delegate("1 = tanh 0"), delegate("1 = tanh 0")) == {(0, 0): "a", (1, 0): "c"}
    other = delegate("1 = tanh 0", shapes={1: (4, 4)})
    assert of(exported, other, delegate("1 = tanh 0")) == {(1, 0): "a"}


def test_handles_say_what_is_in_a_delegate_and_what_it_reads() -> None:
    exported = program("a = tanh x", "b = sin a", "c = tanh b", "d = tanh b", handles=(1, 2, 3, None))
    inner = {0: frozenset((3,))}
    assert of(exported, delegate("1 = tanh 0"), handles=inner) == {(0, 0): "c"}
    without = replace(exported, nodes=(*exported.nodes[:2], exported.nodes[3]))
    assert of(without, delegate("1 = tanh 0"), handles=inner) == {(0, 0): "d"}, (
        "of no handle: it may be any's"
    )
    both = program("a = tanh x", "b = add a y", "c = add b z", inputs="x y z", handles=(1, 2, 2))
    graph = delegate("4 = add 0 1", "5 = add 4 2", inputs="0 1 2")
    assert of(both, graph, handles={0: frozenset((2,))}) == {(0, 0): "b", (0, 1): "c"}
    other = of(both, graph, handles={1: frozenset((2,))})
    assert other == {(0, 0): "a b", (0, 1): "c"}, "these are the handles of another delegate"


@pytest.mark.parametrize("count, wanted", [(64, {(0, 0)}), (65, set())])
def test_an_operator_stands_for_so_many_and_no_more(count: int, wanted: set[tuple[int, int]]) -> None:
    chain = [f"v{n} = sin {f'v{n - 1}' if n else 'd'}" for n in range(count - 1)]
    exported = program(f"d = dequantize x {Q}", *chain, f"q = quantize v{count - 2} {Q}")
    assert set(of(exported, delegate(f"1 = both 0 {D}"))) == wanted


def test_what_reads_more_than_that_is_not_found() -> None:
    chain = [f"v{n} = sin {f'v{n - 1}' if n else 'y'}" for n in range(70)]
    exported = program(*chain, "c = add x v69", inputs="x y")
    assert of(exported, delegate("2 = add 0 0", inputs="0 1")) == {}


def test_the_nearest_operators_are_looked_at_first() -> None:
    """A chain that is longer than what is looked at does not hide what follows another value at once."""
    chain = [f"v{n} = sin {f'v{n - 1}' if n else 'b'}" for n in range(100)]
    exported = program("a = tan x", "b = tanh x", *chain, "c = cos a")
    assert of(exported, delegate("1 = cos 0")) == {(0, 0): "a c"}


def test_what_is_quantized_is_not_looked_behind() -> None:
    others = [f"v{n} = sin e" for n in range(70)]
    exported = program(
        f"p = quantize x {Q}", "y = tan x", f"e = dequantize p {Q}", "z = tanh y", *others, "c = cos z"
    )
    assert of(exported, delegate("1 = cos 0")) == {(0, 0): "y z c"}


@pytest.mark.parametrize("count, wanted", [(63, "y c"), (64, None)])
def test_so_many_operators_are_looked_at(count: int, wanted: str | None) -> None:
    others = [f"v{n} = sin x" for n in range(count)]
    exported = program(*others, "y = tan x", "c = cos y")
    assert of(exported, delegate("1 = cos 0", "2 = sin 1", "3 = tan 1")).get((0, 0)) == wanted


#: What a search of these takes, in values that are compared: more of them would be refused.
WORK = {
    "arithmetic on int8 values": 1 + 2 + 4,
    "a chain ends where its value is read twice": 1 + 4 + 2 + 1,
}


@pytest.mark.parametrize("what", WORK)
def test_the_work_of_a_search_is_bounded(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    exported, graph, _ = RULES[what]
    monkeypatch.setattr(module, "_MOST_WORK", WORK[what])
    assert origins({0: graph}, exported)
    monkeypatch.setattr(module, "_MOST_WORK", WORK[what] - 1)
    with pytest.raises(
        LimitError, match=f"program: too many operators are alike; got {WORK[what]}, need <= "
    ):
        origins({0: graph}, exported)


def test_what_an_origin_says() -> None:
    first, second = Frame("a/net.py", 3, "forward", "x + y"), Frame("a\\other.py", 4, "forward")
    nodes = tuple(
        ExportedNode("aten.add.Tensor", ("x",), ("y",), frames=frames, module=name, module_type=kind)
        for frames, name, kind in (
            ((first,), "stem", "Stem"),
            ((second,), "head", "Head"),
            ((first,), "", ""),
        )
    )
    both, bare = Origin(nodes), Origin(nodes[2:])
    assert both.frames == [first, second]
    assert (both.module, both.module_type) == ("stem", "Stem")
    assert both.lines() == ["stem (Stem)", str(first), str(second)] and str(both) == "net.py:3 stem"
    assert str(Origin(nodes[1:2])) == "other.py:4 head"
    assert bare.lines() == [str(first)] and str(bare) == "net.py:3"
    nameless = replace(nodes[0], module="")
    assert Origin((nameless,)).lines() == ["Stem", str(first)]
    assert Origin((), input="x").lines() == ["input x"] and str(Origin((), input="x")) == "input x"
    assert Origin((), input="x").module == Origin((), input="x").module_type == ""
    assert str(Origin((replace(nameless, frames=()),))) == "aten.add.Tensor"
    assert plain(both) == {
        "module": "stem", "module_type": "Stem", "input": "", "operators": ["aten.add.Tensor"] * 3,
        "frames": [vars(first), vars(second)],
    }  # fmt: skip
