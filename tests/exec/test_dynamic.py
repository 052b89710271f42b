"""Programs with dynamic dims, at every shape that ExecuTorch's runtime was recorded at."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import refsim
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import GraphError, ShapeError
from refsim.exec.cpu import NativeExecutor, compiled
from refsim.exec.executor import Executor
from refsim.exec.model import MOST_COPIES
from refsim.formats.pte.edit import ProgramEditor
from refsim.graph.interpreter import Kept
from refsim.graph.shapes import SYMBOLS

sys.path.insert(0, str(Path(__file__).parent))
from recorded_shapes import DEFECTS, EVERY, NAMES, Shape, about, model, shapes

#: Programs whose float outputs use functions of the device, or sums in another order: what they may be off, in parts of
#: the largest value. All other outputs must have the recorded bits.
OFF = dict.fromkeys(
    ("arange_pos", "attn_da4w", "bilinear", "da4w_rows", "mixed_float", "perm_neg", "split_dyn", "sym_in", "symout",
     "idxsel", "w4_rows", "w4_4d", "tok_emb"),
    2e-6,
)  # fmt: skip
#: What a program means is not what its kernels are asked for: one row of 4-bit weights is not quantized, and ties and
#: functions before a quantize move a value by a step.
MEANT = {"da4w_rows": 1e-2, "mixed_float": 2e-2, "split_glu": 3e-2}


def near(out: np.ndarray, need: np.ndarray, off: float) -> bool:
    if (out.shape, out.dtype) != (need.shape, need.dtype):
        return False
    if not off:
        return out.tobytes() == need.tobytes()
    return bool(np.abs(out.astype(np.float64) - need).max() <= off * max(np.abs(need).max(), 1e-30))


def buffers(
    program: refsim.Model, inputs: list[np.ndarray], executor: str | Executor
) -> dict[tuple[int, int], PackedBuffer]:
    """Every packed int8 buffer of a run."""
    found = Kept()
    program.run(inputs, executor, found)
    return {key: held for key, held in found.items() if isinstance(held, PackedBuffer) and held.desc.is_int8}


@pytest.mark.parametrize("executor", ["cpu", "cpu:emulated"])
@pytest.mark.parametrize(("name", "number"), EVERY)
def test_outputs(name: str, number: int, executor: str) -> None:
    one = Shape(name, number)
    outs = model(name).run(one.inputs, executor)
    meant = name in DEFECTS and (number or name in ("batch_conv", "gemv_lead"))
    for place, out in enumerate(outs):
        need = one.meant(place) if meant else one.recorded(place)
        assert need is not None
        assert near(out, need, MEANT[name] if meant and name in MEANT else OFF.get(name, 0.0)), place


@pytest.mark.parametrize(
    ("name", "number"), [row for row in EVERY if row[0] not in DEFECTS and Shape(*row).buffers()]
)
def test_buffers(name: str, number: int) -> None:
    """Elements and the padding that a device defines are the recorded bytes; what lies behind was never written."""
    one = Shape(name, number)
    need, program = one.buffers(), model(name)
    found = buffers(program, one.inputs, "cpu")
    assert found.keys() == need.keys()
    makers = {(d, v): node for d, node in program.at(one.inputs).nodes() for v in node.outputs}
    for key, held in found.items():
        call = makers[key].call
        assert call is not None
        raw, defined = np.frombuffer(need[key], np.uint8), call.device_defined()
        assert (held.raw[defined] == raw[: held.raw.size][defined]).all(), key
        assert (raw[held.raw.size :] == 0x5A).all(), key


@pytest.mark.few(24)
@pytest.mark.parametrize("order", ["down", "up", "mix"])
@pytest.mark.parametrize("name", NAMES)
def test_orders(name: str, order: str) -> None:
    """One prepared model gives at each shape what a fresh one gives, whatever ran before."""
    ready = model(name).prepare("cpu")
    kept = {one.number: one for one in shapes(name)}
    for number in about(name)["orders"][order]:
        if number not in kept:
            continue
        inputs = kept[number].inputs
        alone = model(name).run(inputs)
        again = ready.run(inputs)
        assert [a.tobytes() for a in again] == [a.tobytes() for a in alone]


def test_a_copy_is_a_file_of_its_own(tmp_path: Path) -> None:
    """Written and read again, the static copy has no SymInts and gives the same outputs."""
    for name in NAMES:
        one = shapes(name)[-1]
        copy = model(name).at(one.inputs)
        assert copy.container is not None
        file = tmp_path / f"{name}.pte"
        file.write_bytes(ProgramEditor(copy.container).write())
        read = refsim.load(file)
        assert [row.sizes for row in read.border] == [array.shape for array in one.inputs]
        assert not any(row.dynamic for row in read.border)
        for a, b in zip(read.run(one.inputs), copy.run(one.inputs), strict=True):
            assert a.tobytes() == b.tobytes(), name


def test_layouts_and_kernels_stay_as_at_the_bound() -> None:
    whole = model("general_bound")
    copy = whole.at(Shape("general_bound", 3).inputs)
    (bound,) = (node for _, node in whole.nodes() if node.call is not None and node.call.op.picks)
    assert bound.name == "et_vk.q8ta_conv2d.default"
    assert "et_vk.q8ta_conv2d_general.default" in [node.name for _, node in copy.nodes()]
    for number, tensor in copy.graphs[0].tensors.items():
        assert tensor.layout is whole.graphs[0].tensors[number].layout


def test_one_row_takes_another_kernel() -> None:
    """The 4-bit linears choose by the rows of each run."""
    whole = model("da4w_rows")
    launches = {}
    for one in shapes("da4w_rows"):
        nodes = [n for _, n in whole.at(one.inputs).nodes() if n.operator == "linear_dq8ca_q4gsw"]
        assert nodes[0].prepared is not None
        launches[one.inputs[0].shape[1]] = nodes[0].prepared.dispatches[0].launch.local
    assert launches[1] != launches[4] == launches[9] == launches[16]


def test_a_number_divided_by_a_dim_of_0_is_none() -> None:
    with pytest.raises(ZeroDivisionError):
        SYMBOLS["floordiv"](np.int64(4), np.int64(0))


def test_copies_are_kept_and_some_are_given_up() -> None:
    whole = model("lin_rows")
    given = [np.zeros((rows, 16), np.float32) for rows in range(1, 24)]
    assert whole.at([given[0]]) is whole.at([given[0]])
    assert whole.at([np.zeros((24, 16), np.float32)]) is whole
    first = whole.at([given[0]])
    assert first.at([given[1]]) is whole.at([given[1]])
    copies = [whole.at([array]) for array in given]
    assert copies[0] is first and whole.at([given[-1]]) is copies[-1]
    assert len(given) > MOST_COPIES and whole.at([given[0]]) is not first


@pytest.mark.parametrize(
    ("shape", "what"),
    [
        ((1, 3, 33, 32), "refuses more than 3072 elements"),
        ((1, 3, 64, 16), "writes outside"),
        ((1, 3, 32), "does not fit"),
        ((2, 3, 16, 16), "dim 0 is 2 of 1"),
    ],
)
def test_beyond_the_bound(shape: tuple[int, ...], what: str) -> None:
    whole = model("fcn_add")
    for run in (whole.run, whole.prepare("cpu").run):
        with pytest.raises(ShapeError, match=what):
            run([np.zeros(shape, np.float32)])


def test_a_static_dim_that_an_operator_needs() -> None:
    """The file does not say that K is static; the linear operator does."""
    with pytest.raises((ShapeError, GraphError), match="q8ta_linear"):
        model("lin_rows").run([np.zeros((24, 12), np.float32)])


def test_another_dtype() -> None:
    with pytest.raises(ShapeError, match="does not fit"):
        model("tok_emb").run([np.zeros((1, 9), np.float32)])


# --- sessions ------------------------------------------------------------------------------------------------


def test_one_session_through_five_shapes_in_poisoned_memory() -> None:
    """Forwards and backwards: the memory is the bound's, what lies in it counts for nothing, nothing is made anew."""
    executor = NativeExecutor()
    whole = model("fcn_add")
    ready = whole.prepare(executor)
    kept = shapes("fcn_add")
    assert len(kept) == 5
    first = {one.number: ready.run(one.inputs)[0].tobytes() for one in kept}
    plans = [executor.session(whole.at(one.inputs).graphs[0]) for one in kept]
    (block,) = {id(plan._block): plan._block for plan in plans}.values()
    known = dict(compiled._addresses)
    for one in [*kept, *reversed(kept)]:
        block[:] = 0x5A
        assert ready.run(one.inputs)[0].tobytes() == first[one.number]
    assert known == compiled._addresses
    assert plans == [executor.session(whole.at(one.inputs).graphs[0]) for one in kept]


def test_sessions_of_many_shapes_are_given_up() -> None:
    executor = NativeExecutor()
    whole = model("lin_rows")
    ready = whole.prepare(executor)
    for rows in range(1, 25):
        ready.run([np.zeros((rows, 16), np.float32)])
    some = executor.session(whole.at([np.zeros((24, 16), np.float32)]).graphs[0])
    executor.forget(whole.graphs[0])
    assert executor.session(whole.graphs[0]) is not some and len(executor._plans) == 1
