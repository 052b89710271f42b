"""How upstream's host calls its kernels: the recordings of its own runs say what the rows must give."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path

import numpy as np
import pytest
from small_convolution import convolution

from refsim.check.runtime import runtime
from refsim.core.buffer import offsets
from refsim.core.errors import ParameterError, RefsimError, UnknownOperatorError
from refsim.core.tensor import TensorDesc
from refsim.formats.recordings import RecordedKernel, Recording, read
from refsim.golden.rules import case
from refsim.ops.base import module_call
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.host import tensor
from refsim.ops.base.module_call import Host, HostFeatures, ModuleDispatch, dispatches, why_not, written
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call
from refsim.ops.base.target import Target
from refsim.spirv.module import Module
from refsim.spirv.reflect import interface

MODULES = Path(__file__).parents[1] / "modules" / "spirv"
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


def kernel(step: ModuleDispatch) -> RecordedKernel:
    return RecordedKernel(step.shader, step.global_size, step.local)


def each(found: list[tuple[Recording, Call]]) -> pytest.MarkDecorator:
    """All recordings of an operator in one test: there are hundreds, of milliseconds each."""
    held = {op: [row for row in found if row[0].op == op] for op in sorted({row.op for row, _ in found})}
    return pytest.mark.parametrize("found", held.values(), ids=held)


def test_recordings_bind() -> None:
    assert len(CALLS) == 470
    assert sum(bool(images(recording)) for recording, _ in CALLS) > 60


@each(CALLS)
def test_kernels_and_sizes_are_those_recorded(found: list[tuple[Recording, Call]]) -> None:
    for recording, call in found:
        steps = module_call.dispatches(call, Host(HostFeatures(float_images=bool(images(recording)))))
        recorded = [entry for entry in recording.kernels if "nchw" not in entry.shader]
        assert [kernel(step) for step in steps] == recorded, recording.id


@each([(recording, call) for recording, call in CALLS if call.out.is_int8])
def test_the_output_is_staged_as_recorded(found: list[tuple[Recording, Call]]) -> None:
    op = OPS["int8x4_to_nchw"]
    for recording, call in found:
        (step,) = module_call.dispatches(op.bind(op.params(), {"x": call.out}, {}, "4W"))
        assert kernel(step) in recording.kernels, recording.id


@each(CALLS)
def test_layouts_are_those_recorded(found: list[tuple[Recording, Call]]) -> None:
    for recording, call in found:
        for name, recorded in recording.layouts.items():
            desc, told = call.tensors[name], (recording.id, name)
            count = len(desc.shape)
            assert tensor.hashed(desc, name in images(recording)) == int(recorded["hashed_layout"], 16), told
            assert [count - 1 - dim for dim in reversed(tensor.dim_order(desc))] == recorded["dim_order"], (
                told
            )
            if name not in images(recording):
                assert list(reversed(tensor.strides(desc))) == recorded["strides"], told
                assert desc.buffer_numel == prod(recorded["padded_sizes"]), told


@each([(recording, call) for recording, call in CALLS if recording.scratch_layout])
def test_the_scratch_tensor_is_the_one_recorded(found: list[tuple[Recording, Call]]) -> None:
    """It has three dims; the output of refsim's operator has a batch too."""
    for recording, call in found:
        recorded = recording.scratch_layout
        assert recorded is not None
        im2col, pointwise = module_call.dispatches(call)
        scratch = im2col.binds[0].desc
        assert isinstance(scratch, TensorDesc)
        assert (im2col.binds[0].buffer, im2col.binds[0].writes) == ("scratch", True), recording.id
        assert (pointwise.binds[1].buffer, pointwise.binds[1].desc) == ("scratch", scratch), recording.id
        assert list(scratch.shape) == recorded["sizes"], recording.id
        assert list(reversed(tensor.strides(scratch))) == recorded["strides"], recording.id
        assert tensor.hashed(scratch) == int(recorded["hashed_layout"], 16), recording.id


def test_the_module_that_a_device_and_a_folder_allow() -> None:
    call = next(call for recording, call in CALLS if recording.op == "q8ta_conv2d_pw")

    def chosen(features: HostFeatures, *names: str) -> str:
        return module_call.dispatches(call, Host(features, names or None))[0].shader

    assert chosen(HostFeatures()) == "q8ta_conv2d_pw_float"
    assert chosen(HostFeatures(dot_product=False)) == "q8ta_conv2d_pw_fallback_float"
    assert chosen(HostFeatures(variant="fallback")) == "q8ta_conv2d_pw_fallback_float"
    assert chosen(HostFeatures(unsigned_dot=True)) == "q8ta_conv2d_pw_unsigned_float"
    assert chosen(HostFeatures(unsigned_dot=True, max_texture2d=1)) == "q8ta_conv2d_pw_unsigned_buffer_float"
    assert chosen(HostFeatures(), "q8ta_conv2d_pw_fallback_float") == "q8ta_conv2d_pw_fallback_float"
    assert chosen(HostFeatures(unsigned_dot=True), "q8ta_conv2d_pw_float") == "q8ta_conv2d_pw_float"
    with pytest.raises(
        UnknownOperatorError, match="no module computes it; need q8ta_conv2d_pw_fallback_float"
    ):
        chosen(HostFeatures(dot_product=False), "q8ta_conv2d_pw_float")
    with pytest.raises(ParameterError, match="module variant"):
        HostFeatures(variant="fast")


# --- the host's own packing modules ----------------------------------------------------------------------


def test_packing_by_hand() -> None:
    call = convolution(5, 6)
    image, buffer = module_call.packing_dispatches(call)
    assert image.shader == "pack_q8_conv2d_weights_texture2d"
    assert buffer.shader == "pack_q8_conv2d_weights_buffer"
    assert struct.unpack("<8i", image.push) == struct.unpack("<8i", buffer.push) == (16, 6, 1, 1, 6, 3, 2, 5)
    packed, source = image.binds
    assert (packed.buffer, packed.storage, packed.extent, packed.writes) == (
        "packed:weight",
        "texture2d",
        (4, 6),
        True,
    )
    assert source.words is not None
    assert np.array_equal(source.words.view(np.int8).reshape(6, 32), call.consts["weight"])
    assert (image.global_size, image.local, image.spec) == ((4, 6, 1), (4, 16, 1), ())
    assert module_call.packing_dispatches(call, Host(available=["q8ta_conv2d_float"])) == []


def test_an_im2col_convolution_packs_a_matrix() -> None:
    call = bind(OPS["q8ta_conv2d_im2col"].cases.example).call
    first, _ = module_call.packing_dispatches(call, Host(HostFeatures(unsigned_dot=True)))
    assert first.shader == "pack_q8_linear_weight_unsigned_texture2d"
    rows, k = np.asarray(call.consts["weight"]).shape
    assert struct.unpack("<6i", first.push) == (4 * -(-rows // 4), k // 4, 1, 1, k, rows)


# --- releases --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Declared:
    """What a module says of itself."""

    push_bytes: int
    bindings: tuple[Binding, ...] = ()
    spec_ids: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Binding:
    number: int
    kind: str
    nbytes: int = 0


EARLY = {"q8ta_im2col": Declared(4), "q8ta_conv2d_pw_float": Declared(24), "q8ta_conv2d_float": Declared(16)}
LATE = {"q8ta_im2col": Declared(8), "q8ta_conv2d_pw_float": Declared(28), "q8ta_conv2d_float": Declared(16)}


def test_push_words_tell_the_release() -> None:
    """Later kernels compute all batches: the scratch tensor holds the rows of all of them."""
    call = bind(OPS["q8ta_conv2d_im2col"].cases.example).call
    n, _, h, w = call.out.shape
    assert n == 2
    early, late = (module_call.dispatches(call, Host(available=names)) for names in (EARLY, LATE))
    assert early[0].binds[0].desc is not None and late[0].binds[0].desc is not None
    k = early[0].binds[0].desc.shape[0]
    assert early[0].binds[0].desc.shape == (k, h, -(-w // 4) * 4)
    assert late[0].binds[0].desc.shape == (1, k, n * h, -(-w // 4) * 4)
    assert [len(step.push) for step in early] == [4, 24]
    assert [len(step.push) for step in late] == [8, 28]
    assert late[0].global_size[0] == n * early[0].global_size[0]
    assert [step.global_size[2] for step in (early[1], late[1])] == [h, n * h]
    assert late[1].spec == (*early[1].spec, 1)
    alone = bind(OPS["q8ta_conv2d_pw"].cases.example).call
    assert module_call.dispatches(alone, Host(available=LATE))[0].spec[-1] == 0


def test_a_module_that_came_later_tells_the_release() -> None:
    """Its host launches all batches. A kernel that computes only the first one returns early in the others."""
    folder = EARLY | {"q8ta_conv2d_pw_unsigned_float": Declared(24)}
    call = bind(OPS["q8ta_conv2d_im2col"].cases.example).call
    n, _, h, _ = call.out.shape
    early, middle = (
        module_call.dispatches(call, Host(available=EARLY)),
        module_call.dispatches(call, Host(available=folder)),
    )
    assert early[0].binds[0].desc is not None and middle[0].binds[0].desc is not None
    assert middle[0].binds[0].desc.shape == (n, *early[0].binds[0].desc.shape)
    assert [step.push for step in middle] == [step.push for step in early]
    assert [len(step.spec) for step in middle] == [3, 4]
    assert middle[0].global_size[0] == n * early[0].global_size[0]
    assert [step.global_size[2] for step in (early[1], middle[1])] == [h, n * h]
    alone = bind(OPS["q8ta_im2col"].cases.example).call
    assert (
        module_call.why_not(alone, Host(available=EARLY))
        and module_call.why_not(alone, Host(available=folder)) is None
    )
    # what declares more push words is from the release after it
    late = module_call.dispatches(
        call, Host(available=LATE | {"q8ta_conv2d_pw_unsigned_float": Declared(28)})
    )
    assert late == module_call.dispatches(call, Host(available=LATE))


def test_a_module_that_tells_nothing_follows_one_that_does() -> None:
    call = convolution(5, 6)
    (early,), (late,) = (module_call.dispatches(call, Host(available=folder)) for folder in (EARLY, LATE))
    assert (early.global_size, late.global_size) == ((3, 4, 2), (3, 8, 2))
    assert module_call.dispatches(call, Host(HostFeatures(later=True))) == [late]
    assert module_call.dispatches(call, Host(HostFeatures(later=False), LATE)) == [early]
    main = replace(call, target=Target(runtime=runtime("main").behaviour))
    assert module_call.dispatches(main, Host(available=EARLY)) == [late]


def test_what_a_module_declares_beyond_its_host() -> None:
    (step,) = module_call.dispatches(convolution(5, 6))
    fits = Declared(
        16, (Binding(0, "storage buffer"), Binding(2, "sampled image 2d"), Binding(6, "uniform block", 104))
    )
    assert module_call.disagreements(step, fits) == []
    other = Declared(
        20,
        (Binding(2, "storage buffer"), Binding(8, "uniform block", 96), Binding(9, "uniform block")),
        {0: 1, 7: 0},
    )
    assert module_call.disagreements(step, other) == [
        "binding 2 (weight) is a storage buffer; the host binds a sampled image 2d or storage image 2d",
        "binding 8 (conv_params) has 96 bytes; the host's block has 80",
        "declares binding 9; the host binds 0 to 8",
        "declares 20 push bytes; the host pushes 16",
        "declares specialization constants 7; the host's last is 6",
    ]
    named = module_call.disagreements(step, other, lambda binding: f"t_in, pw.comp:{binding.number}")
    assert named[2] == "declares binding 9 (t_in, pw.comp:9); the host binds 0 to 8"


def test_the_kernels_of_our_own_declare_what_the_host_gives() -> None:
    """Each module of tests/modules is used by some call, and takes what that call binds, pushes and specializes."""
    declared = {
        path.stem: interface(Module.parse(path.read_bytes(), path.name))
        for path in sorted(MODULES.glob("*.spv"))
    }
    forced = [HostFeatures(variant=variant) for variant in ("", "fallback", "unsigned")]
    used = set()
    for op in (op for op in OPS.values() if op.upstream.module is not None):
        call = bind(op.cases.example).call
        for features in (
            *forced,
            HostFeatures(float_images=True),
            HostFeatures(unsigned_dot=True, max_texture2d=1),
        ):
            if module_call.why_not(call, Host(features, declared)):
                continue
            steps = module_call.dispatches(call, Host(features, declared))
            for step in (*steps, *module_call.packing_dispatches(call, Host(features, declared))):
                assert module_call.disagreements(step, declared[step.shader]) == []
                used.add(step.shader)
    assert used == set(declared)


# --- who writes what ---


WITH_ROWS = sorted(name for name, op in OPS.items() if op.upstream.module is not None)


@pytest.mark.parametrize("images", [False, True], ids=["buffers", "images"])
@pytest.mark.parametrize("op", WITH_ROWS)
def test_every_word_has_a_writer_in_the_launch(op: str, images: bool) -> None:
    host = Host(HostFeatures(float_images=images))
    for number in range(0, 8 * len(OPS[op].layouts), 7):
        call = bind(case(op, number)).call
        if max(len(desc.shape) for desc in call.tensors.values()) > 4 or why_not(call, host):
            continue
        last = dispatches(call, host)[-1]
        found = written(call, host)
        assert (found.shader, found.global_size, found.local) == (last.shader, last.global_size, last.local)
        assert found.items.shape == (3, call.out.words) and found.items.min() >= 0
        assert (found.items.max(axis=1) < np.array(found.global_size)).all(), (number, found.global_size)
        if not call.defects and not op.startswith("q8ta_conv2d"):
            reached = np.unique(found.items, axis=1).shape[1]
            assert reached == prod(found.global_size) or "fours" in OPS[op].upstream.module.global_size, (
                number
            )


def test_an_example_by_hand() -> None:
    """q8ta_add walks blocks of 4 channels and 4 columns; then come rows, then batches."""
    shape = (2, 6, 3, 9)
    params = dict(a_scale=1.0, a_zp=0, b_scale=1.0, b_zp=0, out_scale=1.0, out_zp=0)
    call = bind(Case("q8ta_add", params, {"a": (shape, "4C"), "b": (shape, "4C")}, "4C")).call
    found = written(call)
    assert found.global_size == (2 * 3 * 3 * 2, 1, 1) and found.local == (64, 1, 1)
    byte = offsets(call.out)[1, 4, 2, 5]
    c4, w4, h, n = 1, 1, 2, 1
    assert found.items[0, byte // 4] == c4 + 2 * (w4 + 3 * (h + 3 * n))
