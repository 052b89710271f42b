"""Verdicts about devices: a real one, right and wrong ones that are simulated, and one that does not repeat itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from saved import arrays

from device.simulated import Runtime
from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.core.errors import FormatError
from refsim.core.qmath import NVIDIA
from refsim.device import manifest
from refsim.device.expose import ExposeOptions, expose, write
from refsim.device.page import cells, render, repeats_lines, summary
from refsim.device.repeats import repeats
from refsim.device.triage import triage
from refsim.device.verdicts import LEGAL, SAME, UNKNOWN, WRONG, Triage
from refsim.formats.cases import read_folder, write_folder
from refsim.ops.base.target import Target

DATA = Path(__file__).parents[1] / "data"
DEVICE = DATA / "device"


def given(name: str) -> list[np.ndarray]:
    return [np.load(DATA / "models" / f"{name}.io.npz")["in0"]]


def real(name: str):
    return triage([(DEVICE / f"{name}.raw.pte", [DEVICE / f"{name}.raw.npz"])], given(name))


@pytest.mark.parametrize("name", ["linear_head", "linear_head_gemv", "mixed_ops"])
def test_models_that_are_right_on_a_real_device(name: str) -> None:
    found = real(name)
    assert {v.verdict for v in found.verdicts} <= {SAME, UNKNOWN}
    assert (found.profile, found.target, found.cases()) == ("canonical", "desktop", {})
    assert summary(found).endswith("each on its own inputs")


@pytest.mark.long
def test_a_byte_that_a_real_device_rounds_once(tmp_path: Path) -> None:
    found = real("refine_seg")
    (v,) = found.suspects
    assert (v.row.node, v.row.operator, v.row.value) == (3, "q8ta_conv2d_pw", "delegate0_v97")
    assert (v.verdict, v.profiles, found.profile) == (LEGAL, ("nvidia",), "nvidia")
    assert v.report is not None and v.report.differing == 1
    (difference,) = v.report.differences
    assert (difference.place.index, difference.expected, difference.actual) == ((0, 19, 67, 34), -84, -83)
    assert v.cause.startswith("fused multiply-add")
    others = [other for other in found.verdicts if other is not v]
    assert len(others) == 29 and {other.verdict for other in others} == {SAME}
    assert sum(other.row.run.differing > 0 for other in others) == 26  # what follows from the byte
    case = found.cases()["delegate0_v97"]
    stored = read_folder(write_folder(tmp_path / "case", case))
    raw = np.frombuffer(case["actual.bin"], np.uint8)
    assert np.flatnonzero(stored.expected.raw != raw).tolist() == [116619]


def simulated(
    folder: Path, name: str = "linear_head", target: Target | None = None
) -> tuple[Path, list[np.ndarray]]:
    path = folder / "m.pte"
    files = expose(DATA / "models" / f"{name}.pte", ExposeOptions(), name=str(path))
    write(path, files)
    return path, Runtime(files[0].data, target).run(given(name))


def judged(path: Path, outputs: list[np.ndarray], name: str = "linear_head") -> Triage:
    """What triage says of such outputs of an exposed program."""
    return triage([(path, [arrays(path.with_suffix(".npz"), outputs)])], given(name))


def changed(outputs: list[np.ndarray], number: int, byte: int) -> list[np.ndarray]:
    """One byte of an output flipped."""
    copies = [array.copy() for array in outputs]
    copies[number].view(np.uint8).reshape(-1)[byte] ^= 0x7F
    return copies


def test_a_device_that_fuses_is_legal(tmp_path: Path) -> None:
    path, outputs = simulated(tmp_path, "mixed_ops", Target(NVIDIA))
    found = judged(path, outputs, "mixed_ops")
    assert {v.verdict for v in found.verdicts} <= {SAME, LEGAL}
    assert all("nvidia" in v.profiles for v in found.suspects)


@pytest.mark.long
def test_a_wrong_byte_is_found_where_it_is(tmp_path: Path) -> None:
    path, outputs = simulated(tmp_path)
    found = judged(path, changed(outputs, 2, 5))
    # what stands behind the byte was computed from the right one, so the next operator looks wrong, too
    assert [v.row.value for v in found.wrong] == ["delegate0_v20", "delegate0_v24"]
    assert "2 wrong, the first is node 1 q8ta_linear" in summary(found)
    assert not found.same
    page = render("m.pte", found, None, {"delegate0_v20": "refsim replay <x>"})
    assert "refsim replay &lt;x&gt;" in page and 'class="wrong"' in page


@pytest.mark.long
def test_outputs_that_were_exchanged_behind_a_byte_that_differs(tmp_path: Path) -> None:
    """What each should hold follows from its own inputs: in this run of a real device, 26 buffers differ."""
    file, held = DEVICE / "refine_seg.raw.pte", dict(np.load(DEVICE / "refine_seg.raw.npz"))
    found = {v.row.value: v.row.run for v in real("refine_seg").verdicts if v.verdict == SAME}
    pairs: dict[object, list[str]] = {}
    for row in manifest.read(file)[1].outputs:
        run = found.get(row.value or "")
        if run is not None and run.differing and row.held is not None:
            pairs.setdefault((row.held.shape, row.held.layout, row.shape), []).append(row.output)
    one, other = next(outputs for outputs in pairs.values() if len(outputs) > 1)[:2]
    held[one], held[other] = held[other], held[one]
    np.savez(tmp_path / "o.npz", **held)
    with pytest.raises(FormatError, match="two outputs are exchanged; got delegate0_v"):
        triage([(file, [tmp_path / "o.npz"])], given("refine_seg"))


@pytest.mark.long
def test_runs_that_part(tmp_path: Path) -> None:
    path, outputs = simulated(tmp_path)
    runs = [judged(path, one) for one in (outputs, changed(outputs, 3, 1), outputs)]
    found = repeats(runs)
    assert found.groups == ((0, 2), (1,))
    told = (found.first, found.operator, found.elements, found.of)
    assert told == ("delegate0_v24", "q8ta_linear", 1, 768)
    assert found.right == (0,) and "one element differs" in found.pattern
    assert "this operator is right in runs 0, 2" in list(repeats_lines(found))
    assert found.shown == 1 and found.verdicts["delegate0_v24"] == "wrong 1 in run 1"
    assert "delegate0_v17" not in found.verdicts and found.padding_first == ""
    again = repeats(runs[::2])
    assert list(repeats_lines(again)) == ["2 runs, the same bytes in all of them"]
    assert WRONG in {v.verdict for v in runs[1].verdicts}


@pytest.mark.long
def test_the_operator_that_parts_is_judged_where_it_is_wrong(tmp_path: Path) -> None:
    """Run 0 has most wrong operators, and the one that parts is right in it: it is wrong in run 1."""
    path, outputs = simulated(tmp_path)
    first = changed(outputs, 2, 5)
    runs = [judged(path, one) for one in (changed(changed(outputs, 3, 1), 4, 1), first, outputs)]
    found = repeats(runs)
    node = {v.row.value: v for v in runs[1].wrong}["delegate0_v20"]
    assert (found.first, found.right, found.judged, found.unjudged) == ("delegate0_v20", (0, 2), 1, ())
    assert found.shown == 0 and found.elsewhere["delegate0_v20"] == (1, node.cause)
    lines = list(repeats_lines(found))
    assert "this operator is right in runs 0, 2" in lines
    assert "it is judged with the inputs of run 1, in which it is wrong" in lines
    assert (
        "delegate0_v20 is wrong in run 1; triage with the --outputs of that run alone reports on it" in lines
    )
    assert summary(runs[0], found) == summary(runs[0]) + "; 1 more in other runs"
    assert '<td class="wrong">wrong 1 in run 1</td>' in render("m.pte", runs[0], found, {})
    row = next(v for v in runs[0].verdicts if v.row.value == "delegate0_v20")
    assert row.verdict == SAME and cells(row, found)[4:] == ("wrong 1 in run 1", "")
    causes = replace(found, elsewhere={"delegate0_v20": (1, "byte order")})
    assert cells(row, causes)[5] == "byte order (run 1)"


@pytest.mark.long
def test_runs_that_part_in_padding_before_they_part_in_elements(tmp_path: Path) -> None:
    """Padding that a device leaves to chance says nothing of a bug; the elements that part do, and who is wrong."""
    path, outputs = simulated(tmp_path)

    right = judged(path, outputs)
    held = right.collected.held["delegate0_v17"]
    assert isinstance(held, PackedBuffer)
    spare = np.flatnonzero(held.kinds() != ByteKind.VALUE)
    padded = [array.copy() for array in outputs]
    padded[1].view(np.uint8).reshape(-1)[spare] ^= 0x55
    found = repeats([right, judged(path, changed(padded, 3, 1))])
    assert (found.first, found.elements, found.padding_first) == ("delegate0_v24", 1, "delegate0_v17")
    lines = list(repeats_lines(found))
    assert "  padding alone parts before it, from delegate0_v17 on" in lines
    assert lines[-1] == "each report is of run 1"
    alone = repeats([right, judged(path, padded)])
    what = f"{len(spare)} bytes of delegate0_v17, q8ta_quantize"
    assert f"they part in padding alone: {what}; no element differs" in repeats_lines(alone)
    assert alone.verdicts == {}
