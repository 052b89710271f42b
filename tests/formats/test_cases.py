"""Case directories and zip files: written whole, read back to the same call, refused when damaged."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from examples import UNARY

from refsim.core.errors import FormatError, RefsimError
from refsim.core.rng import Rng
from refsim.formats.cases import Files, add_to_zip, contents, read, read_folder, write_folder
from refsim.ops.base.binding import bind
from refsim.ops.base.registry import OPS


def made(op: str, seed: int = 3) -> tuple:
    bound = bind(OPS[op].sample(Rng(seed)))
    expected = bound.call.expected(bound.inputs)
    return bound, expected, contents(bound, expected)


@pytest.mark.parametrize("op", list(OPS))
def test_a_case_comes_back_from_a_folder_and_from_a_zip_file(op: str, tmp_path: Path) -> None:
    for seed in range(4):
        bound, expected, files = made(op, seed)
        folder = write_folder(tmp_path / f"case{seed}", files)
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            add_to_zip(archive, "x", files)
        with zipfile.ZipFile(tmp_path / "a.zip") as archive:
            for stored in (
                read_folder(folder),
                read_folder(folder / "case.json"),
                read(Files("a!x", archive=archive), "x"),
            ):
                assert stored.expected == expected
                assert stored.bound.call.params == bound.call.params
                assert stored.bound.call.expected(stored.bound.inputs) == expected
                for name, buffer in bound.inputs.items():
                    assert stored.bound.inputs[name] == buffer


def test_zip_files_are_the_same_bytes_whenever_they_are_made(tmp_path: Path) -> None:
    _, _, files = made("q8ta_add")
    for name in ("a.zip", "b.zip"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            add_to_zip(archive, "x", dict(reversed(files.items())))
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_a_folder_is_never_overwritten_and_never_half_there(tmp_path: Path) -> None:
    _, _, files = made("q8ta_add")
    (tmp_path / "x").mkdir()
    with pytest.raises(FormatError, match="already exists"):
        write_folder(tmp_path / "x", files)
    with pytest.raises(FormatError, match="cannot be written"):
        write_folder(tmp_path / "y", {**files, "x" * 300: b""})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x"]


DAMAGE = {
    "no schema": lambda info: info.pop("schema"),
    "other schema": lambda info: info.update(schema=2),
    "unknown operator": lambda info: info.update(op="q8ta_nonesuch"),
    "unknown parameter": lambda info: info["params"].update(beta=1),
    "a scale out of range": lambda info: info["params"].update(in_scale=0),
    "a missing input": lambda info: info["inputs"].clear(),
    "another layout": lambda info: info["inputs"][0].update(layout="PACKED_INT8_4W"),
    "an unknown layout": lambda info: info["output"].update(layout="4X"),
    "another output shape": lambda info: info["output"].update(shape=[1, 2, 3, 4]),
    "a huge shape": lambda info: info["inputs"][0].update(shape=[2**30, 2**30, 2**30, 2**30]),
    "a negative shape": lambda info: info["inputs"][0].update(shape=[1, -4, 3, 3]),
    "a path": lambda info: info["output"].update(file="../out.bin"),
    "another file": lambda info: info["output"].update(file=info["inputs"][0]["file"]),
    "another digest": lambda info: info["output"].update(sha256="0" * 64),
    "no such profile": lambda info: info.update(profile="amd"),
    "a list": lambda info: info.update(params=[]),
    "an object constant": lambda info: info["constants"][0].update(dtype="object"),
    "a huge constant": lambda info: info["constants"][0].update(shape=[2**31 - 1, 2**31 - 1]),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_case_json_is_refused_by_name(what: str, tmp_path: Path) -> None:
    _, _, files = made("q8ta_conv2d_pw")
    info = json.loads(files["case.json"])
    DAMAGE[what](info)
    folder = write_folder(tmp_path / "x", {**files, "case.json": json.dumps(info).encode()})
    with pytest.raises(RefsimError) as caught:
        read_folder(folder)
    assert str(folder) in str(caught.value)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"nonesuch/case\.json: is missing"):
        read_folder(tmp_path / "nonesuch")
    _, _, files = made(UNARY.name)
    del files["in_x.bin"]
    with pytest.raises(FormatError, match=r"in_x\.bin: is missing"):
        read_folder(write_folder(tmp_path / "x", files))
