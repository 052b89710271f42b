"""How upstream's host calls its kernels: the recordings of its own runs say what the rows must give."""

from __future__ import annotations

from pathlib import Path

import pytest

from refsim.core.errors import ParameterError, RefsimError, UnknownOperatorError
from refsim.core.tensor import TensorDesc
from refsim.formats.recordings import Kernel, Recording, read
from refsim.ops.base import module_call
from refsim.ops.base.host import tensor
from refsim.ops.base.module_call import Features, ModuleDispatch
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call

GOLDEN = Path(__file__).parents[2] / "golden" / "upstream"
RECORDINGS = [recording for path in sorted(GOLDEN.glob("*.zip")) for recording in read(path)]


def bound(recording: Recording) -> Call | None:
    try:
        return recording.call()
    except RefsimError:
        return None


CALLS = [(recording, call) for recording in RECORDINGS if (call := bound(recording)) is not None]


def images(recording: Recording) -> set[str]:
    return {name for name, argument in recording.arguments.items() if argument.get("storage") == "texture3d"}


def kernel(step: ModuleDispatch) -> Kernel:
    return Kernel(step.shader, step.global_size, step.local)


def each(found: list[tuple[Recording, Call]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("recording", "call"), found, ids=[recording.id for recording, _ in found])


def test_recordings_bind() -> None:
    assert len(CALLS) == 470
    assert sum(bool(images(recording)) for recording, _ in CALLS) > 60


@each(CALLS)
def test_kernels_and_sizes_are_those_recorded(recording: Recording, call: Call) -> None:
    steps = module_call.dispatches(call, Features(float_images=bool(images(recording))))
    recorded = [entry for entry in recording.kernels if "nchw" not in entry.shader]
    assert [kernel(step) for step in steps] == recorded


@each([(recording, call) for recording, call in CALLS if call.out.is_int8])
def test_the_output_is_staged_as_recorded(recording: Recording, call: Call) -> None:
    op = OPS["int8x4_to_nchw"]
    (step,) = module_call.dispatches(op.bind(op.params(), {"x": call.out}, {}, "4W"))
    assert kernel(step) in recording.kernels


@each(CALLS)
def test_layouts_are_those_recorded(recording: Recording, call: Call) -> None:
    for name, recorded in recording.layouts.items():
        desc = call.tensors[name]
        count = len(desc.shape)
        assert tensor.hashed(desc, name in images(recording)) == int(recorded["hashed_layout"], 16)
        assert [count - 1 - dim for dim in reversed(tensor.dim_order(desc))] == recorded["dim_order"]
        if name not in images(recording):
            assert list(reversed(tensor.strides(desc))) == recorded["strides"]
            assert desc.buffer_numel == product(recorded["padded_sizes"])


def product(sizes: list[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


@each([(recording, call) for recording, call in CALLS if recording.scratch_layout])
def test_the_scratch_tensor_is_the_one_recorded(recording: Recording, call: Call) -> None:
    """It has three dims; the output of refsim's operator has a batch too."""
    recorded = recording.scratch_layout
    assert recorded is not None
    im2col, pointwise = module_call.dispatches(call)
    scratch = im2col.binds[0].desc
    assert isinstance(scratch, TensorDesc)
    assert (im2col.binds[0].buffer, im2col.binds[0].writes) == ("scratch", True)
    assert (pointwise.binds[1].buffer, pointwise.binds[1].desc) == ("scratch", scratch)
    assert list(scratch.shape) == recorded["sizes"]
    assert list(reversed(tensor.strides(scratch))) == recorded["strides"]
    assert tensor.hashed(scratch) == int(recorded["hashed_layout"], 16)


def test_the_module_that_a_device_and_a_folder_allow() -> None:
    call = next(call for recording, call in CALLS if recording.op == "q8ta_conv2d_pw")

    def chosen(features: Features, *names: str) -> str:
        return module_call.dispatches(call, features, names or None)[0].shader

    assert chosen(Features()) == "q8ta_conv2d_pw_float"
    assert chosen(Features(dot_product=False)) == "q8ta_conv2d_pw_fallback_float"
    assert chosen(Features(variant="fallback")) == "q8ta_conv2d_pw_fallback_float"
    assert chosen(Features(unsigned_dot=True)) == "q8ta_conv2d_pw_unsigned_float"
    assert chosen(Features(unsigned_dot=True, max_texture2d=1)) == "q8ta_conv2d_pw_unsigned_buffer_float"
    assert chosen(Features(), "q8ta_conv2d_pw_fallback_float") == "q8ta_conv2d_pw_fallback_float"
    assert chosen(Features(unsigned_dot=True), "q8ta_conv2d_pw_float") == "q8ta_conv2d_pw_float"
    with pytest.raises(
        UnknownOperatorError, match="no module computes it; need q8ta_conv2d_pw_fallback_float"
    ):
        chosen(Features(dot_product=False), "q8ta_conv2d_pw_float")
    with pytest.raises(ParameterError, match="module variant"):
        Features(variant="fast")
