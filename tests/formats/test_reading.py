"""Hostile archives and arrays: what they declare is checked before anything is unpacked or allocated."""

from __future__ import annotations

import io
import json
import os
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from refsim.core.errors import FormatError, LimitError, RefsimError
from refsim.core.layout import layout
from refsim.core.tensor import TensorDesc
from refsim.formats import npz, reading
from refsim.formats.dumps import Recorded
from refsim.formats.file import meant, read_file, there
from refsim.formats.reading import archive
from refsim.golden.store import parse
from refsim.ops.base.binding import bind

SIDECAR = json.dumps({"value": "v", "shape": [1, 4, 4, 4], "layout": "4W4C", "dtype": "int8"}).encode()


def bomb(method: int, size: int = 64 << 20) -> bytes:
    """A zip file whose one dump is ``size`` zeros and says that it is 64 bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("v.json", SIDECAR, method)
        archive.writestr("v.bin", bytes(size), method)
    data = bytearray(file.getvalue())
    at = data.rfind(b"PK\x01\x02")
    struct.pack_into("<I", data, at + 24, 64)
    return bytes(data)


@pytest.mark.parametrize(
    ("method", "match"),
    [
        (zipfile.ZIP_DEFLATED, "cannot be read"),
        (zipfile.ZIP_BZIP2, "packed by a method that is not read; got bzip2, need stored or deflated"),
        (zipfile.ZIP_LZMA, "packed by a method that is not read; got lzma, need stored or deflated"),
    ],
)
def test_a_small_zip_file_does_not_become_large(tmp_path: Path, method: int, match: str) -> None:
    """bz2 and LZMA unpack in one go whatever the member's size is said to be, so they are not read."""
    path = tmp_path / "dump.zip"
    path.write_bytes(bomb(method))
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=match):
            recorded = Recorded(path)
            recorded.raw("v", TensorDesc((1, 4, 4, 4), layout("4W4C")))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_declared_sizes_of_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFSIM_MAX_BYTES", "1M")
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x", bytes(1 << 21))
    with reading.archive(path, "a zip file") as archive, pytest.raises(LimitError, match="2097152 bytes"):
        reading.member(archive, "x", "x")


def npy(header: str, version: tuple[int, int] = (1, 0)) -> bytes:
    text = header.encode("latin-1")
    length = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text + bytes(64)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': " + "(" * 3000,
        "{'descr': '<f4', 'fortran_order': False, 'shape': " + "-" * 9000 + "1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)",
        "{'descr': '<f4', 'fortran_order': '''",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<U999999999', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, ), 'shape': (1, )}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999, )}",
        "",
    ],
)
def test_headers(tmp_path: Path, header: str) -> None:
    """Each is refused for what it is, and none as a lack of memory."""
    path = tmp_path / "a.npy"
    path.write_bytes(npy(header))
    with pytest.raises(FormatError) as caught:
        npz.read_npy(path)
    assert "memory" not in str(caught.value)


@pytest.mark.parametrize("shape", ["(2147483648, 2147483648)", "(1073741824,)"])
def test_a_shape_that_is_too_large(tmp_path: Path, shape: str) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"))
    with pytest.raises(LimitError):
        npz.read_npy(path)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.int8).reshape(2, 3, 4),
        np.float32(3),
        np.zeros((0, 5), np.int64),
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.array([True, False]),
        np.arange(3, dtype=">i2"),
    ],
)
@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
def test_arrays_are_read(array: np.ndarray, version: tuple[int, int]) -> None:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), version)
    size = file.tell()
    file.seek(0)
    found = npz.array_in(file, size, "x")
    assert found.dtype == array.dtype and found.shape == array.shape and np.array_equal(found, array)


def test_headers_of_other_writers(tmp_path: Path) -> None:
    """Other order, other quotes, Python 2's long integers."""
    path = tmp_path / "a.npy"
    path.write_bytes(npy("""{"shape": (2L, 3L), "fortran_order": False, "descr": "<f4"}\n"""))
    assert npz.read_npy(path).shape == (2, 3)


def test_pipes_are_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    for attempt in (
        lambda: read_file(path),
        lambda: npz.read_npy(path),
        lambda: npz.read_arrays(path, ("in",), []),
        lambda: Recorded(path),
    ):
        with pytest.raises(FormatError):
            attempt()


LINE = {
    "case": 0, "inputs": {"x": [[2, 8, 7, 9], "4W4C"]}, "out": "4W4C", "features": {"out_channels": 8, "bias": True},
    "params": {"in_scale": 0.5, "in_zp": 1, "out_scale": 0.5, "out_zp": 0, "kernel_size": [3, 3]}, "style": "random",
    "poison": False, "seed": 3, "sha256": "0" * 64,
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"features": {"out_channels": 2**31 - 1}},
        {"features": {"out_channels": 1.5}},
        {"features": {"out_channels": 0}},
        {"features": {}},
        {"features": 3},
        {"seed": -1},
        {"seed": 0.5},
        {"seed": [1, 2]},
        {"out": [1]},
        {"inputs": {"x": [[2, 8, 7, 9], {}]}},
        {"inputs": {"y": [[2, 8, 7, 9], "4W4C"]}},
        {"inputs": {"x": [[8], "4W4C"]}},
        {"inputs": {"x": [[1, 4, 32768, 8192], "4W4C"]}},
        {"params": {**LINE["params"], "groups": 16}},  # type: ignore[dict-item]
        {"style": 7},
    ],
)
def test_cases_in_lines_of_digests(change: dict[str, object]) -> None:
    """A case that a file describes is checked before its data is drawn."""
    tracemalloc.start()
    try:
        with pytest.raises(RefsimError):
            bind(parse("q8ta_conv2d_general", json.dumps({**LINE, **change}), "line").case)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_the_line_is_right_otherwise() -> None:
    assert bind(parse("q8ta_conv2d_general", json.dumps(LINE), "line").case).call.out.shape == (2, 8, 5, 7)


#: Modules that parse what they read themselves, and why.
PARSERS = {
    "formats/reading.py": "the one place",
    "check/runtime.py": "a file of the package",
    "core/qmath.py": "files of the package",
    "formats/profiles.py": "files of the package; those of users go through reading",
    "formats/targets.py": "a file of the package",
    "golden/chain.py": "lines of chains, within reading",
    "golden/programs.py": "a line that it has just made",
    "golden/store.py": "lines of digests, within reading",
    "golden/verify.py": "lines of results, within reading",
    "golden/rules.py": "a file of the package",
    "golden/regen.py": "archives that it writes or repairs",
    "partition/archive.py": "what torch may be given of a .pt2 file",
    "sweep/database.py": "columns that a sweep has written",
}
PARSING = ("json.load(", "json.loads(", "zipfile.ZipFile(", "np.load(")


def test_files_are_parsed_in_one_place() -> None:
    """A reader that parses on its own has its own idea of which errors damage brings."""
    package = Path(npz.__file__).parents[1]
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if any(call in path.read_text(encoding="utf-8") for call in PARSING)
    }
    assert found == set(PARSERS), "use refsim/formats/reading.py"


# --- files that are not there ---


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("mixed_ops.pte", "mixed_ops.io.npz", "mixed_ops.dump.zip", ".mixed_ops.npy"):
        (tmp_path / name).write_bytes(b"1")
    return tmp_path


def test_every_reader_says_the_same(folder: Path) -> None:
    said = set()
    for reader in (read_file, npz.read_npy, lambda path: npz.read_arrays(path, ("in",), [None])):
        with pytest.raises(FormatError) as caught:
            reader(folder / "mixed_op.io.npz")
        said.add(str(caught.value))
    where, near = folder / "mixed_op.io.npz", folder / "mixed_ops.io.npz"
    need = f"need a readable file; did you mean {near}?"
    assert said == {f"{where}: cannot be read; got no such file, {need}"}
    with pytest.raises(
        FormatError, match=f"not a dump; got no such file; did you mean {folder}/mixed_ops.dump.zip"
    ):
        archive(folder / "mixed_ops.dumps.zip", "a dump")


def test_what_is_there(folder: Path) -> None:
    (folder / "link").symlink_to("nowhere")
    said = {name: there(folder / name) for name in ("absent", ".", "link", "gone/x.pte", "a\0b")}
    assert said == {
        "absent": "no such file", ".": "a folder", "link": "a link to nothing",
        "gone/x.pte": f"no such folder as {folder}/gone", "a\0b": "no such file",
    }  # fmt: skip


def test_only_files_of_the_kind_are_meant(folder: Path) -> None:
    assert meant(folder / "mixed_ops.npz").endswith("mixed_ops.io.npz?")
    assert meant(folder / "mixed_ops.npz", ".pte").endswith("mixed_ops.pte?")
    assert meant(folder / "nothing_like_it") == meant(folder / "mixed_ops.pte") == meant("") == ""
    with pytest.raises(FormatError, match=f"got a folder, need a file of it, such as {folder}/mixed_ops.pte"):
        read_file(folder, suffix=".pte")
    np.save(folder / "a.npy", np.zeros(1))
    assert npz.read_npy(folder / "a.npy").shape == (1,)
