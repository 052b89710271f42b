"""No runtime with a wrong kernel is excused, and none with right ones is blamed, by triage and by bisect.

Nothing says which inputs a run had: outputs and the dumps that are made of them do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from saved import arrays

from device.simulated import Bug, Runtime, no_bug
from device.wrong_runtimes import WRONG, Wrong
from refsim.core.buffer import PackedBuffer
from refsim.core.layout import PACKED_4W4C
from refsim.core.qmath import PROFILES
from refsim.device.bisect import bisect
from refsim.device.collect import write as write_dump
from refsim.device.dumped import Row
from refsim.device.expose import Exposed, ExposeOptions, expose, write
from refsim.device.other_inputs import SURE, Others, others
from refsim.device.triage import triage
from refsim.device.verdicts import FOLLOWS, LEGAL, SAME, Triage
from refsim.device.verdicts import WRONG as WRONG_KIND
from refsim.exec.model import load
from refsim.formats.dumps import Recorded
from refsim.formats.pte.edit import single_delegate
from refsim.formats.vkgraph.edit import GraphEditor
from refsim.graph.graph import Node
from refsim.ops.base.target import Target

QUANTIZED = "quantized_decomposed."
DATA = Path(__file__).parents[1] / "data"


def path_of(name: str) -> Path:
    return next(DATA.glob(f"[mn]*/{name}.pte"))


@cache
def exposed(name: str) -> Exposed:
    (found,) = expose(path_of(name), ExposeOptions(), name="m.pte")
    return found


def inputs_of(name: str) -> list[np.ndarray]:
    path = path_of(name)
    io = path.with_suffix(".io.npz") if path.parent.name == "models" else path.with_suffix(".npz")
    with np.load(io) as held:
        return [held[f"in{number}"] for number in range(len(load(path).input_shapes()))]


def ran(
    folder: Path,
    name: str,
    inputs: list[np.ndarray],
    bug: Bug = no_bug,
    target: Target | None = None,
    given: list[np.ndarray] | None = None,
) -> tuple[Triage, list[Row]]:
    """What triage says of a run of an exposed program, and bisect of the dump; ``given``: the inputs that they get."""
    file, outputs = folder / "m.pte", folder / "o.npz"
    write(file, [exposed(name)])
    made = Runtime(exposed(name).data, target, bug=bug).run(inputs)
    arrays(outputs, made)
    given = inputs if given is None else given
    found = triage([(file, [outputs])], given, limit=1)
    write_dump(folder / "dump", found.collected)
    options = dict(explained=1, unsaid=True, limit=1, device=True)
    profile = None if target is None else target.profile
    return found, bisect(load(path_of(name)), Recorded(folder / "dump"), given, profile=profile, **options)  # type: ignore[arg-type]


@pytest.mark.few(3)
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_a_wrong_kernel_is_never_excused(wrong: Wrong, tmp_path: Path) -> None:
    found, rows = ran(tmp_path, wrong.model, inputs_of(wrong.model), wrong)
    assert found.wrong and not found.same
    assert {v.row.operator for v in found.wrong} == {wrong.operator}
    assert {row.operator for row in rows if row.wrong} == {wrong.operator}
    assert found.doubted is None and not any(row.excused for row in rows)


@pytest.mark.few(5)
@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
@pytest.mark.parametrize("name", sorted({wrong.model for wrong in WRONG}))
def test_a_right_runtime_is_never_blamed(name: str, profile, tmp_path: Path) -> None:
    found, rows = ran(tmp_path, name, inputs_of(name), target=Target(profile))
    kinds = {v.verdict for v in found.verdicts}
    # where a profile allows another float, a later delegate may have got a bool that no output holds
    assert kinds <= {SAME, LEGAL} | ({FOLLOWS} if name == "int8_attention" else set()) and found.same
    assert not any(row.wrong or row.doubt for row in rows)


def device_inputs(what: str, inputs: list[np.ndarray]) -> Others:
    return next(one for one in others(load(path_of("mixed_ops")), inputs) if one.what == what)


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "most"),
    [
        ("in0 in NHWC", 4),
        ("in0 divided by 255", 400),
        ("in0 in NHWC, times 255", 0.01),
        ("those of --random 3", 4),
    ],
)
def test_other_inputs_that_explain_every_byte_are_found(what: str, most: float, tmp_path: Path) -> None:
    """The device had them, and all of its kernels are right. ``most``: about the largest input that is given."""
    inputs = [np.abs(x) * np.float32(most / 4) for x in inputs_of("mixed_ops")]
    other = device_inputs(what, inputs)
    found, rows = ran(tmp_path, "mixed_ops", list(other.inputs), given=inputs)
    assert found.doubted is not None and not found.wrong and not found.same
    assert found.doubted.node == 0 and f": {what}." in found.doubts[0]
    assert [row.value for row in rows if row.excused] == [found.doubted.value]
    assert not any(row.wrong for row in rows)


def test_inputs_that_nothing_explains_are_no_excuse(tmp_path: Path) -> None:
    inputs = inputs_of("linear_head")
    found, rows = ran(tmp_path, "linear_head", [x[::-1].copy() / 2 for x in inputs], given=inputs)
    assert [v.row.node for v in found.wrong] == [0] == [row.node for row in rows if row.wrong]
    assert SURE in found.doubts[0]


def test_a_cause_is_more_than_other_inputs(tmp_path: Path) -> None:
    """A kernel that reads H for W gives the same bytes as an image with H and W exchanged."""
    inputs = inputs_of("mixed_ops")
    other = device_inputs("in0 with H and W exchanged", inputs)
    found, _ = ran(tmp_path, "mixed_ops", list(other.inputs), given=inputs)
    assert [v.row.node for v in found.wrong] == [0] and other.what in found.doubts[0]
    (v,) = found.wrong
    assert v.report is not None and v.report.causes[0].exact


@pytest.mark.long
def test_inputs_that_are_right_are_not_doubted(tmp_path: Path) -> None:
    inputs = inputs_of("linear_head")
    ran(tmp_path, "linear_head", load(path_of("linear_head")).random_inputs(1), given=inputs)
    given = [(tmp_path / "m.pte", [tmp_path / "o.npz"])]
    assert triage(given, inputs).doubted is not None
    found = triage(given, inputs, sure=True)
    assert found.wrong and not found.doubts


def test_a_device_has_functions_of_its_own(tmp_path: Path) -> None:
    """An exp may be a few bits off; what is far off is wrong."""
    inputs = inputs_of("int8_mixer")
    for share, kind in ((1e-7, LEGAL), (1e-4, WRONG_KIND)):

        def off(node: Node, read: Mapping[str, PackedBuffer], right: PackedBuffer) -> PackedBuffer:
            if node.name != "aten.gelu.default":
                return right
            values = right.unpack() * np.float32(1 + share)  # noqa: B023
            return PackedBuffer.pack(values, right.desc.layout)

        folder = tmp_path / kind
        folder.mkdir()
        found, _ = ran(folder, "int8_mixer", inputs, off)
        (v,) = [v for v in found.verdicts if v.row.operator == "aten.gelu"]
        assert v.verdict == kind and found.same == (kind == LEGAL)


def two_inputs(folder: Path) -> Path:
    """A program that quantizes two inputs of one shape and adds them."""
    graph, shape, layout = GraphEditor(), (1, 4, 6, 5), PACKED_4W4C
    packed = [graph.tensor("int8", shape, layout) for _ in range(3)]
    facts = [(0.02, 3), (0.03, -5), (0.05, 1)]
    bounds = [graph.literal(value) for value in (-128, 127, None)]
    for value, (scale, zp) in zip(packed[:2], facts, strict=False):
        x = graph.tensor("float32", shape)
        graph.input(x)
        graph.call(
            f"{QUANTIZED}quantize_per_tensor.default", x, *map(graph.literal, (scale, zp)), *bounds, value
        )
    numbers = [graph.literal(number) for pair in facts for number in pair]
    graph.call("et_vk.q8ta_add.default", *packed[:2], *numbers, graph.literal(1.0), packed[2])
    out = graph.tensor("float32", shape)
    last = [graph.literal(number) for number in facts[2]]
    last += [*bounds, graph.literal(None)]
    graph.call(f"{QUANTIZED}dequantize_per_tensor.default", packed[2], *last, out)
    graph.output(out)
    path = folder / "two.pte"
    path.write_bytes(single_delegate(graph.blob(), [("float32", shape)] * 2, [("float32", shape)]))
    return path


def test_two_inputs(tmp_path: Path) -> None:
    """Each quantize is judged, whatever the other does; exchanged inputs explain both or nothing."""
    file, outputs = tmp_path / "m.pte", tmp_path / "o.npz"
    (program,) = expose(two_inputs(tmp_path), ExposeOptions(), name=str(file))
    write(file, [program])
    inputs = load(tmp_path / "two.pte").random_inputs(40)

    def found(given: list[np.ndarray], bug: Bug = no_bug) -> Triage:
        made = Runtime(program.data, bug=bug).run(given)
        arrays(outputs, made)
        return triage([(file, [outputs])], inputs, limit=1)

    def both(node: Node, read: Mapping[str, PackedBuffer], right: PackedBuffer) -> PackedBuffer:
        return WRONG[0](node, read, right)

    def second(node: Node, read: Mapping[str, PackedBuffer], right: PackedBuffer) -> PackedBuffer:
        if node.operator != "q8ta_quantize" or node.call is None:
            return right
        kept.append(read["x"])
        return node.call.expected({"x": kept[0]})

    kept: list[PackedBuffer] = []
    assert found(inputs).same
    assert [v.row.node for v in found(inputs, both).wrong] == [0, 1]
    assert [v.row.node for v in found(inputs, second).wrong] == [1]
    exchanged = found(inputs[::-1])
    assert not exchanged.wrong and [v.row.node for v in exchanged.verdicts if v.row.excused] == [0, 1]
    assert "in0 and in1 exchanged" in exchanged.doubts[0]
