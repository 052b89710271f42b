"""Modules that are damaged, or that declare something else than a host gives them: refused with the reason."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from exec.recorded import inputs as inputs_of
from module_cases import LINEAR_HEAD, SPIRV, case_of, folder_with, opened

from refsim.core.errors import FormatError, LimitError, RefsimError
from refsim.exec.executor import OURS
from refsim.exec.model import load
from refsim_gpu.kompute import Device

RELU, CLONE, ADD = "q8ta_relu_buffer", "q8ta_clone", "q8ta_add_buffer"
BINDING, SPEC_ID, DECORATE = 33, 1, 71
Words = list[int]


def words_of(name: str) -> Words:
    raw = (SPIRV / f"{name}.spv").read_bytes()
    return list(struct.unpack(f"<{len(raw) // 4}I", raw))


def rows_of(words: Words) -> Iterator[int]:
    """Where instructions begin."""
    at = 5
    while at < len(words):
        yield at
        at += words[at] >> 16


def decorated(decoration: int, **numbers: int) -> Callable[[], Words]:
    """The relu with other numbers in the decorations of a kind: ``_3=7``, a 7 instead of each 3."""
    other = {int(old[1:]): new for old, new in numbers.items()}

    def made() -> Words:
        words = words_of(RELU)
        for at in rows_of(words):
            if words[at] & 0xFFFF == DECORATE and words[at + 2] == decoration:
                words[at + 3] = other.get(words[at + 3], words[at + 3])
        assert words != words_of(RELU)
        return words

    return made


def folder_of(tmp_path: Path, name: str, words: Words) -> Path:
    folder = tmp_path / "changed"
    folder.mkdir()
    (folder / f"{name}.spv").write_bytes(struct.pack(f"<{len(words)}I", *words))
    return folder


def refused(folder: Path, op: str) -> str:
    bound = case_of(op)
    with opened(folder) as executor, pytest.raises(RefsimError) as caught:
        executor.run_call(bound.call, bound.inputs)
    return str(caught.value)


@pytest.mark.parametrize(
    ("op", "name", "words", "said"),
    [
        ("q8ta_relu", RELU, decorated(BINDING, _3=7), ["declares binding 7; the host binds 0 to 3"]),
        ("q8ta_relu", RELU, decorated(BINDING, _3=1, _1=3), [
            "binding 1 (x) is a uniform block; the host binds a storage buffer",
            "binding 3 (meta:x) is a storage buffer; the host binds a uniform block",
        ]),
        ("q8ta_relu", RELU, decorated(BINDING, _0=1, _1=0), ["cannot write to binding 0, where the host binds out"]),
        ("q8ta_relu", RELU, decorated(SPEC_ID, _5=11), ["specialization constants 11; the host's last is 5"]),
        ("q8ta_clone", CLONE, lambda: words_of("q8ta_pixel_shuffle"), ["push bytes"]),
        ("q8ta_add", ADD, lambda: words_of("q8ta_conv2d_float"), []),
    ],
    ids=["a binding that nobody binds", "other kinds", "no output", "a constant that nobody sets", "push words",
         "another kernel"],
)  # fmt: skip
def test_another_interface(
    device: Device, tmp_path: Path, op: str, name: str, words: Callable[[], Words], said: list[str]
) -> None:
    text = refused(folder_of(tmp_path, name, words()), op)
    assert all(part in text for part in (f"{name}.spv", *said)), text


def test_a_module_that_declares_less_runs(device: Device, tmp_path: Path) -> None:
    """Optimizers drop what nothing reads: here the specialization constants lose their ids."""
    words = words_of(RELU)
    kept = words[:5]
    for at in rows_of(words):
        if words[at] & 0xFFFF != DECORATE or words[at + 2 : at + 4] != [SPEC_ID, 5]:
            kept += words[at : at + (words[at] >> 16)]
    assert len(kept) < len(words)
    bound = case_of("q8ta_relu")
    with opened(folder_of(tmp_path, RELU, kept)) as executor:
        executor.run_call(bound.call, bound.inputs)


@pytest.mark.parametrize("cut", [0, 3, 18, 20, 41, 400])
def test_a_file_that_was_cut_off(device: Device, tmp_path: Path, cut: int) -> None:
    folder = folder_with(tmp_path, "q8ta_relu_buffer")
    path = folder / f"{RELU}.spv"
    path.write_bytes(path.read_bytes()[:cut])
    assert path.name in refused(folder, "q8ta_relu")


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
    model, inputs = load(LINEAR_HEAD), inputs_of(LINEAR_HEAD)
    with opened(folder) as executor:
        ran: list[str] = []
        monkeypatch.setattr(executor.pipelines, "run", lambda dispatch, _: ran.append(dispatch.shader))
        with pytest.raises(FormatError, match=r"q8ta_dequantize_buffer_float\.spv"):
            model.run(inputs, executor)
        assert not ran
