"""What ET-VK's own kernels wrote on two devices, repeated here byte for byte.

golden/upstream/differences.json lists every recording that differs, and why; each cause is checked here, so that
a recording can neither be excused for nothing nor start to differ unnoticed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from refsim.core.buffer import ByteKind, PackedBuffer, byte_kinds
from refsim.core.errors import RefsimError, ShapeError
from refsim.core.qmath import LAVAPIPE, NVIDIA
from refsim.exec.cpu import EmulatedExecutor
from refsim.formats.recordings import ELEMENT, WRITTEN, RecordedDifferences, Recording, read, staged_inputs
from refsim.ops.base.binding import BoundCase
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family

GOLDEN = Path(__file__).parents[2] / "golden" / "upstream"
DIFFERENCES = RecordedDifferences.load(GOLDEN / "differences.json")
RECORDINGS = [recording for path in sorted(GOLDEN.glob("*.zip")) for recording in read(path)]
EXECUTOR = EmulatedExecutor()

same = [r for r in RECORDINGS if DIFFERENCES.cause(r.id) is None]
excepted = [r for r in RECORDINGS if DIFFERENCES.cause(r.id) is not None]
masked = [r for r in same if r.mask is not None]


def each(recordings: list[Recording]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("recording", recordings, ids=lambda r: r.id)


def each_operator(recordings: list[Recording]) -> pytest.MarkDecorator:
    """All recordings of an operator in one test: there are hundreds, of milliseconds each."""
    held = {op: [r for r in recordings if r.op == op] for op in sorted({r.op for r in recordings})}
    return pytest.mark.parametrize("recordings", held.values(), ids=held)


def both(recording: Recording, target: Target | None = None) -> tuple[BoundCase, PackedBuffer]:
    """The recorded call with its inputs, and its output by definition, which the emulated kernel confirms."""
    call, inputs = recording.call(target), recording.inputs()
    defined = call.expected(inputs)
    assert EXECUTOR.run_call(call, inputs) == defined
    return BoundCase(Case(recording.op, {}, {}, ""), call, inputs), defined


#: Families whose operators are only a part of what upstream's tests run, and those of which whole files are recorded
#: (tests/graph/test_heads.py, tests/exec/test_recorded_outputs.py).
PARTS = (Family.WINDOWS, Family.STAGE_IN, Family.STAGE_OUT, Family.QUANTIZE_ROWS, Family.ROW_RANGE)
UNRECORDED = (*PARTS, Family.FLOAT_LINEAR, Family.GROUP_LINEAR, Family.WEIGHT_ONLY, Family.LOOKUP)


def test_there_are_recordings_of_everything() -> None:
    assert len(RECORDINGS) == 481  # and three that upstream itself refused
    assert {r.op for r in RECORDINGS} == {name for name, op in OPS.items() if op.family not in UNRECORDED}
    assert sum(r.h200 is not None for r in RECORDINGS) == 26
    assert len(same) == 462


@each_operator(same)
def test_same_bytes(recordings: list[Recording]) -> None:
    for recording in recordings:
        bound, ours = both(recording)
        places = recording.differences(ours, recording.raw, bound.call)
        assert not places.size, f"{recording.id}: {places.size} bytes differ, first at byte {places[0]}"


# --- the ones that differ, by cause ----------------------------------------------------------------------


def defect_in_values(recording: Recording) -> tuple[BoundCase, PackedBuffer, np.ndarray]:
    """The call, our output, and the places that differ, of which some must be elements."""
    bound, ours = both(recording)
    places = recording.differences(ours, recording.raw, bound.call)
    assert (ours.kinds()[places] == ByteKind.VALUE).any(), "listed, and yet the same"
    return bound, ours, places


def alpha(recording: Recording) -> None:
    defect_in_values(recording)
    arguments = {**recording.arguments, "alpha": {**recording.arguments["alpha"], "value": 1.0}}
    plain = replace(recording, arguments=arguments)
    bound, ours = both(plain)
    assert not plain.differences(ours, recording.raw, bound.call).size


def batch(recording: Recording) -> None:
    """Every byte that differs is one that the device never wrote, behind the first of the outermost dim."""
    bound, ours, places = defect_in_values(recording)
    assert recording.mask is not None
    assert not (recording.mask[places] & WRITTEN).any()
    device = PackedBuffer.from_raw(recording.raw, bound.call.out.shape, bound.call.out.layout)
    assert np.array_equal(device.unpack()[:1], ours.unpack()[:1])
    assert (device.unpack()[1:] == 0x5A).all()


def rows(recording: Recording) -> None:
    assert len(recording.out_shape) == 3
    batch(recording)


def refused(recording: Recording) -> None:
    with pytest.raises(ShapeError):
        recording.call()


def gemv_rows(recording: Recording) -> None:
    """Refused; the first row alone is what the device computed of it."""
    refused(recording)
    first = replace(
        recording,
        arrays={**recording.arrays, "x": recording.arrays["x"][:1]},
        out_shape=(1, *recording.out_shape[1:]),
    )
    bound, ours = both(first)
    assert not first.differences(ours, recording.raw, bound.call).size


def broadcast(recording: Recording) -> None:
    refused(recording)
    assert recording.arrays["a"].shape != recording.arrays["b"].shape


def depthwise_words(recording: Recording) -> None:
    refused(recording)
    assert not recording.exporter_legal
    assert recording.out_shape[1] % 4


def group_words(recording: Recording) -> None:
    refused(recording)
    assert not recording.exporter_legal
    assert recording.out_shape[1] // recording.arguments["groups"]["value"] % 4


def conversion(recording: Recording) -> None:
    _, _, places = defect_in_values(recording)
    bound, ours = both(recording, Target(LAVAPIPE))
    assert not recording.differences(ours, recording.raw, bound.call).size
    x = np.sort(recording.arrays["x"].reshape(-1))
    huge = ~np.isfinite(x) | (np.abs(x) > 2.0**31 * recording.arguments["scale"]["value"])
    assert places.size <= huge.sum()


EXPLANATIONS = {
    "alpha": alpha,
    "batch": batch,
    "rows": rows,
    "gemv-rows": gemv_rows,
    "broadcast": broadcast,
    "depthwise-words": depthwise_words,
    "group-words": group_words,
    "conversion": conversion,
}


@each(excepted)
def test_listed_difference(recording: Recording) -> None:
    EXPLANATIONS[str(DIFFERENCES.cause(recording.id))](recording)


def test_every_cause_is_explained_and_used() -> None:
    assert set(DIFFERENCES.causes) == set(EXPLANATIONS)
    assert {DIFFERENCES.cause(r.id) for r in excepted} == set(EXPLANATIONS)
    for pattern in DIFFERENCES.patterns:
        assert any(DIFFERENCES.matches(pattern, r.id) for r in RECORDINGS), f"{pattern} matches nothing"


# --- what the device says about its bytes ----------------------------------------------------------------


@each_operator(masked)
def test_defined_bytes_were_written(recordings: list[Recording]) -> None:
    """We never hold a device to a byte that it did not write, nor excuse an element."""
    for recording in recordings:
        call = recording.call()
        assert recording.mask is not None
        mask = recording.mask[: call.out.nbytes]
        defined = call.device_defined()
        assert not (defined & ~(mask & WRITTEN).astype(bool)).any(), recording.id
        kinds = byte_kinds(call.out)
        assert np.array_equal((mask & ELEMENT).astype(bool), kinds == ByteKind.VALUE), recording.id
        assert defined[kinds == ByteKind.VALUE].all(), recording.id
        # the tail that rounds a buffer up to 16 bytes
        assert not recording.mask[call.out.nbytes :].any(), recording.id


@each_operator([r for r in same if r.inpad7b is not None])
def test_defined_bytes_do_not_follow_the_inputs_padding(recordings: list[Recording]) -> None:
    """A second run with 0x7B in the inputs' padding: where it differs, we call the byte unspecified or a copy."""
    for recording in recordings:
        call = recording.call()
        assert recording.inpad7b is not None
        moved = (recording.raw != recording.inpad7b)[: call.out.nbytes]
        assert moved.any(), recording.id
        if call.padding.copied:
            inputs = recording.inputs()
            for buffer in inputs.values():
                buffer.raw[buffer.kinds() != ByteKind.VALUE] = 0x7B
            ours = EXECUTOR.run_call(call, inputs)
            assert not recording.differences(ours, recording.inpad7b, call).size, recording.id
        else:
            assert not (moved & call.device_defined()).any(), recording.id


@each([r for r in RECORDINGS if r.scratch is not None])
def test_im2col_scratch(recording: Recording) -> None:
    call = recording.call()
    if call.op.picks:
        call = call.op.expand(call)[0].call
    (part, _) = call.op.expand(call)
    assert part.call.op.family is Family.WINDOWS
    inputs = recording.inputs()
    ours = part.call.expected(inputs)
    assert EXECUTOR.run_call(part.call, inputs) == ours
    assert recording.scratch is not None
    first = len(ours.raw) // ours.desc.sizes_whcn[3]  # the device computes batch 0 only
    assert np.array_equal(ours.raw[:first], recording.scratch[:first])
    assert part.call.device_defined().all()


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.zip")), ids=lambda p: p.stem)
def test_staging(path: Path) -> None:
    """Upstream's staging kernel packed the int8 inputs; both staging operators here agree with it."""
    count = 0
    (there,), (back,) = OPS.of_family(Family.STAGE_IN), OPS.of_family(Family.STAGE_OUT)
    for name, array, desc, raw in staged_inputs(path):
        flat = {"x": PackedBuffer.pack(array.reshape(-1), "4W")}
        call = there.bind(there.params(shape=array.shape), {"x": flat["x"].desc}, {}, desc.layout)
        ours = call.expected(flat)
        assert EXECUTOR.run_call(call, flat) == ours
        assert not ((ours.raw != raw[: ours.raw.size]) & call.device_defined()).any(), name
        returned = back.bind(back.params(), {"x": desc}, {}, "4W")
        device = PackedBuffer.from_raw(raw, desc.shape, desc.layout)
        assert EXECUTOR.run_call(returned, {"x": device}) == flat["x"], name
        count += 1
    assert count or OPS[path.stem].family is Family.QUANTIZE  # whose input is float


# --- the other device ------------------------------------------------------------------------------------


@each([r for r in RECORDINGS if r.h200 is not None])
def test_nvidia_profile_explains_the_h200(recording: Recording) -> None:
    """Where an H200 wrote other bytes than lavapipe, the profile nvidia says which; alpha is ignored there too."""
    assert recording.h200 is not None
    if DIFFERENCES.cause(recording.id) == "alpha":
        arguments = {**recording.arguments, "alpha": {**recording.arguments["alpha"], "value": 1.0}}
        recording = replace(recording, arguments=arguments)
    bound, ours = both(recording, Target(NVIDIA))
    assert not recording.differences(ours, recording.h200, bound.call).size
    _, other = both(recording, Target(LAVAPIPE))
    assert recording.differences(other, recording.h200, bound.call).size, "lavapipe explains it as well"


@each_operator([r for r in same if r.h200 is None])
def test_nvidia_profile_changes_nothing_else(recordings: list[Recording]) -> None:
    """Where the H200 wrote what lavapipe wrote, the profile nvidia agrees with both."""
    for recording in recordings:
        bound, ours = both(recording, Target(NVIDIA))
        assert not recording.differences(ours, recording.raw, bound.call).size, recording.id


def test_both_kinds_of_float_source_are_recorded() -> None:
    """Quantize's padding words depend on whether its float source packs channels or columns."""
    sources = {r.arguments["x"]["layout"] for r in RECORDINGS if OPS[r.op].family is Family.QUANTIZE}
    assert sources == {"W", "C"}


def test_refusals_are_typed() -> None:
    for recording in excepted:
        try:
            recording.call()
        except RefsimError as error:
            assert str(error).startswith(recording.op)
