"""No shader reads or writes outside of a tensor, not even what it throws away: there a process may have no memory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import reads
from reads import EACH, Ran, Watching

from refsim.ops import q8ta_conv2d_dw
from refsim.ops.base import gemm
from refsim.ops.base.registry import OPS
from refsim.ops.q8ta_conv2d_dw import WINDOWS
from refsim_gpu import build_shaders
from refsim_gpu.kompute import Device

INDEX = int(os.environ.get("REFSIM_DEVICE", "0"))
FORCED = 4
#: Arrays that workgroups share, and elements behind the last one used: the last row of positions needs no odd vector.
SHARED = {"tile_a": 1, "tile_b": 0, "partial": 0, "stretch": 0, "bytes": 0}
MATRIX_LIKE = [name for name, op in OPS.items() if op.variants == gemm.TILE_CONFIGS]
#: A change of each kind that no byte shows: file, what stands there, what is written instead, an operator it concerns;
#: and of what is right and slower, as words are fetched again, or one by one, what is said of it.
UNSEEN = (
    ("include/gemm.glsl", "< all_positions) {", "<= all_positions) {", "q8ta_conv2d_pw", ""),
    (
        "include/gemm.glsl",
        "first_position + int(m_of + (s",
        "first_position - int(m_of + (s",
        "q8ta_linear",
        "",
    ),
    ("q8ta_quantize.comp", "if (v < from.live.x && u < from.live.y) four", "four", "q8ta_quantize", ""),
    ("include/gemm.glsl", "FETCH(0)", "FETCH(0) FETCH(0)", "q8ta_linear", " x="),
    (
        "q8ta_conv2d_dw.comp",
        "!(X_VECTORS && in_vector)",
        "!(X_VECTORS && in_vector && j > 4)",
        "q8ta_conv2d_dw",
        " x=",
    ),
)

pytestmark = pytest.mark.skipif(
    shutil.which("glslc") is None, reason="glslc is not installed: apt-get install glslc"
)


@pytest.fixture(scope="module")
def executor(device: Device) -> Iterator[Watching]:
    with Watching(INDEX) as opened:
        yield opened


@pytest.fixture(scope="module")
def done(executor: Watching) -> Callable[[str], Ran]:
    """What the shaders of an operator's cases did, run once."""
    return cache(lambda op: reads.ran(executor, op, EACH))


@pytest.mark.few(12)
@pytest.mark.parametrize("op", OPS)
def test_nothing_is_read_outside(done: Callable[[str], Ran], op: str) -> None:
    """And arrays that workgroups share are used to their end: some case needs all of their memory, no case more."""
    found = done(op)
    assert not found.outside, found.outside[0]
    used: dict[tuple[str, str, int], int] = {}
    for row in found.reached:
        if row.name in SHARED and row.times:
            key = (row.shader, row.name, row.there)
            used[key] = max(used.get(key, 0), row.behind)
    assert {key: key[2] - behind for key, behind in used.items()} == {key: SHARED[key[1]] for key in used}


@pytest.mark.few(12)
@pytest.mark.parametrize("op", OPS)
def test_no_word_is_asked_for_more_often_than_is_written_down(done: Callable[[str], Ran], op: str) -> None:
    """After a change on purpose: ``python tests/gpu/reads.py --write``."""
    written = [line for line in reads.FILE.read_text().splitlines() if line.startswith(f"{op} ")]
    assert done(op).lines == written


@pytest.mark.few(3)
@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("op", MATRIX_LIKE)
def test_no_tile_reads_outside(executor: Watching, op: str) -> None:
    found = reads.ran(executor, op, FORCED).outside
    assert not found, found[0]


@pytest.mark.long
@pytest.mark.parametrize("many", [0, 1 << 40], ids=["many rows", "few rows"])
def test_no_window_reads_outside(executor: Watching, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(WINDOWS) > 1
    monkeypatch.setattr(q8ta_conv2d_dw, "MANY", many)
    found = reads.ran(executor, "q8ta_conv2d_dw", EACH).outside
    assert not found, found[0]


@pytest.mark.few(2)
@pytest.mark.parametrize(("file", "text", "other", "op", "said"), UNSEEN, ids=lambda value: str(value)[:24])
def test_what_no_byte_shows_is_counted(
    executor: Watching, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    file: str, text: str, other: str, op: str, said: str,
) -> None:  # fmt: skip
    """Shaders are built from a copy that has another text in its place."""
    count = EACH if said else FORCED
    before, shaders = reads.ran(executor, op, count).lines, tmp_path / "shaders"
    shutil.copytree(build_shaders.SHADERS, shaders, ignore=shutil.ignore_patterns("spirv"))
    source = (shaders / file).read_text()
    assert source.count(text) == 1
    (shaders / file).write_text(source.replace(text, other))
    monkeypatch.setattr(build_shaders, "SHADERS", shaders)
    reads.built.cache_clear()
    try:
        found = reads.ran(executor, op, count)
    finally:
        reads.built.cache_clear()
    if said:
        others = [line for line, was in zip(found.lines, before, strict=True) if line != was]
        assert not found.outside and others and all(said in line for line in others)
    else:
        outside = found.outside[0]
        assert outside.startswith("read out of bounds: ") and " in shaders/" in outside
