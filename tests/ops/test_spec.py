"""What an operator is: the registry, parameters by type, binding, padding, constants."""

from __future__ import annotations

import copy
import re
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from refsim.check.runtime import runtime
from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.core.errors import LayoutError, ParameterError, RefsimError, ShapeError
from refsim.core.layout import PACKED_4C, PACKED_4C1W
from refsim.core.qmath import CANONICAL
from refsim.core.tensor import TensorDesc
from refsim.ops.base.arg import Kind
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.padding import OnDevice
from refsim.ops.base.param_types import PARAM_TYPES
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import OpSpec
from refsim.ops.base.target import Target
from refsim.ops.base.traits import INTEGER_SUMS, Family

ADD, CONV, LINEAR = (OPS[n] for n in ("q8ta_add", "q8ta_conv2d", "q8ta_linear"))


# --- parameters ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPS)
def test_every_parameter_has_a_known_type_and_an_argument_is_a_field(name: str) -> None:
    op = OPS[name]
    known = {f.name: str(f.type) for f in fields(op.params)}
    assert set(known.values()) <= set(PARAM_TYPES)
    assert {a.name for a in op.of_kind(Kind.PARAM)} <= set(known)


WRONG = {
    "int": ("1", 1.5, None, True, (1,)),
    "int | None": ("1", 1.5, True),
    "float": ("1", None, (1.0,), [0.5]),
    "float | None": ("1", (1.0,), [0.5]),
    "bool": (1, "no", None, (True,)),
    "str": (1, None, ("none",)),
    "tuple[int, int]": (1, "ab", (1,), (1, 2, 3), (1.0, 2.0), (1, None), None),
    "tuple[int, ...]": (4, "ab", (1.0,), None),
}


@pytest.mark.parametrize("name", OPS)
def test_parameters_of_another_type_are_refused(name: str) -> None:
    """Whatever a file holds: no operator computes with a string, a list or a fraction where it wants an integer."""
    op = OPS[name]
    case = op.cases.example
    for row in fields(op.params):
        for value in WRONG[str(row.type)]:
            with pytest.raises(
                ParameterError, match=rf"{name}: {row.name} has the wrong type; got .*, need "
            ):
                op.make_params({**case.params, row.name: value})


def test_unknown_and_missing_parameters() -> None:
    case = ADD.cases.example
    with pytest.raises(ParameterError, match="q8ta_add: unknown parameter; got gamma, need a_scale, "):
        ADD.make_params({**case.params, "gamma": 1.0})
    with pytest.raises(ParameterError, match="q8ta_add: a parameter is missing; need a_scale, b_scale"):
        ADD.make_params({k: v for k, v in case.params.items() if k not in ("a_scale", "b_scale")})


@pytest.mark.parametrize("name", OPS)
def test_every_scale_and_zero_point_is_checked(name: str) -> None:
    """0, infinities, NaN and what lies outside the range: refused, and the error names the argument."""
    op = OPS[name]
    case = op.cases.example
    for row in fields(op.params):
        bad: tuple = ()
        if row.name.endswith("scale") and "upscale" not in row.name:
            bad = (0.0, -1.0, 2.0**-61, 2.0**61, float("inf"), float("nan"))
        elif row.name.endswith("zp"):
            bad = (-129, 128, 2**40)
        for value in bad:
            with pytest.raises(
                ParameterError, match=rf"{row.name} is out of range; got {re.escape(str(value))}"
            ):
                op.make_params({**case.params, row.name: value})


@pytest.mark.parametrize(
    ("name", "params", "match"),
    [
        ("q8ta_add", {"alpha": float("nan")}, "alpha"),
        ("q8ta_add", {"alpha": 2.0**31}, "alpha"),
        ("q8ta_conv2d", {"groups": 0}, "groups"),
        ("q8ta_conv2d", {"padding": (0, -1)}, "padding"),
        ("q8ta_conv2d", {"dilation": (0, 1)}, "dilation"),
        ("q8ta_conv2d", {"kernel_size": (1 << 15, 1)}, "kernel_size"),
        ("q8ta_linear", {"activation": ""}, "activation"),
        ("q8ta_pixel_shuffle", {"upscale": -1}, "upscale"),
        ("q8ta_dequantize", {"qmax": 255}, "qmax"),
    ],
)
def test_other_ranges(name: str, params: dict, match: str) -> None:
    case = OPS[name].cases.example
    with pytest.raises(ParameterError, match=match):
        OPS[name].make_params({**case.params, **params})


# --- binding ------------------------------------------------------------------------------------------------


def bound(name: str, **changes: Any) -> BoundCase:
    return bind(OPS[name].cases.example.changed(**changes))


def test_missing_input_and_constant() -> None:
    case = bound("q8ta_linear")
    params, descs = case.call.params, case.call.descs
    with pytest.raises(ShapeError, match="q8ta_linear: input x is missing"):
        LINEAR.bind(params, {}, case.call.consts, "4H4W")
    for name in ("weight", "weight_sums", "weight_scales"):
        with pytest.raises(ParameterError, match=f"q8ta_linear: constant {name} is missing"):
            LINEAR.bind(params, descs, {**case.call.consts, name: None}, "4H4W")
    LINEAR.bind(params, descs, {**case.call.consts, "bias": None}, "4H4W")


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.epilogue is not None])
def test_constants_are_checked(name: str) -> None:
    case = bound(name)
    call, op = case.call, OPS[name]

    def refuse(error: type[Exception], match: str, **consts: np.ndarray) -> None:
        with pytest.raises(error, match=match):
            op.bind(
                call.params, call.descs, {**call.consts, **consts}, call.out.layout, out_shape=call.out.shape
            )

    weight, sums, scales = (call.consts[n] for n in ("weight", "weight_sums", "weight_scales"))
    assert weight is not None and sums is not None and scales is not None
    refuse(ParameterError, "weight has the wrong dtype; got int32, need int8", weight=weight.astype(np.int32))
    refuse(ParameterError, "weight_sums has the wrong dtype", weight_sums=sums.astype(np.int64))
    refuse(ParameterError, "weight_scales has the wrong dtype", weight_scales=scales.astype(np.float64))
    refuse(ShapeError, "weight_sums has the wrong shape", weight_sums=sums[:-1])
    refuse(ShapeError, "weight_sums is not a vector", weight_sums=np.stack([sums, sums], 1))
    refuse(ShapeError, "weight has the wrong shape", weight=weight[:, :-1])
    refuse(ShapeError, "weight|declared", weight=weight[0])
    refuse(
        ParameterError, r"weight_scales\[1\]", weight_scales=np.where(np.arange(len(scales)) == 1, 0, scales)
    )
    refuse(
        ParameterError,
        r"\|bias\|\[2\]",
        bias=np.where(np.arange(len(scales)) == 2, np.float32(np.nan), scales),
    )


@pytest.mark.parametrize("op", OPS.of_family(Family.GROUP_LINEAR), ids=lambda op: op.name)
def test_constants_of_groups_are_checked(op: OpSpec) -> None:
    call = bound(op.name).call
    consts = {name: value for name, value in call.consts.items() if value is not None}

    def refuse(match: str, **changed: np.ndarray) -> None:
        with pytest.raises(RefsimError, match=match):
            op.bind(call.params, call.descs, {**consts, **changed}, call.out.layout, out_shape=call.out.shape)

    for name, value in consts.items():
        refuse(f"{name} has the wrong dtype", **{name: value.astype(np.float64)})
        refuse(f"{name} has the wrong shape|declared", **{name: value[..., :-1]})
        refuse(f"{name} has the wrong shape|declared", **{name: value[None]})
    refuse("scale is not finite", weight_scales=consts["weight_scales"] * np.float32(np.inf))
    refuse("bias", bias=consts["bias"] * np.float32(np.nan))


def test_padded_and_trimmed_constants_bind_alike() -> None:
    """The exporter pads to four channels; whoever does not need not."""
    case = bound("q8ta_linear")
    channels = case.call.out.shape[-1]
    assert channels % 4
    for name, value in case.call.consts.items():
        assert value is not None and len(value) == channels, name
    padded = {
        name: np.concatenate([v, np.zeros((-channels % 4, *v.shape[1:]), v.dtype)])
        for name, v in case.call.consts.items()
        if v is not None
    }
    again = LINEAR.bind(case.call.params, case.call.descs, padded, "4H4W", out_shape=case.call.out.shape)
    for name, value in again.consts.items():
        assert np.array_equal(value, case.call.consts[name])


def test_a_declared_shape_must_be_the_computed_one() -> None:
    case = bound("q8ta_add")
    with pytest.raises(ShapeError, match=r"declared output shape is wrong; got \[1\], need \[2, 5, 3, 7\]"):
        ADD.bind(case.call.params, case.call.descs, {}, "4C", out_shape=(1,))


def test_layouts_must_agree_in_what_they_pack() -> None:
    case = bound("q8ta_add")
    with pytest.raises(
        LayoutError, match="pack different dims; got a in 4W4C, b in 4W4C, out in 4W, need equal"
    ):
        ADD.bind(case.call.params, case.call.descs, {}, "4W")


@pytest.mark.parametrize("name", OPS)
def test_too_few_and_too_many_dims(name: str) -> None:
    op = OPS[name]
    case = bound(name)
    assert 1 <= op.min_rank <= 4 <= op.max_rank <= 8
    for rank, which in ((op.min_rank - 1, "few"), (op.max_rank + 1, "many")):
        if not 1 <= rank <= 8:
            continue  # no tensor has so many
        descs = {key: TensorDesc((1,) * rank, d.layout, d.dtype) for key, d in case.call.descs.items()}
        need = f"{op.min_rank} to {op.max_rank}"
        with pytest.raises(ShapeError, match=rf"{name}: \w+ has too {which} dims; got {rank}, need {need}"):
            op.bind(case.call.params, descs, case.call.consts, case.call.out.layout)


def test_dynamic_layouts_are_refused() -> None:
    case = CONV.cases.example
    with pytest.raises(LayoutError):
        bind(replace(case, out_layout="CONV2D"))


# --- calls --------------------------------------------------------------------------------------------------


def test_the_default_target() -> None:
    assert Target() == Target(CANONICAL, mali=False)
    assert bound("q8ta_add").call.target == Target()


def test_expected_packs_the_definition_with_the_stated_padding() -> None:
    case = bound("q8ta_quantize")
    call = case.call
    packed = call.expected(case.inputs)
    values = call.define({"x": case.inputs["x"].unpack()})
    assert np.array_equal(packed.unpack(), values)
    kinds = packed.kinds()
    for kind, pad in ((ByteKind.LANE, call.padding.lane), (ByteKind.WORD, call.padding.word)):
        assert (kinds == kind).any()
        assert (packed.data[kinds == kind] == pad.value).all()


def test_device_defined_follows_the_padding() -> None:
    for name in OPS:
        call = bound(name).call
        defined = call.device_defined()
        assert defined.dtype == bool
        assert defined.size == call.out.nbytes
        kinds = PackedBuffer(call.out).kinds()
        assert defined[kinds == ByteKind.VALUE].all()
        for kind, pad in ((ByteKind.LANE, call.padding.lane), (ByteKind.WORD, call.padding.word)):
            assert (defined[kinds == kind] == (pad.on_device is OnDevice.WRITTEN)).all()


def test_steps_of_a_composite_name_their_buffers() -> None:
    steps = bound("q8ta_conv2d_im2col").call.dispatches()
    assert [s.launch.shader for s in steps] == ["q8ta_im2col", "q8ta_conv2d_pw"]
    assert [s.output for s in steps] == ["scratch", "out"]
    assert steps[0].inputs == ("x",)
    assert steps[1].inputs == ("scratch", "weight", "weight_sums", "weight_scales", "bias")


def test_conv2d_takes_the_kernel_that_upstream_takes() -> None:
    grouped = bound("q8ta_conv2d", groups=2, out_channels=16)
    assert grouped.call.params.groups == 2
    assert [s.launch.shader for s in grouped.call.dispatches()] == ["q8ta_conv2d_general"]
    mali = bind(grouped.case, Target(mali=True))
    assert [s.launch.shader for s in mali.call.dispatches()] == ["q8ta_im2col", "q8ta_conv2d_pw"]


@pytest.mark.parametrize(
    ("images", "channels", "out", "groups", "mali", "before", "later"),
    [
        (1, 16, (16, 8, 8), 1, False, True, True),
        (1, 16, (4, 64, 65), 1, False, False, False),  # more than 4096 positions
        (1, 16, (4, 65, 65), 1, False, False, False),
        (1, 16, (400, 64, 64), 1, False, True, True),
        (1, 16, (400, 32, 128), 1, False, True, True),
        (1, 32, (4, 65, 65), 1, False, True, True),
        (1, 18, (4, 8, 8), 1, False, False, False),
        (1, 16, (4, 8, 8), 2, False, False, False),
        (2, 16, (16, 8, 8), 1, False, True, False),  # 144 products
        (2, 128, (16, 8, 8), 1, False, True, True),  # 1152
        (2, 128, (16, 8, 9), 1, False, True, False),  # 72 places
        (2, 112, (16, 8, 8), 1, False, True, False),  # 1008
        (228, 128, (16, 8, 8), 1, False, True, False),  # 16.03 MiB of columns
        (227, 128, (16, 8, 8), 1, False, True, True),
        (2, 3668, (16, 9, 8), 1, True, True, True),  # 33012 products
        (2, 3672, (16, 9, 8), 1, True, True, False),
        (1, 16, (12, 8, 8), 2, True, True, False),  # 6 outputs a group
        (1, 16, (16, 8, 8), 2, True, True, True),
    ],
)
def test_an_open_layout_becomes_that_of_the_kernel_that_a_runtime_takes(
    images: int, channels: int, out: tuple[int, int, int], groups: int, mali: bool, before: bool, later: bool
) -> None:
    op = OPS["q8ta_conv2d"]
    params = replace(bound("q8ta_conv2d").call.params, groups=groups, kernel_size=(3, 3))
    assert op.input_layout is not None
    for name, wide in (("2026-08", before), ("main", later)):
        target = Target(mali=mali, runtime=runtime(name).behaviour)
        found = op.input_layout(params, (images, channels, 9, 7), (images, *out), target)
        assert found == (PACKED_4C if wide else PACKED_4C1W), name


def test_an_absent_bias_is_one_word() -> None:
    case = bound("q8ta_conv2d", bias=False)
    assert case.call.consts["bias"] is None
    assert case.call.const_words()["bias"].tolist() == [0]


@pytest.mark.parametrize(
    "name", [n for n, op in OPS.items() if op.of_kind(Kind.CONST) and op.family in INTEGER_SUMS]
)
def test_constants_become_whole_words_of_four_channels(name: str) -> None:
    call = bound(name).call
    channels = call.out.shape[OPS[name].channel_dim]
    rows = {
        key: value.shape[0] for key, value in call.consts.items() if value is not None and value.ndim == 2
    }
    for key, value in call.const_words().items():
        assert value.dtype == np.int32
        assert value.ndim == 1
        if key != "weight" and call.consts[key] is not None:
            assert len(value) == rows.get(key, 1) * (
                -(-channels // 4) * 4
            )  # a row for each group, if there are some
    if (
        not OPS[name].transposed and call.consts["weight"].dtype == np.int8
    ):  # whose weight words begin with a plan of the taps
        weight = call.const_words()["weight"].view(np.int8)
        assert int(weight.astype(int).sum()) == int(call.consts["weight"].astype(int).sum())


def test_cases_print_themselves() -> None:
    case = LINEAR.cases.example
    assert str(case).startswith("q8ta_linear x=6x16:4H4W out:4H4W in_scale=0.02 in_zp=3 ")
    assert f"seed={case.seed}" in str(case)
    assert str(copy.deepcopy(case)) == str(case)


# --- values that are no numbers -----------------------------------------------------------------------------

ODD = np.array([np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-45], np.float32)


def _odd(array: np.ndarray | None) -> np.ndarray | None:
    """The same array with infinities, NaNs and the largest numbers, if it holds floats."""
    if array is None or array.dtype != np.float32:
        return array
    return np.resize(ODD, array.shape)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", OPS)
def test_a_definition_takes_infinities_and_nans_without_a_warning(name: str) -> None:
    """Files hold such scales, biases and inputs. NumPy's warnings would name a line of ours, and no cause."""
    case = OPS[name].cases.example
    bound = bind(case)
    call = replace(bound.call, consts={key: _odd(value) for key, value in bound.call.consts.items()})
    arrays = {key: _odd(buffer.unpack()) for key, buffer in bound.inputs.items()}
    assert call.define(arrays).size == bound.call.out.numel


def test_sums_above_24_bits_are_rounded_before_the_zero_point_goes() -> None:
    """im2col subtracts it from the integer; the general kernel, which main picks for 81 places, from a float."""
    shape = (2, 128, 9, 9)
    call = bind(CONV.cases.example.changed(x=shape, out_channels=4, in_zp=127), Target()).call
    filled = {"weight": 127, "weight_sums": 127 * 1152, "weight_scales": 1}
    consts = {name: np.full_like(call.consts[name], value) for name, value in filled.items()} | {"bias": None}
    params = replace(call.params, in_scale=1.0, out_scale=1.0, out_zp=0)
    x = np.full(shape, 127, np.int8)
    x[:, 0, 4, 4] = 126
    found = [
        replace(call, params=params, consts=consts, target=Target(runtime=runtime(name).behaviour)).define({"x": x})
        for name in ("2026-08", "main")
    ]  # fmt: skip
    places = (0, 0, slice(4, 5), slice(4, 5))
    assert [array[places].item() for array in found] == [-127, -128]
    border = np.zeros(found[0].shape, bool)
    border[..., 1:-1, 1:-1] = True
    assert (found[0] != found[1])[border].sum() == 2 * 4 * 9
