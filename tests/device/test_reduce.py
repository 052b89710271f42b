"""A program on which something fails is made smaller, until what is left is the failure alone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.core.errors import GraphError, RefsimError
from refsim.device.reduce.parts import parts, program_of
from refsim.device.reduce.search import Reduced, reduce, smaller
from refsim.exec.executor import Definition
from refsim.exec.model import Model, built
from refsim.formats.pte.read import Pte, load, read_pte
from refsim.formats.vkgraph.edit import GraphEditor
from refsim.formats.vkgraph.schema import VkTensor
from refsim.graph.memory import overlapping
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.spec import Call

DATA = Path(__file__).parents[1] / "data"
FILES = ("models/mobilenet_v2_035_96", "models/refine_seg", "networks/int8_attention", "zoo/conformer")


class Broken(Definition):
    """Right, but for one element of the calls of an operator that a condition names."""

    def __init__(self, operator: str, when: Callable[[Call], bool]) -> None:
        self.operator, self.when = operator, when

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        out = super().run_prepared(prepared, inputs)
        if prepared.call.op.name == self.operator and self.when(prepared.call):
            out.raw[np.flatnonzero(out.kinds() == ByteKind.VALUE)[-1]] ^= 0x15
        return out


def wrong(data: bytes, executor: Broken) -> bool:
    """Whether an executor gives other outputs than the definitions, on random inputs."""
    model = built(read_pte(data, "candidate"))
    given = model.random_inputs(0)
    pairs = zip(model.run(given, Definition()), model.run(given, executor), strict=True)
    return any(one.tobytes() != other.tobytes() for one, other in pairs)


def reduced(pte: Pte, fails: Callable[[bytes], bool]) -> tuple[Reduced, Model]:
    assert fails(program_of(pte, parts(pte)))
    found = reduce(pte, fails, time.monotonic() + 300)
    assert found.data is not None and fails(found.data)
    return found, built(read_pte(found.data, "reduced"))


def always(call: Call) -> bool:
    return True


def many_channels(call: Call) -> bool:
    return call.out.shape[call.op.channel_dim] > 20


def wide(call: Call) -> bool:
    return call.out.shape[-1] > 5


def strided(call: Call) -> bool:
    return max(call.params.stride) == 2


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("file", "operator", "when"),
    [
        ("models/mobilenet_v2_035_96", "q8ta_add", wide),
        ("models/mobilenet_v2_035_96", "q8ta_conv2d_dw", strided),
        ("models/mobilenet_v2_035_96", "q8ta_linear_gemv", always),
        ("models/refine_seg", "q8ta_pixel_shuffle", always),
        ("models/refine_seg", "q8ta_conv2d", many_channels),
        ("device/refine_seg.raw", "q8ta_add", wide),
        ("networks/int8_attention", "q8ta_linear", always),
        ("groups/encoder", "linear_dq8ca_q4gsw", always),
        ("zoo/conformer", "q8ta_linear", many_channels),
        ("zoo/encoder_8da4w", "linear_dq8ca_q4gsw", always),
        ("zoo/fastscnn", "q8ta_conv2d_pw", many_channels),
        ("zoo/mobilefacenet", "q8ta_conv2d", always),
        ("zoo/styletransfer", "q8ta_add", always),
    ],
)
def test_a_network_shrinks_to_the_operator_that_is_wrong(
    file: str, operator: str, when: Callable[[Call], bool]
) -> None:
    pte, executor = load(DATA / f"{file}.pte"), Broken(operator, when)
    found, model = reduced(pte, lambda data: wrong(data, executor))
    assert found.ended and not found.shares
    assert found.operators[0] == len(parts(pte)) >= 30 and found.operators[1] <= 3
    calls = [node.call for _, node in model.nodes() if node.operator == operator and node.call is not None]
    assert len(calls) == 1 and when(calls[0])
    assert max(max(desc.shape) for desc in calls[0].tensors.values()) <= 64


@pytest.mark.few(2)
@pytest.mark.parametrize("file", FILES)
def test_all_operators_together_are_the_program(file: str) -> None:
    pte = load(DATA / f"{file}.pte")
    first, second = built(pte), built(read_pte(program_of(pte, parts(pte)), "whole"))
    given = first.random_inputs(0)
    pairs = zip(first.run(given), second.run(given), strict=True)
    assert all(one.tobytes() == other.tobytes() for one, other in pairs)


@pytest.mark.long
@pytest.mark.parametrize("file", [*FILES, "networks/portable_places", "dynamic/attn_da4w"])
def test_each_operator_alone_is_a_program(file: str) -> None:
    pte = load(DATA / f"{file}.pte")
    for part in parts(pte)[::3]:
        model = built(read_pte(program_of(pte, [part]), "alone"))
        model.run(model.random_inputs(0))


@pytest.mark.parametrize(
    ("file", "operator"),
    [("fcn_add", "q8ta_add"), ("mixed_float", "q8ta_linear_gemv"), ("im2col", "q8ta_conv2d")],
)
def test_a_program_with_dynamic_dims_shrinks(file: str, operator: str) -> None:
    pte, executor = load(DATA / f"dynamic/{file}.pte"), Broken(operator, always)
    found, model = reduced(pte, lambda data: wrong(data, executor))
    assert found.operators[1] <= 3 and not model.is_dynamic


def test_dims_stay_dynamic_where_that_matters() -> None:
    pte = load(DATA / "dynamic/fcn_add.pte")
    executor = Broken("q8ta_add", always)
    found, model = reduced(
        pte, lambda data: built(read_pte(data, "candidate")).is_dynamic and wrong(data, executor)
    )
    assert found.operators[1] <= 3 and model.is_dynamic


def test_memory_stays_shared_where_that_matters() -> None:
    """Two inputs of an addition get one memory object, though both are needed."""
    pte = load(DATA / "models/refine_seg.pte")
    (number, blob), *_ = pte.blobs(pte.plan())
    call = next(c for c in blob.graph.chain if c.name == "et_vk.q8ta_add.default" and c.args[0] != c.args[1])
    values = list(blob.graph.values)
    for value in call.args[:2]:
        held = values[value]
        assert isinstance(held, VkTensor)
        values[value] = replace(held, mem_obj_id=1000)
    held_blob = replace(blob, graph=replace(blob.graph, values=tuple(values)))

    def fails(data: bytes) -> bool:
        candidate = read_pte(data, "candidate")
        return any(any(overlapping(one.graph)) for _, one in candidate.blobs(candidate.plan()))

    found, _ = reduced(replace(pte, held={number: held_blob}), fails)
    assert found.shares and found.operators[1] < found.operators[0] // 4


def test_two_operators_that_must_meet_both_stay() -> None:
    pte = load(DATA / "models/refine_seg.pte")

    def fails(data: bytes) -> bool:
        names = [node.operator for _, node in built(read_pte(data, "candidate")).nodes()]
        return "q8ta_add" in names and "q8ta_pixel_shuffle" in names

    found, _ = reduced(pte, fails)
    assert found.operators[1] <= 7


@pytest.mark.long
def test_the_time_of_a_search_ends_it_and_what_was_found_stays() -> None:
    pte, seen = load(DATA / "models/refine_seg.pte"), []
    executor, end = Broken("q8ta_add", always), time.monotonic() + 300

    def fails(data: bytes) -> bool:
        seen.append(data)
        if len(seen) == 6:
            raise KeyboardInterrupt
        return wrong(data, executor)

    kept: list[bytes] = []
    found = reduce(pte, fails, end, kept.append)
    assert not found.ended and found.tried == 6 and found.data == kept[-1]
    assert reduce(pte, fails, time.monotonic() - 1).data is None


def test_a_smaller_program_has_smaller_weights_and_the_same_operators() -> None:
    pte = load(DATA / "models/refine_seg.pte")
    chain = next(blob for _, blob in pte.blobs(pte.plan())).graph.chain
    part = next(one for one in parts(pte) if chain[one.operator].name == "et_vk.q8ta_conv2d_pw.default")
    small = read_pte(program_of(pte, [part]), "one")

    def weights(model: Model) -> int:
        (call,) = [node.call for _, node in model.nodes() if node.operator == "q8ta_conv2d_pw"]
        assert call is not None and call.consts["weight"] is not None
        return int(call.consts["weight"].size)

    found = []
    for make in smaller(small):
        with contextlib.suppress(RefsimError):
            found.append(weights(built(read_pte(make(), "smaller"))))
    assert min(found) < weights(built(small))


def test_a_delegate_of_another_backend_is_refused() -> None:
    pte = load(DATA / "models/linear_head.pte")
    plan = pte.plan()
    other = replace(plan, delegates=tuple(replace(d, id="OtherBackend") for d in plan.delegates))
    with pytest.raises(GraphError):
        parts(replace(pte, program=replace(pte.program, plans=(other,))))


def test_a_part_that_gives_nothing_is_refused() -> None:
    pte = load(DATA / "models/linear_head.pte")
    with pytest.raises(GraphError):
        program_of(pte, [])
    assert GraphEditor().graph().chain == ()
