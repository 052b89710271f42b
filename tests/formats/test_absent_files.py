"""What is said of a file that is not there: one text for all readers, and the file that was probably meant."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from refsim.core.errors import FormatError
from refsim.formats import npz
from refsim.formats.file import meant, read_file, there
from refsim.formats.reading import archive


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("mixed_ops.pte", "mixed_ops.io.npz", "mixed_ops.dump.zip", ".mixed_ops.npy"):
        (tmp_path / name).write_bytes(b"1")
    return tmp_path


def test_every_reader_says_the_same(folder: Path) -> None:
    said = set()
    for read in (read_file, npz.read_npy, lambda path: npz.read_arrays(path, ("in",), [None])):
        with pytest.raises(FormatError) as caught:
            read(folder / "mixed_op.io.npz")
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
