"""What ExecuTorch's WebGPU runtime gave for 161 calls and seven files: refsim gives the same bits."""

from __future__ import annotations

import io
import zipfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from refsim.check.finding import Level
from refsim.check.run import check_bytes
from refsim.check.runtime import runtime
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import GraphError, UnsupportedError
from refsim.core.qmath import CANONICAL, PROFILES, Profile
from refsim.device.across import across
from refsim.exec.factory import executor_named
from refsim.exec.model import Model, built, load
from refsim.exec.one_process import OneProcess
from refsim.exec.sequence import sequence
from refsim.formats.pte.read import read_pte
from refsim.graph.interpreter import Event, Observer
from refsim.graph.scalars import mended
from refsim.graph.shapes import _viewed
from refsim.ops.base.target import Target
from refsim.ops.flat.elementwise import CLAMPED
from refsim.ops.flat.rows import linear_q4gsw

DATA = Path(__file__).parents[1] / "data"
#: Operators whose divisions and functions are the device's own.
OWN = ("choose_qparams", "linear_dq8ca_q4gsw", "wg_mlp", "wg_relu")
#: Scalars that the file stores with another type than the one that the runtime reads.
MISREAD = {"wg_mobile", "x_res", "quantize_typed_zp_double6", "dequantize_typed_scale_int1"}
#: Those of them that ET-VK's runtime loads, too.
EXPORTED = {"wg_mobile", "x_res"}
MISREAD |= {f"add_typed_{name}" for name in ("alpha_int1", "alpha_int2", "scale_int1")}


def recordings() -> dict[str, dict[str, bytes]]:
    found: dict[str, dict[str, bytes]] = defaultdict(dict)
    with zipfile.ZipFile(DATA / "webgpu" / "recordings.zip") as held:
        for name in held.namelist():
            case, _, file = name.partition("/")
            found[case][file] = held.read(name)
    return found


RECORDED = recordings()


def arrays(case: str, begin: str) -> list[np.ndarray]:
    names = sorted(name for name in RECORDED[case] if name.startswith(begin))
    return [np.load(io.BytesIO(RECORDED[case][name])) for name in names]


def model(case: str, profile: Profile = CANONICAL) -> Model:
    behaviour = runtime("webgpu").behaviour
    return built(read_pte(RECORDED[case][f"{case}.pte"], case), Target(profile, runtime=behaviour))


def bits(found: list[np.ndarray]) -> list[bytes]:
    return [array.tobytes() for array in found]


def each(cases: Iterable[str]) -> pytest.MarkDecorator:
    """Cases of an operator in one test: there are many, of milliseconds each."""
    held: dict[str, list[str]] = defaultdict(list)
    for case in cases:
        held[case.partition("_")[0]].append(case)
    return pytest.mark.parametrize("cases", held.values(), ids=held)


@each(RECORDED)
def test_the_recorded_bits(cases: list[str]) -> None:
    for case in cases:
        assert bits(model(case).run(arrays(case, "in"))) == bits(arrays(case, "out")), case


@each(name for name in RECORDED if not name.startswith(OWN))
def test_the_bits_of_an_h200(cases: list[str]) -> None:
    for case in cases:
        recorded = arrays(case, "h200_out") or arrays(case, "out")
        assert bits(model(case, PROFILES["nvidia"]).run(arrays(case, "in"))) == bits(recorded), case


@each(RECORDED)
def test_what_loaded_has_no_error_and_what_is_misread_is_told(cases: list[str]) -> None:
    for case in cases:
        found = check_bytes(RECORDED[case][f"{case}.pte"], case, "webgpu")
        assert not [finding for finding in found if finding.level is Level.ERROR], case
        assert any(finding.rule == "scalar-type" for finding in found) == (case in MISREAD), case


def test_floats_beyond_int_are_noted_and_explained() -> None:
    """NaN and infinities have other bytes on the two runtimes, and on other shader compilers."""
    notes = check_bytes(RECORDED["quantize_special_zp5"]["quantize_special_zp5.pte"], "special", "webgpu")
    assert [(row.rule, row.level) for row in notes] == [("float-beyond-int", Level.NOTE)]
    (x,) = arrays("wg_mobile", "in")
    x.reshape(-1)[:3] = np.inf, -np.inf, np.nan
    models = built(read_pte(RECORDED["wg_mobile"]["wg_mobile.pte"], "wg_mobile")), model("wg_mobile")
    first = across(*models, [x], executor_named("cpu"), ("2026-08", "webgpu"))[0]
    assert first.operator == "q8ta_quantize" and first.alone and CLAMPED in first.why[0]


@pytest.mark.parametrize("case", sorted(MISREAD))
def test_a_mended_file_is_read_as_it_is_meant(case: str) -> None:
    data, rows = mended(RECORDED[case][f"{case}.pte"], case)
    assert rows and not [f for f in check_bytes(data, case, "webgpu") if f.rule == "scalar-type"]
    inputs, new = arrays(case, "in"), read_pte(data, case)
    webgpu = bits(built(new, Target(runtime=runtime("webgpu").behaviour)).run(inputs))
    assert webgpu != bits(arrays(case, "out"))
    if case in EXPORTED:
        old = read_pte(RECORDED[case][f"{case}.pte"], case)
        assert bits(built(new).run(inputs)) == bits(built(old).run(inputs)) == webgpu
    assert mended(data, case)[1] == []


def test_a_mended_file_gives_the_bits_of_one_with_doubles() -> None:
    """And so does the Vulkan runtime with the file as it is."""
    file, inputs, need = RECORDED["wg_mobile"]["wg_mobile.pte"], arrays("wg_mobile", "in"), "wg_mobile.alpha"
    data, _ = mended(file, "wg_mobile")
    found = built(read_pte(data, "wg_mobile"), Target(runtime=runtime("webgpu").behaviour))
    vulkan = built(read_pte(file, "wg_mobile"))
    assert bits(found.run(inputs)) == bits(vulkan.run(inputs)) == bits(arrays(need, "out"))


def test_buffers_are_flat() -> None:
    seen: list[tuple[str, PackedBuffer]] = []
    (x,) = arrays("x_add", "in")[:1]

    def see(event: Event) -> None:
        for held in event.outputs.values():
            assert isinstance(held, PackedBuffer)
            seen.append((event.nodes[0].operator, held))

    model("x_add").run([x, *arrays("x_add", "in")[1:]], "cpu", Observer(see))
    (flat,) = (held for operator, held in seen if operator == "q8ta_add")
    assert flat.desc.layout.name == "NCHW" and flat.raw.tobytes() == flat.unpack().tobytes()


def webgpu(name: str) -> Model:
    return load(DATA / "dynamic" / f"{name}.pte", Target(runtime=runtime("webgpu").behaviour))


def extended(x: np.ndarray, shape: tuple[int, ...], behind: np.ndarray) -> np.ndarray:
    """What a kernel of the bound's shape reads: an input in front, and what lay in memory behind it."""
    flat = behind.ravel().copy()
    flat[: x.size] = x.ravel()
    return flat.reshape(shape)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("batch_conv", (2, 8, 8, 8)),
        ("batch_conv", (3, 8, 8, 8)),
        ("general_bound", (1, 8, 12, 9)),
        ("gemv_lead", (3, 1, 16)),
        ("da4w_rows", (1, 9, 64)),
    ],
)
def test_what_is_not_resized_computes_the_bound(name: str, shape: tuple[int, ...]) -> None:
    """Its first run reads zeros behind a smaller input; a later one what the run before left there: the input of that,
    or a value that shares its memory."""
    found, rng = webgpu(name), np.random.default_rng(0)
    ((whole, dtype),) = found.input_shapes()
    x, before = (rng.uniform(-1, 1, size).astype(dtype) for size in (shape, whole))
    outputs = found.run([x])
    assert bits(outputs) == bits(found.run([extended(x, whole, np.zeros(whole, dtype))]))
    process = OneProcess(found, executor_named("cpu"))
    assert bits(process.outputs([before])) == bits(found.run([before]))
    (graph,) = found.graphs.values()
    memory = process.memory(0, graph.tensors[graph.inputs[0]], graph)
    behind = memory[: before.nbytes].view(dtype).reshape(whole).copy()
    assert bits(process.outputs([x])) == bits(found.run([extended(x, whole, behind)])) != bits(outputs)
    assert bits(found.run([x])) == bits(found.prepare().run([x])) == bits(outputs)


def test_the_first_images_are_those_of_the_whole_batch() -> None:
    found = webgpu("batch_conv")
    x = np.random.default_rng(0).uniform(-1, 1, (4, 8, 8, 8)).astype(np.float32)
    (whole,), (part,) = found.run([x]), found.run([x[:2]])
    assert part.shape == whole.shape and part[:2].tobytes() == whole[:2].tobytes()
    (step,) = sequence(found, [[x[:2]]], executor_named("cpu"))
    assert step.outputs[0].tobytes() == part.tobytes() and step.meant[0].tobytes() == whole[:2].tobytes()
    assert (step.wrong(0), step.stale(0)) == (0, whole[2:].size)
    told: dict[str, tuple[int, ...]] = {}

    def tell(event: Event) -> None:
        (value,) = event.outputs
        told[event.node.operator] = event.graph.tensors[value].shape

    assert bits(found.run([x[:2]], "cpu", tell)) == bits([part])
    assert set(told.values()) == {whole.shape}


def test_a_fixed_operator_reads_zeros_behind_what_a_resized_one_gave() -> None:
    found = webgpu("idxsel")
    held: dict[str, np.ndarray] = {}

    def tell(event: Event) -> None:
        (value,) = event.outputs
        array = event.outputs[value]
        held[event.node.operator] = array.unpack() if isinstance(array, PackedBuffer) else array

    found.run([np.random.default_rng(0).uniform(-1, 1, (1, 8, 9)).astype(np.float32)], "cpu", tell)
    rows = extended(held["aten.sigmoid"], (1, 8, 16), np.zeros((1, 8, 16), np.float32))
    chosen = held["et_vk.prepack"].ravel()
    assert held["aten.index_select"].tobytes() == rows[:, chosen].tobytes()
    assert held["aten.index_select"].shape[2] == 16


def test_a_sum_of_a_smaller_value_and_one_of_the_bound_stops() -> None:
    found = webgpu("sym_in")
    with pytest.raises(GraphError, match="add"):
        found.run([np.zeros((1, 9, 8), np.float32)])


def test_a_view_has_all_elements_of_its_input() -> None:
    """The dim that is another one is the first for which the number of elements comes out even."""
    shape = _viewed((2, 6, 4), 2 * 6 * 4, "")
    assert (shape, _viewed((2, 6, 4), 24, ""), _viewed((2, 6, 4), 40, "")) == (
        (2, 6, 4),
        (1, 6, 4),
        (2, 5, 4),
    )
    assert _viewed((0, 4), 0, "") == (0, 4)
    for count in (50, 7):
        with pytest.raises(GraphError, match="no shape"):
            _viewed((2, 6, 4), count, "")


def test_a_float_operator_is_resized() -> None:
    with np.load(DATA / "dynamic" / "symout.io.npz") as held:
        inputs, need = [held["s1.in0"]], held["s1.vk0"]
    assert webgpu("symout").run(inputs)[0].shape == need.shape


@pytest.mark.parametrize(
    ("kind", "one_row", "rows"), [("embedding", (0, 0), (0, 0)), ("linear", (0, 2.4e-7), (1e-5, 1e-3))]
)
def test_weights_of_4_bits_are_as_near_to_torch_as_measured(
    kind: str, one_row: tuple[float, float], rows: tuple[float, float]
) -> None:
    """The runtime's own outputs were not kept. It sums several rows in halves."""
    tables = sorted((DATA / "ops").glob(f"{kind}_q4gsw_*.pte"))
    assert len(tables) >= 8
    for file in tables:
        with np.load(file.with_suffix("").with_suffix(".io.npz")) as held:
            x, need = held["in0"], held["torch0"]
        (out,) = load(file, Target(runtime=runtime("webgpu").behaviour)).run([x])
        least, most = one_row if x.size == x.shape[-1] else rows
        assert least <= np.abs(out - need).max() <= most, file.name


def halves(x: np.ndarray, q: np.ndarray, scale: float) -> np.float32:
    """One element of several rows, product by product."""
    total = np.float32(0)
    for a, b in zip(x, q, strict=True):
        total += np.float32(np.float16(a) * (np.float16(b) * np.float16(scale)))
    return total


def lanes(x: np.ndarray, q: np.ndarray, scale: float) -> np.float32:
    """One element of a single row: 64 sums of words of eight values, then the sums by halves."""
    sums = np.zeros(64, np.float32)
    for at, (a, b) in enumerate(zip(x, q, strict=True)):
        sums[at // 8 % 64] += (a * np.float32(b)) * np.float32(scale)
    for half in (32, 16, 8, 4, 2, 1):
        sums = sums[:half] + sums[half:]
    return sums[0]


@pytest.mark.parametrize("rows", [1, 3])
def test_the_sums_of_weights_of_4_bits(rows: int) -> None:
    rng = np.random.default_rng(rows)
    depth, outputs, group = 1056, 5, 32
    x = rng.normal(0, 1, (rows, depth)).astype(np.float32)
    q = rng.integers(-8, 8, (outputs, depth))
    scales = np.repeat(rng.uniform(0.01, 0.02, (1, outputs)), depth // group, 0).astype(np.float32)
    weight = ((q[:, ::2] + 8) | (q[:, 1::2] + 8) << 4).astype(np.uint8)
    (found,) = linear_q4gsw(Target(), ((rows, outputs),), x, weight, scales, group)
    one = lanes if rows == 1 else halves
    assert found.tolist() == [[one(row, q[n], scales[0, n]) for n in range(outputs)] for row in x]


def test_sums_in_half_precision_are_refused() -> None:
    weight, scales = np.zeros((2048, 1024), np.uint8), np.ones((32, 2048), np.float32)
    with pytest.raises(UnsupportedError, match="half precision"):
        linear_q4gsw(Target(), ((128, 2048),), np.zeros((128, 2048), np.float32), weight, scales, 64)
