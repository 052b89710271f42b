"""refsim pack: the bytes that PackedBuffer gives, sidecars, and refusals that write nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from refsim.core.buffer import PackedBuffer
from refsim.core.layout import FLOAT_LAYOUTS, INT8_LAYOUTS
from refsim.core.layout import layout as layout_named

ARRAY = np.arange(1 * 6 * 3 * 5, dtype=np.int8).reshape(1, 6, 3, 5)


@pytest.mark.parametrize("layout", INT8_LAYOUTS, ids=str)
def test_bytes_are_those_of_the_layout(layout, tmp_path: Path, refsim) -> None:
    np.save(tmp_path / "a.npy", ARRAY)
    out = tmp_path / "a.bin"
    done = refsim(
        "pack", tmp_path / "a.npy", "-l", layout, "-o", out, "--lane", "-7", "--word", "9", "--json"
    )
    expected = PackedBuffer.pack(ARRAY, layout, lane=-7, word=9)
    assert done.status == 0 and out.read_bytes() == expected.raw.tobytes()
    assert done.json["bytes"] == expected.desc.nbytes and done.json["layout"] == layout.name


@pytest.mark.parametrize("layout", FLOAT_LAYOUTS, ids=str)
def test_float_layouts_take_float32(layout, tmp_path: Path, refsim) -> None:
    np.save(tmp_path / "a.npy", ARRAY.astype(np.float32))
    assert refsim("pack", tmp_path / "a.npy", "-l", layout.short_name, "-o", tmp_path / "a.bin").status == 0
    expected = PackedBuffer.pack(ARRAY.astype(np.float32), layout)
    assert (tmp_path / "a.bin").read_bytes() == expected.raw.tobytes()


def test_fortran_order_is_the_same_array(tmp_path: Path, refsim) -> None:
    np.save(tmp_path / "c.npy", ARRAY)
    np.save(tmp_path / "f.npy", np.asfortranarray(ARRAY))
    for name in "cf":
        assert (
            refsim("pack", tmp_path / f"{name}.npy", "-l", "4W4C", "-o", tmp_path / f"{name}.bin").status == 0
        )
    assert (tmp_path / "c.bin").read_bytes() == (tmp_path / "f.bin").read_bytes()


def test_sidecar(tmp_path: Path, refsim) -> None:
    np.save(tmp_path / "a.npy", ARRAY)
    assert refsim("pack", tmp_path / "a.npy", "-l", "4C", "-o", tmp_path / "b.bin", "--sidecar").status == 0
    sidecar = json.loads((tmp_path / "b.json").read_text())
    assert sidecar == {"value": "b", "shape": [1, 6, 3, 5], "layout": "PACKED_INT8_4C", "dtype": "int8"}


def bad_files(folder: Path) -> dict[str, tuple[Path, str]]:
    """Path and what the error says, by kind of damage."""
    np.save(folder / "good.npy", ARRAY)
    good = (folder / "good.npy").read_bytes()
    huge = good.replace(b"(1, 6, 3, 5)", b"(1,6,3,9999999)")
    contents = {
        "truncated": (good[:-1], "ends too early"),
        "empty": (b"", "not a readable array file"),
        "no array": (b"hello world, this is no array", "not a readable array file"),
        "huge": (huge, "shorter than it says"),
        "cut header": (good[:50], "not the header of an array"),
        "version": (good[:6] + b"\x07" + good[7:], "unknown .npy version"),
        "objects": (good.replace(b"'|i1'", b"'|O8'"), "does not hold numbers"),
    }
    for name, (content, _) in contents.items():
        (folder / f"{name}.npy").write_bytes(content)
    np.save(folder / "int32.npy", ARRAY.astype(np.int32))
    np.save(folder / "rank9.npy", np.zeros([1] * 9, np.int8))
    np.save(folder / "rank0.npy", np.int8(3))
    np.save(folder / "none.npy", np.zeros((1, 0, 3, 5), np.int8))
    found = {name: (folder / f"{name}.npy", match) for name, (_, match) in contents.items()}
    return found | {
        "int32": (folder / "int32.npy", "wrong dtype for 4C; got int32, need int8"),
        "rank9": (folder / "rank9.npy", "unsupported rank"),
        "rank0": (folder / "rank0.npy", "unsupported rank"),
        "none": (folder / "none.npy", "a size is below 1"),
        "absent": (folder / "absent.npy", "no such file"),
        "folder": (folder, "got a folder"),
    }


@pytest.mark.parametrize(
    "kind",
    [
        "truncated", "empty", "no array", "huge", "cut header", "version", "objects",
        "int32", "rank9", "rank0", "none", "absent", "folder",
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_writes_nothing(kind: str, tmp_path: Path, refsim) -> None:
    path, match = bad_files(tmp_path)[kind]
    before = sorted(tmp_path.iterdir())
    refsim("pack", path, "-l", "4C", "-o", tmp_path / "out.bin").refused(match)
    assert sorted(tmp_path.iterdir()) == before


def test_an_array_of_an_npz_is_taken(tmp_path: Path, refsim) -> None:
    """What `refsim run -o` writes: the only array, or the one that is named."""
    floats = ARRAY.astype(np.float32)
    np.savez(tmp_path / "one.npz", out0=ARRAY)
    np.savez(tmp_path / "two.npz", out0=floats, out1=ARRAY)
    for given in (["one.npz"], ["one.npz", "--array", "out0"], ["two.npz", "--array", "out1"]):
        out = tmp_path / "o.bin"
        assert refsim("pack", tmp_path / given[0], *given[1:], "-l", "4C", "-o", out).status == 0, given
        assert out.read_bytes() == PackedBuffer.pack(ARRAY, layout_named("4C")).raw.tobytes()
        out.unlink()
