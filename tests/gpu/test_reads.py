"""No shader reads or writes outside of a tensor, not even what it throws away: there a process may have no memory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import reads
from reads import Watching

from refsim.golden import rules
from refsim.ops import q8ta_conv2d_dw
from refsim.ops.base import gemm
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.registry import OPS
from refsim.ops.q8ta_conv2d_dw import WINDOWS
from refsim_gpu import build_shaders
from refsim_gpu.kompute import Device

INDEX = int(os.environ.get("REFSIM_DEVICE", "0"))
#: Cases of the corpus for each operator, evenly apart, of small tensors.
EACH, MOST_WORDS = 8, 8000
FORCED = 4
MATRIX_LIKE = [name for name, op in OPS.items() if op.variants == gemm.TILE_CONFIGS]
#: A change of each kind that no byte shows: file, what stands there, what is written instead, an operator it concerns.
UNSEEN = (
    ("include/gemm.glsl", "< all_positions) {", "<= all_positions) {", "q8ta_conv2d_pw"),
    ("include/gemm.glsl", "first_position + int(m_of + (s", "first_position - int(m_of + (s", "q8ta_linear"),
    ("q8ta_quantize.comp", "if (v < from.live.x && u < from.live.y) four", "four", "q8ta_quantize"),
)

pytestmark = pytest.mark.skipif(
    shutil.which("glslc") is None, reason="glslc is not installed: apt-get install glslc"
)


@pytest.fixture(scope="module")
def executor(device: Device) -> Iterator[Watching]:
    with Watching(INDEX) as opened:
        yield opened


def cases(op: str, count: int) -> Iterator[BoundCase]:
    found, size = 0, rules.RULES[op].count
    for number in range(0, size, max(1, size // (3 * count))):
        bound = bind(rules.case(op, number))
        if found < count and sum(buffer.words.size for buffer in bound.inputs.values()) <= MOST_WORDS:
            found += 1
            yield bound
    assert found == count


def outside(executor: Watching, op: str, count: int) -> list[str]:
    """What the shaders of some cases did outside of their buffers; their bytes are right either way."""
    executor.outside.clear()
    for bound in cases(op, count):
        assert executor.run_call(bound.call, bound.inputs) == bound.call.expected(bound.inputs), bound.case
    return executor.outside


@pytest.mark.parametrize("op", OPS)
def test_nothing_is_read_outside(executor: Watching, op: str) -> None:
    found = outside(executor, op, EACH)
    assert not found, found[0]


@pytest.mark.parametrize("number", range(len(gemm.TILE_CONFIGS)), ids=[row.name for row in gemm.TILE_CONFIGS])
@pytest.mark.parametrize("op", MATRIX_LIKE)
def test_no_tile_reads_outside(
    executor: Watching, op: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small cases never choose the large tiles, so each is forced."""
    monkeypatch.setattr(gemm, "TILE_CONFIGS", (gemm.TILE_CONFIGS[number],))
    found = outside(executor, op, FORCED)
    assert not found, found[0]


@pytest.mark.parametrize("many", [0, 1 << 40], ids=["many rows", "few rows"])
def test_no_window_reads_outside(executor: Watching, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(WINDOWS) > 1
    monkeypatch.setattr(q8ta_conv2d_dw, "MANY", many)
    found = outside(executor, "q8ta_conv2d_dw", EACH)
    assert not found, found[0]


@pytest.mark.parametrize(("file", "text", "other", "op"), UNSEEN, ids=lambda value: str(value)[:24])
def test_what_no_byte_shows_is_counted(
    executor: Watching,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    text: str,
    other: str,
    op: str,
) -> None:
    shaders = tmp_path / "shaders"
    shutil.copytree(build_shaders.SHADERS, shaders, ignore=shutil.ignore_patterns("spirv"))
    source = (shaders / file).read_text()
    assert source.count(text) == 1
    (shaders / file).write_text(source.replace(text, other))
    monkeypatch.setattr(build_shaders, "SHADERS", shaders)
    reads.built.cache_clear()
    try:
        found = outside(executor, op, FORCED)
    finally:
        reads.built.cache_clear()
    assert found and found[0].startswith("read out of bounds: ") and " in shaders/" in found[0]
