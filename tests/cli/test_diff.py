"""refsim diff: verdicts, text and JSON, sidecars, and what bad input says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from refsim.buffer import PackedBuffer

SHAPE = (1, 6, 3, 5)


@pytest.fixture
def buffers(tmp_path: Path) -> tuple[Path, Path]:
    """An expected buffer, and one whose words have their lanes rotated."""
    good = PackedBuffer.pack(np.arange(90).astype(np.int8).reshape(SHAPE), "4W4C").raw
    (tmp_path / "a.bin").write_bytes(good.tobytes())
    (tmp_path / "b.bin").write_bytes(np.roll(good.reshape(-1, 4), 1, 1).tobytes())
    return tmp_path / "a.bin", tmp_path / "b.bin"


def test_same_is_0_and_one_line_says_so(buffers, refsim) -> None:
    done = refsim("diff", buffers[0], buffers[0], "-l", "4W4C", "-s", "1,6,3,5")
    assert done.status == 0 and done.out.splitlines()[0] == "1x6x3x5 4W4C: the same"


def test_different_is_1_and_the_cause_is_named(buffers, refsim) -> None:
    done = refsim("diff", *buffers, "-l", "4W4C", "-s", "1,6,3,5", "--limit", "3")
    assert done.status == 1 and "\x1b" not in done.out
    assert "1. lanes rotated: output words rotated by 1 (predicts every byte)" in done.out
    assert "first 3 of" in done.out
    assert done.err.startswith("rerun: refsim diff ")


def test_json_holds_what_the_text_says(buffers, refsim) -> None:
    facts = refsim("diff", *buffers, "-l", "4W4C", "-s", "1,6,3,5", "--json").json
    assert facts["same"] is False and facts["layout"] == "PACKED_INT8_4W4C" and facts["shape"] == list(SHAPE)
    assert facts["causes"][0]["name"] == "lanes rotated" and facts["causes"][0]["exact"] is True
    counts = {count["kind"]: count for count in facts["counts"]}
    assert sum(count["bytes"] for count in counts.values()) == 192
    assert sum(count["differing"] for count in counts.values()) == facts["differing"]
    first = facts["differences"][0]
    assert first["byte"] == 0 and first["index"] == [0, 0, 0, 0] and first["kind"] == "value"
    assert (first["expected"], first["actual"], first["legal"]) == (0, 45, [])


def test_another_buffer_is_recognized(buffers, tmp_path: Path, refsim) -> None:
    other = np.random.default_rng(1).integers(0, 256, 192).astype(np.uint8)
    (tmp_path / "c.bin").write_bytes(other.tobytes())
    options = ["-l", "4W4C", "-s", "1,6,3,5", "--other", tmp_path / "c.bin", "--json"]
    facts = refsim("diff", buffers[0], tmp_path / "c.bin", *options).json
    assert facts["causes"][0]["name"] == "stale or foreign buffer"
    assert str(tmp_path / "c.bin") in facts["causes"][0]["detail"]


def test_layout_and_shape_come_from_a_sidecar(buffers, tmp_path: Path, refsim) -> None:
    refsim("diff", *buffers).refused("give --layout and --shape")
    (tmp_path / "b.json").write_text('{"value": "b", "shape": [1, 6, 3, 5], "layout": "PACKED_INT8_4W4C"}')
    assert refsim("diff", *buffers).status == 1


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["-l", "4W4C", "-s", "1,6,3,9"], "diff: expected: wrong size; got 192 bytes, need 288"),
        (["-l", "CONV2D", "-s", "1,6,3,5"], "no addresses before"),
        (["-l", "4W4C", "-s", "1,6,0,5"], "a size is below 1"),
        (["-l", "4W4C", "-s", "1,6,3,5", "--other", "nonesuch.bin"], "nonesuch.bin"),
    ],
)
def test_bad_input_is_one_line(options: list[str], match: str, buffers, refsim) -> None:
    refsim("diff", *buffers, *options).refused(match)


def test_a_page_is_written(buffers, tmp_path: Path, refsim) -> None:
    done = refsim("diff", *buffers, "-l", "4W4C", "-s", "1,6,3,5", "--html", tmp_path / "r.html")
    assert done.status == 1 and "lanes rotated" in (tmp_path / "r.html").read_text()
