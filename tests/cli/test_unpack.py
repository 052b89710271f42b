"""refsim unpack: the inverse of pack, with or without a sidecar."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from refsim.core.buffer import PackedBuffer
from refsim.core.layout import FLOAT_LAYOUTS, INT8_LAYOUTS

SHAPE = (2, 3, 5, 6)


@pytest.mark.parametrize("layout", (*INT8_LAYOUTS, *FLOAT_LAYOUTS), ids=str)
def test_unpack_undoes_pack(layout, tmp_path: Path, refsim) -> None:
    dtype = np.int8 if layout.packed_int8 else np.float32
    array = np.random.default_rng(1).integers(-128, 128, SHAPE).astype(dtype)
    (tmp_path / "a.bin").write_bytes(PackedBuffer.pack(array, layout).raw.tobytes())
    done = refsim(
        "unpack", tmp_path / "a.bin", "-l", layout.name, "-s", "2x3x5x6", "-o", tmp_path / "b.npy", "--json"
    )
    assert (
        done.status == 0 and done.json["shape"] == list(SHAPE) and done.json["dtype"] == np.dtype(dtype).name
    )
    assert np.array_equal(np.load(tmp_path / "b.npy"), array)


def test_layout_and_shape_come_from_the_sidecar(tmp_path: Path, refsim) -> None:
    array = np.arange(90, dtype=np.int8).reshape(1, 6, 3, 5)
    np.save(tmp_path / "a.npy", array)
    assert refsim("pack", tmp_path / "a.npy", "-l", "4H4W", "-o", tmp_path / "a.bin", "--sidecar").status == 0
    assert refsim("unpack", tmp_path / "a.bin", "-o", tmp_path / "b.npy").status == 0
    assert np.array_equal(np.load(tmp_path / "b.npy"), array)
    (tmp_path / "a.json").write_text('{"shape": [1, 2]}')
    refsim("unpack", tmp_path / "a.bin", "-o", tmp_path / "c.npy").refused("not a sidecar")
    assert not (tmp_path / "c.npy").exists()


def test_a_sidecar_that_says_something_else_is_an_error(
    tmp_path: Path, refsim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many bytes in another shape would be another array."""
    np.save(tmp_path / "a.npy", np.arange(96, dtype=np.int8).reshape(1, 6, 4, 4))
    refsim("pack", tmp_path / "a.npy", "-l", "4C", "-o", tmp_path / "a.bin", "--sidecar")
    for verb in (
        ("unpack", tmp_path / "a.bin", "-o", tmp_path / "b.npy"),
        ("diff",) + 2 * (tmp_path / "a.bin",),
    ):
        other = refsim(*verb, "-l", "4C", "-s", "1,6,2,8")
        other.refused(
            f"{tmp_path}/a.json: says another shape of {tmp_path}/a.bin; got (1, 6, 2, 8), need (1, 6, 4, 4)"
        )
        refsim(*verb, "-l", "4C1W", "-s", "1,6,4,4").refused("says another layout")
        assert refsim(*verb, "-l", "4C", "-s", "1,6,4,4").status == 0
    refsim("pack", tmp_path / "a.npy", "-l", "4W4C", "-o", tmp_path / "c.bin", "--sidecar")
    monkeypatch.chdir(tmp_path)
    two = refsim("diff", "a.bin", "c.bin")
    two.refused("c.json: says another layout of c.bin; got 4C of a.json, need 4W4C, as it says")
    case = refsim("diff", "a.bin", "a.bin", "--case", "q8ta_add/0003")
    case.refused("a.json: says another layout of a.bin; got 4W4C of --case q8ta_add/0003, need 4C")
    (tmp_path / "a.json").write_text("notes of somebody else")
    assert (
        refsim("unpack", tmp_path / "a.bin", "-l", "4C", "-s", "1,6,2,8", "-o", tmp_path / "c.npy").status
        == 0
    )
