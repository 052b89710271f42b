"""Modules that are damaged, or that declare something else than a host gives them: refused with the reason."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from module_cases import ROOT, SPIRV, case_of, folder_with, opened

from refsim.core.errors import FormatError, LimitError, RefsimError
from refsim.exec.executor import OURS
from refsim.exec.model import load
from refsim_gpu.kompute import Device

# --- damaged modules, and modules with another interface -------------------------------------------------


def words_of(name: str) -> list[int]:
    raw = (SPIRV / f"{name}.spv").read_bytes()
    return list(struct.unpack(f"<{len(raw) // 4}I", raw))


def rows_of(words: list[int]) -> Iterator[tuple[int, int]]:
    at = 5
    while at < len(words):
        yield at, words[at] & 0xFFFF
        at += words[at] >> 16


def written(tmp_path: Path, name: str, words: list[int]) -> Path:
    folder = tmp_path / "changed"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.spv").write_bytes(struct.pack(f"<{len(words)}I", *words))
    return folder


def decorated(name: str, decoration: int, old: int, new: int) -> list[int]:
    """The module with another number in the decorations of this kind."""
    words = words_of(name)
    hits = [
        at for at, op in rows_of(words) if op == 71 and words[at + 2] == decoration and words[at + 3] == old
    ]
    assert hits
    for at in hits:
        words[at + 3] = new
    return words


BINDING, SPEC_ID = 33, 1


def refused(folder: Path, op: str) -> str:
    bound = case_of(op)
    with opened(folder) as executor, pytest.raises(RefsimError) as caught:
        executor.run_call(bound.call, bound.inputs)
    assert ".spv" in str(caught.value)
    return str(caught.value)


def test_a_binding_that_nobody_binds(device: Device, tmp_path: Path) -> None:
    folder = written(tmp_path, "q8ta_relu_buffer", decorated("q8ta_relu_buffer", BINDING, 3, 7))
    text = refused(folder, "q8ta_relu")
    assert "declares binding 7; the host binds 0 to 3" in text


def test_a_binding_of_another_kind(device: Device, tmp_path: Path) -> None:
    words = decorated("q8ta_relu_buffer", BINDING, 3, 8)
    for old, new in ((1, 3), (8, 1)):
        at = next(
            at for at, op in rows_of(words) if op == 71 and words[at + 2] == BINDING and words[at + 3] == old
        )
        words[at + 3] = new
    text = refused(written(tmp_path, "q8ta_relu_buffer", words), "q8ta_relu")
    assert "binding 1 (x) is a uniform block; the host binds a storage buffer" in text
    assert "binding 3 (meta:x) is a storage buffer; the host binds a uniform block" in text


def test_no_output(device: Device, tmp_path: Path) -> None:
    words = words_of("q8ta_relu_buffer")
    for at, op in rows_of(words):
        if op == 71 and words[at + 2] == BINDING and words[at + 3] in (0, 1):
            words[at + 3] = 1 - words[at + 3]
    text = refused(written(tmp_path, "q8ta_relu_buffer", words), "q8ta_relu")
    assert "cannot write to binding 0, where the host binds out" in text


def test_a_constant_that_nobody_sets(device: Device, tmp_path: Path) -> None:
    folder = written(tmp_path, "q8ta_relu_buffer", decorated("q8ta_relu_buffer", SPEC_ID, 5, 11))
    assert "specialization constants 11; the host's last is 5" in refused(folder, "q8ta_relu")


def test_more_push_words_than_there_are(device: Device, tmp_path: Path) -> None:
    folder = tmp_path / "swapped"
    folder.mkdir()
    shutil.copy(SPIRV / "q8ta_pixel_shuffle.spv", folder / "q8ta_clone.spv")
    text = refused(folder, "q8ta_clone")
    assert "push bytes" in text and "q8ta_clone.spv" in text


def test_another_kernel_under_the_name(device: Device, tmp_path: Path) -> None:
    folder = tmp_path / "swapped"
    folder.mkdir()
    shutil.copy(SPIRV / "q8ta_conv2d_float.spv", folder / "q8ta_add_buffer.spv")
    assert "q8ta_add_buffer.spv" in refused(folder, "q8ta_add")


def test_a_module_that_declares_less_runs(device: Device, tmp_path: Path) -> None:
    """Optimizers drop what nothing reads: here the specialization constants lose their ids."""
    words = words_of("q8ta_relu_buffer")
    kept = words[:5]
    for at, op in rows_of(words):
        if not (op == 71 and words[at + 2] == SPEC_ID and words[at + 3] == 5):
            kept += words[at : at + (words[at] >> 16)]
    bound = case_of("q8ta_relu")
    with opened(written(tmp_path, "q8ta_relu_buffer", kept)) as executor:
        executor.run_call(bound.call, bound.inputs)


@pytest.mark.parametrize("cut", [0, 3, 18, 20, 41, 400])
def test_a_file_that_was_cut_off(device: Device, tmp_path: Path, cut: int) -> None:
    folder = folder_with(tmp_path, "q8ta_relu_buffer")
    path = folder / "q8ta_relu_buffer.spv"
    path.write_bytes(path.read_bytes()[:cut])
    refused(folder, "q8ta_relu")


def test_files_that_are_no_modules(device: Device, tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "q8ta_clone")
    (folder / "q8ta_relu_buffer.spv").mkdir()
    os.mkfifo(folder / "q8ta_add_buffer.spv")
    with opened(folder) as executor:
        assert executor.source(case_of("q8ta_relu").call).whose == OURS
        with pytest.raises(FormatError, match="no regular file"):
            executor.dispatches(case_of("q8ta_add").call)
    with open(folder / "q8ta_relu.spv", "wb") as file:
        file.truncate(1 << 25)
    (folder / "q8ta_relu_buffer.spv").rmdir()
    (folder / "q8ta_relu.spv").rename(folder / "q8ta_relu_buffer.spv")
    with opened(folder) as executor, pytest.raises(LimitError, match="too large"):
        executor.dispatches(case_of("q8ta_relu").call)


def test_a_graph_is_checked_before_its_first_node_runs(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_with(tmp_path, "q8ta_quantize_buffer_float", "q8ta_dequantize_buffer_float")
    (folder / "q8ta_dequantize_buffer_float.spv").write_bytes(b"nothing of the kind")
    model = load(ROOT / "tests" / "data" / "models" / "linear_head.pte")
    inputs = [np.load(ROOT / "tests" / "data" / "models" / "linear_head.io.npz")["in0"]]
    with opened(folder) as executor:
        ran: list[str] = []
        monkeypatch.setattr(executor.pipelines, "run", lambda dispatch, _: ran.append(dispatch.shader))
        with pytest.raises(FormatError, match=r"q8ta_dequantize_buffer_float\.spv"):
            model.run(inputs, executor)
        assert not ran
