"""The words of `ModuleCall` in calls: parameter blocks, push words, weights, sizes; and rows of other kernels."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_convolution import convolution

from refsim.core.buffer import PackedBuffer
from refsim.core.errors import ParameterError
from refsim.core.launch import Triple
from refsim.core.layout import FLOAT_LAYOUTS, INT8_LAYOUTS
from refsim.core.rng import Rng
from refsim.core.tensor import TensorDesc
from refsim.ops.base import module_call
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.host import tensor, words
from refsim.ops.base.host.weights import PACKINGS
from refsim.ops.base.module_call import Host, HostFeatures, ModuleCall, Shader
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call

PAGE = (Path(__file__).parents[2] / "docs" / "modules.md").read_text()


# --- operators and words ---------------------------------------------------------------------------------

#: Operators of which upstream's modules are not run: their kernels are called in other ways.
WITHOUT = {
    "choose_qparams_affine", "choose_qparams_affine_zp", "embedding_q4gsw", "linear_dq8ca_q4gsw", "linear_q4gsw",
    "linear_q8ta_q8csw", "linear_q8ta_q8csw_tiled", "quantize_and_pack_4h4w",
}  # fmt: skip


def test_every_operator_has_a_row_or_is_listed() -> None:
    rows = {name for name, op in OPS.items() if op.upstream.module is not None}
    assert {name for name, op in OPS.items() if op.upstream.module is None and not op.picks} == WITHOUT
    assert all(OPS[name].upstream.module.shaders or OPS[name].expand for name in rows)  # type: ignore[union-attr]
    assert all(f"`{name}`" in PAGE for name in WITHOUT)


def test_the_page_explains_every_word() -> None:
    tables = (words.BLOCKS, words.WORDS, words.GLOBALS, words.LOCALS, PACKINGS)
    for name in (name for table in tables for name in table):
        assert re.search(rf"^\| `?{name}\b", PAGE, re.M), name


@pytest.mark.parametrize(
    "name", [name for name, op in OPS.items() if op.upstream.module is not None or op.picks]
)
@pytest.mark.parametrize("later", [False, True])
@given(seed=st.integers(0, 2**31))
@settings(max_examples=25)
def test_any_call_becomes_dispatches(name: str, later: bool, seed: int) -> None:
    call = bind(OPS[name].sample(Rng(seed))).call
    if module_call.why_not(call) is not None:
        assert name in ("q8ta_pixel_shuffle", "q8ta_im2col")
        return
    for images in (False, True):
        made = {"x", "a", "b"}
        for step in module_call.dispatches(call, Host(HostFeatures(later=later, float_images=images))):
            assert all(0 <= word < 1 << 32 for word in step.spec)
            assert min(step.global_size) > 0 and prod(step.local) == 64
            assert [bind.writes for bind in step.binds].count(True) == 1
            for entry in step.binds:
                assert entry.count % 4 == 0
                assert (entry.words is None) == bool(entry.buffer)
                assert entry.words is None or (entry.words.dtype, entry.words.size) == ("uint32", entry.count)
                assert entry.writes or not entry.buffer or entry.buffer in made
                assert not entry.extent or 4 * prod(entry.extent) == entry.count
                made.add(entry.buffer)
        assert "out" in made


@given(seed=st.integers(0, 2**31))
@settings(max_examples=200)
def test_buffer_metadata_decodes_to_the_tensor(seed: int) -> None:
    """A kernel that follows sizes, order and strides of the block finds each element where `PackedBuffer` has it."""
    rng = Rng(seed)
    shape = tuple(rng.integer(1, most) for most in (2, 1, 2, 2, 3, 6, 6, 6)[-rng.integer(1, 8) :])
    desc = TensorDesc(shape, rng.choice([*INT8_LAYOUTS, *FLOAT_LAYOUTS]))
    block = tensor.buffer_metadata(desc)
    assert block.nbytes == 112
    sizes, order, strides = block[:8], block[8:16], block[16:24]
    count, total = block[24], block[25]
    assert (tuple(sizes[:count][::-1]), sizes[count:].tolist()) == (shape, [1] * (8 - len(shape)))
    assert sorted(order) == list(range(8))
    assert strides[count:].tolist() == [total] * (8 - len(shape))
    assert total == desc.buffer_numel
    by_stride = sorted(range(count), key=lambda dim: (int(strides[dim]), list(order).index(dim)))
    assert by_stride == order[:count].tolist()
    hashed = tensor.hashed(desc)
    assert [hashed >> 4 * place & 15 for place in range(4)] == order[:4].tolist()
    marks = np.arange(desc.numel).reshape(shape) % 100
    raw = PackedBuffer.pack(marks.astype(np.int8 if desc.is_int8 else np.float32), desc.layout).raw
    values = raw.view(np.int8 if desc.is_int8 else np.float32)
    blocks = (hashed >> 24 & 15, hashed >> 28 & 15)
    dims = (hashed >> 16 & 15, hashed >> 20 & 15)
    for index in np.ndindex(*shape):
        whcn = [*reversed(index), 0, 0, 0]
        at = sum(
            whcn[dim] // dict(zip(dims, blocks, strict=True)).get(dim, 1) * int(strides[dim])
            for dim in range(count)
        )
        place = at * blocks[0] * blocks[1] + whcn[dims[1]] % blocks[1] * blocks[0] + whcn[dims[0]] % blocks[0]
        assert values[place] == marks[index]


@given(seed=st.integers(0, 2**31))
@settings(max_examples=100)
def test_texels_hold_the_tensor(seed: int) -> None:
    rng = Rng(seed)
    shape = tuple(rng.integer(1, 6) for _ in range(rng.integer(1, 4)))
    desc = TensorDesc(shape, rng.choice(list(FLOAT_LAYOUTS)))
    array = np.arange(1, desc.numel + 1, dtype=np.float32).reshape(shape)
    texels = tensor.to_texels(array, desc)
    assert texels.shape == (*reversed(tensor.image_extent(desc)), 4)
    assert np.array_equal(tensor.from_texels(texels, desc), array)
    w, h, c, n = desc.sizes_whcn
    four, inner = array.reshape(n, c, h, w), desc.layout.inner
    fours = tensor.image_extent(desc)[2] // n
    for index in np.ndindex(n, c, h, w):
        whc = [index[3], index[2], index[1]]
        lane, whc[inner] = whc[inner] % 4, whc[inner] // 4
        assert texels[index[0] * fours + whc[2], whc[1], whc[0], lane] == four[index]
    assert np.count_nonzero(texels) == desc.numel
    block = tensor.texture_metadata(desc)
    assert block[:4].tolist() == [w, h, c, n]
    assert block[4:8].tolist() == [*tensor.image_extent(desc), 1]
    assert block[8:].tolist() == [0, 1, 2, 2, inner, 0, 0, 0]


def test_a_convolution_by_hand() -> None:
    """5 channels to 6; 3 x 2 taps of 5 channels are K = 30, of which 32 are stored."""
    call = convolution(5, 6, padding=(1, 0), dilation=(1, 2), activation="relu")
    (step,) = module_call.dispatches(call)
    assert [entry.what for entry in step.binds] == [
        "out", "x", "weight", "weight_sums", "weight_scales", "bias", "meta:out", "meta:x", "conv_params",
    ]  # fmt: skip
    out, x, weight, sums, scales, bias, *_, params = step.binds
    assert call.out.shape == (2, 6, 5, 8)
    assert (out.count, x.count) == (2 * 2 * 5 * 8, 2 * 2 * 9 * 10)
    assert (weight.storage, weight.extent) == ("texture2d", (2 * 2, 3 * 2))
    assert (sums.count, scales.count, bias.count) == (8, 8, 4)
    assert bias.words is not None and not bias.words.any()
    assert params.words is not None and params.words.nbytes == 80
    window = [2, 3, 1, 2, 0, 1, 2, 1]  # width first: kernel, stride, padding, dilation
    assert params.words.tolist() == [*window, 1, 6, 5, 30, 32, 8, 30, 32, 8, 0, 0, 0]
    assert struct.unpack("<fifi", step.push) == (0.5, -3, np.float32(1) / np.float32(0.1), 7)
    assert step.spec == (0, 1, 0x14023120, 0x14023102)
    assert (step.global_size, step.local, step.grid) == ((2, 5, 2), (16, 1, 4), (1, 5, 1))


def test_grouped_lengths_by_hand() -> None:
    call = convolution(8, 16, groups=2)
    (step,) = module_call.dispatches(call)
    params = step.binds[-1].words
    assert params is not None
    assert params[8:17].tolist() == [2, 8, 4, 24, 24, 6, 48, 48, 12]


@given(seed=st.integers(0, 2**31), name=st.sampled_from(["general", "pw", "dw", "transposed", "im2col"]))
@settings(max_examples=60)
def test_packed_convolution_weights(seed: int, name: str) -> None:
    """Each texel holds the weights that its place stands for, and zeros where there are none."""
    call = bind(OPS[f"q8ta_conv2d_{name}"].sample(Rng(seed))).call
    step = module_call.dispatches(call)[-1]
    bound = step.binds[2]
    kh, kw = call.params.kernel_size
    weight = np.asarray(call.consts["weight"], np.int64)
    assert bound.words is not None
    width, height = bound.extent
    lanes = bound.words.view(np.int8).reshape(height, width, 4, 4)
    if name == "dw":
        found = [(y, x, j, i) for y, x, j, i in np.ndindex(lanes.shape) if j + 4 * (y % -(-kw // 4)) < kw]
        expected = {
            at: weight[at[0] // -(-kw // 4), at[2] + 4 * (at[0] % -(-kw // 4)), 4 * at[1] + at[3]]
            for at in found
        }
    else:
        depth = call.descs["x"].shape[-3] // call.params.groups
        if name == "im2col":  # the matrix of all taps
            kh, kw, depth = 1, 1, kh * kw * depth
        per_row, expected = -(-depth // 4), {}
        for oc, ky, kx, ic in np.ndindex(len(weight), kh, kw, depth):
            at = (ky * per_row + ic // 4, oc // 4 * kw + kx, oc % 4, ic % 4)
            expected[at] = weight[oc, (ky * kw + kx) * depth + ic]
    whole = np.zeros(lanes.shape, np.int64)
    for at, value in expected.items():
        whole[at] = value
    assert np.array_equal(lanes, whole)


@given(seed=st.integers(0, 2**31), name=st.sampled_from(["q8ta_linear", "q8ta_linear_gemv"]))
@settings(max_examples=30)
def test_packed_linear_weights(seed: int, name: str) -> None:
    call = bind(OPS[name].sample(Rng(seed))).call
    (step,) = module_call.dispatches(call)
    weight = np.asarray(call.consts["weight"])
    rows, k = weight.shape
    words = step.binds[2].words
    assert words is not None and step.binds[2].extent == (-(-rows // 4), k // 4)
    lanes = words.view(np.int8).reshape(k // 4, -1, 4, 4)
    padded = np.zeros((lanes.shape[1] * 4, k), np.int8)
    padded[:rows] = weight
    for k4, n4, n, i in np.ndindex(lanes.shape):
        assert lanes[k4, n4, n, i] == padded[4 * n4 + n, 4 * k4 + i]
    sizes = [entry.words.tolist() for entry in step.binds[6:] if entry.words is not None]
    assert sizes == [[*desc.shape[::-1], 1, 1, 1][:4] for desc in (call.out, call.descs["x"])]


def test_unsigned_weights_are_128_higher() -> None:
    call = bind(OPS["q8ta_conv2d_im2col"].cases.example).call
    signed, unsigned = (
        module_call.dispatches(call, Host(HostFeatures(unsigned_dot=is_unsigned)))[1].binds[2]
        for is_unsigned in (False, True)
    )
    assert signed.words is not None and unsigned.words is not None
    higher = unsigned.words.view(np.uint8).astype(int) - signed.words.view(np.int8)
    assert (higher == 128).all()
    assert signed.extent == unsigned.extent


# --- rows of others --------------------------------------------------------------------------------------

OWN = ModuleCall(
    shaders=(Shader("mine"),),
    bindings=("x", "out", "meta:x"),
    push=("in_zp", "inv_out_scale", "7"),
    spec=("layout:x", "-1"),
    global_size=("w * h", "ceil(c / 4)", "n"),
    local_size="8,8,1",
)


def relu() -> Call:
    return bind(
        Case(
            "q8ta_relu",
            dict(in_scale=0.5, in_zp=3, out_scale=0.25, out_zp=-1),
            {"x": ((2, 5, 3, 7), "4C")},
            "4C",
        )
    ).call


def test_rows_of_other_kernels_use_the_same_words() -> None:
    (step,) = module_call.dispatches(relu(), Host(available=["mine"], rows={"q8ta_relu": OWN}))
    assert [(entry.what, entry.writes) for entry in step.binds] == [
        ("x", False),
        ("out", True),
        ("meta:x", False),
    ]
    assert struct.unpack("<ifi", step.push) == (3, 4.0, 7)
    assert step.spec == (0x14023102, 0xFFFFFFFF)
    assert (step.global_size, step.local, step.grid) == ((21, 2, 2), (8, 8, 1), (3, 1, 2))


def test_a_row_of_its_own_replaces_what_an_operator_expands_to() -> None:
    call = bind(OPS["q8ta_conv2d"].sample(Rng(1))).call
    row = replace(OWN, bindings=("out", "x", "weight", "conv_params"), push=(), spec=())
    (step,) = module_call.dispatches(call, Host(rows={"q8ta_conv2d": row}))
    assert step.shader == "mine"
    assert step.binds[2].words is not None
    assert (
        step.binds[2].words.view(np.int8)[: call.consts["weight"].size].tolist()
        == call.consts["weight"].ravel().tolist()
    )


@pytest.mark.parametrize(
    ("change", "got"),
    [
        (dict(bindings=("out", "y")), "y"),
        (dict(bindings=("meta:y",)), "y"),
        (dict(push=("out_scal",)), "out_scal"),
        (dict(push=("inv_in_zp",)), "inv_in_zp"),
        (dict(spec=("layuot:x",)), "layuot:x"),
        (dict(spec=("apply_bias",)), "apply_bias"),
        (dict(spec=("activation",)), None),
        (dict(bindings=("conv_params",)), None),
        (dict(global_size="w,h"), "w,h"),
        (dict(global_size="wrods:x"), "wrods:x"),
        (dict(global_size=("w2", "h", "c")), "w2"),
        (dict(local_size="fast"), "fast"),
        (dict(local_size="0,1,1"), "0,1,1"),
    ],
)
def test_wrong_words_are_named(change: dict[str, Any], got: str | None) -> None:
    with pytest.raises(ParameterError) as caught:
        module_call.dispatches(relu(), Host(rows={"q8ta_relu": replace(OWN, **change)}))
    assert caught.value.got == got


@pytest.mark.parametrize(
    ("shape", "upscale", "reason"),
    [
        ((1, 9, 2, 2), 3, "r = 3, the host takes 2 only"),
        ((4, 2, 2), 2, "3 dims, the host takes 4 only"),
        ((1, 4, 2, 2), 2, None),
    ],
)
def test_calls_that_a_host_refuses(shape: tuple[int, ...], upscale: int, reason: str | None) -> None:
    params = dict(in_scale=0.5, in_zp=1, out_inv_scale=2.0, out_zp=1, upscale=upscale)
    call = bind(Case("q8ta_pixel_shuffle", params, {"x": (shape, "4C")}, "4C")).call
    assert module_call.why_not(call) == (reason and f"q8ta_pixel_shuffle: {reason}")


def test_images_hold_four_dims() -> None:
    x = {"x": ((2, 1, 2, 3, 5), "WIDTH_PACKED")}
    call = bind(Case("q8ta_quantize", dict(scale=0.5, zp=1), x, "4W")).call
    (step,) = module_call.dispatches(call, Host(HostFeatures(float_images=True)))
    assert step.shader == "q8ta_quantize_buffer_float"
    assert module_call.why_not(call, Host(available=["q8ta_quantize_texture3d_float"])) == (
        "q8ta_quantize: no module computes it; need q8ta_quantize_buffer_float"
    )


def test_windows_of_a_batch_are_a_part_of_a_convolution_only() -> None:
    """The host computes one image; alone, that is not the operator. As a scratch tensor it is what the host does."""
    alone = bind(OPS["q8ta_im2col"].cases.example).call
    assert alone.out.shape[0] == 2
    assert "its host writes a part of the output only" in str(module_call.why_not(alone))
    assert module_call.why_not(alone, Host(HostFeatures(later=True))) is None
    assert module_call.why_not(bind(OPS["q8ta_conv2d_im2col"].cases.example).call) is None


def test_operators_without_a_row_say_so() -> None:
    call = bind(OPS["linear_q8ta_q8csw"].sample(Rng(3))).call
    assert module_call.why_not(call) == (
        "quantize_and_pack_4h4w: no row says how modules of another build are called"
    )
    assert module_call.why_not(relu()) is None


@pytest.mark.parametrize(
    ("size", "local"),
    [
        ((100, 1, 1), (64, 1, 1)),
        ((1, 7, 1), (1, 64, 1)),
        ((8, 12, 1), (4, 16, 1)),
        ((12, 8, 1), (16, 4, 1)),
        ((9, 7, 1), (32, 2, 1)),
        ((5, 4, 3), (8, 4, 2)),
        ((3, 4, 5), (2, 4, 8)),
        ((2, 10, 5), (4, 2, 8)),  # a turn of all three axes
    ],
)
def test_default_workgroups(size: Triple, local: Triple) -> None:
    assert words.default_local(size) == local
