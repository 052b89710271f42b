"""What ExecuTorch's WebGPU runtime gave for 161 calls and seven files: refsim gives the same bits."""

from __future__ import annotations

import io
import zipfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from refsim.check.finding import Level
from refsim.check.run import check_bytes
from refsim.check.runtime import runtime
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import ShapeError, UnsupportedError
from refsim.core.qmath import CANONICAL, PROFILES, Profile
from refsim.exec.model import Model, built, load
from refsim.formats.pte.read import read_pte
from refsim.graph.interpreter import Event, Observer
from refsim.graph.scalars import mended
from refsim.ops.base.target import Target

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


@pytest.mark.parametrize("case", RECORDED)
def test_the_recorded_bits(case: str) -> None:
    assert bits(model(case).run(arrays(case, "in"))) == bits(arrays(case, "out"))


@pytest.mark.parametrize("case", [name for name in RECORDED if not name.startswith(OWN)])
def test_the_bits_of_an_h200(case: str) -> None:
    recorded = arrays(case, "h200_out") or arrays(case, "out")
    assert bits(model(case, PROFILES["nvidia"]).run(arrays(case, "in"))) == bits(recorded)


def test_an_h200_fuses_some_additions() -> None:
    apart = [n for n in RECORDED if (own := arrays(n, "h200")) and bits(own) != bits(arrays(n, "out"))]
    assert len(RECORDED) == 168 and len(apart) >= 5


@pytest.mark.parametrize("case", RECORDED)
def test_what_loaded_has_no_error_and_what_is_misread_is_told(case: str) -> None:
    found = check_bytes(RECORDED[case][f"{case}.pte"], case, "webgpu")
    assert not [finding for finding in found if finding.level is Level.ERROR]
    assert any(finding.rule == "scalar-type" for finding in found) == (case in MISREAD)


def test_a_double_for_alpha_gives_the_bits_of_the_vulkan_runtime() -> None:
    (x,) = arrays("wg_mobile", "in")
    vulkan = built(read_pte(RECORDED["wg_mobile"]["wg_mobile.pte"], "wg_mobile"))
    assert bits(vulkan.run([x])) == bits(arrays("wg_mobile.alpha", "out")) != bits(arrays("wg_mobile", "out"))


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
    data, _ = mended(RECORDED["wg_mobile"]["wg_mobile.pte"], "wg_mobile")
    found = built(read_pte(data, "wg_mobile"), Target(runtime=runtime("webgpu").behaviour))
    assert bits(found.run(arrays("wg_mobile", "in"))) == bits(arrays("wg_mobile.alpha", "out"))


def test_buffers_are_flat() -> None:
    seen: list[tuple[str, PackedBuffer]] = []
    (x,) = arrays("x_add", "in")[:1]

    def see(event: Event) -> None:
        for held in event.outputs.values():
            assert isinstance(held, PackedBuffer)
            seen.append((event.nodes[0].operator, held))

    model("x_add").run([x, *arrays("x_add", "in")[1:]], "cpu", Observer(see))
    (flat,) = (held for operator, held in seen if operator == "q8ta_add")
    assert flat.desc.layout.name == "FLAT_INT8" and flat.raw.tobytes() == flat.unpack().tobytes()


def test_other_shapes_than_the_bound_are_refused() -> None:
    found = load(DATA / "dynamic" / "w4_rows.pte", Target(runtime=runtime("webgpu").behaviour))
    ((shape, dtype),) = found.input_shapes()
    with pytest.raises(ShapeError, match="does not resize"):
        found.run([np.zeros((shape[0] - 1, *shape[1:]), dtype)])


@pytest.mark.parametrize("name", ["arange_pos", "bilinear", "sym_in", "symout"])
def test_float_operators_are_resized(name: str) -> None:
    """None of these programs has an int8 operator; the sums are torch's but for their order."""
    found = load(DATA / "dynamic" / f"{name}.pte", Target(runtime=runtime("webgpu").behaviour))
    with np.load(DATA / "dynamic" / f"{name}.io.npz") as held:
        inputs, need = [held["s1.in0"]], held["s1.torch0"] if "s1.torch0" in held.files else held["s1.vk0"]
    out = found.run(inputs)[0]
    assert out.shape == need.shape and np.abs(out - need).max() <= 2e-6 * np.abs(need).max()


def test_rows_of_a_table_of_4_bits_are_as_in_torch() -> None:
    tables = sorted((DATA / "ops").glob("embedding_q4gsw_*.pte"))
    assert len(tables) >= 8
    for file in tables:
        with np.load(file.with_suffix("").with_suffix(".io.npz")) as held:
            inputs, need = [held["in0"]], held["torch0"]
        found = load(file, Target(runtime=runtime("webgpu").behaviour))
        assert found.run(inputs)[0].tobytes() == need.tobytes(), file.name


def test_products_in_half_precision_are_refused() -> None:
    found = load(DATA / "dynamic" / "w4_rows.pte", Target(runtime=runtime("webgpu").behaviour))
    with pytest.raises(UnsupportedError, match="half precision"):
        found.run([np.zeros(shape, dtype) for shape, dtype in found.input_shapes()])
