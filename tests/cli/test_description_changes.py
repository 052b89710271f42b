"""refsim shaders --watch and the file that says how kernels are called: a change of it opens everything anew."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from refsim.core.errors import FormatError
from refsim.core.result import Part
from refsim.modules.build import Request
from refsim.modules.watch import EditedFile, watch


def test_a_change_is_one_when_the_bytes_have_settled(tmp_path: Path) -> None:
    file = tmp_path / "refsim.toml"
    held = EditedFile(str(tmp_path))
    assert not held.changed()
    file.write_text("[q8ta_add]")
    assert [held.changed() for _ in range(3)] == [False, True, False]  # it is there now
    file.write_text("")
    assert not held.changed()
    file.write_text("[q8ta_relu]")  # the rest of a save in two pieces
    assert [held.changed() for _ in range(3)] == [False, True, False]
    file.write_text("")
    assert not held.changed()
    file.write_text("[q8ta_relu]")  # the same as before
    assert [held.changed() for _ in range(3)] == [False, False, False]
    file.unlink()
    assert [held.changed() for _ in range(3)] == [False, True, False]
    assert not EditedFile(str(file)).changed()


def test_everything_is_opened_anew(tmp_path: Path) -> None:
    file = tmp_path / "refsim.toml"
    file.write_text("0")
    opened: list[str] = []

    def wait(seconds: float) -> frozenset[str]:
        if len(opened) == 3:
            raise KeyboardInterrupt
        file.write_text("mistake" if len(opened) == 1 else "2")
        return frozenset()

    @contextmanager
    def build():
        opened.append(file.read_text())
        if opened[-1] == "mistake":
            file.write_text("1")  # somebody mends it
            raise FormatError(str(file), "not TOML")
        yield SimpleNamespace(
            operators=[], path=str(tmp_path), rows=[], own={}, broken={}, unsure=set(), stages=tuple,
            profiles=(), suffix=".spv", device=SimpleNamespace(index=0, name="a GPU"),
            folder=SimpleNamespace(names=list, wait=wait, changed=frozenset, unsettled=frozenset()),
        )  # fmt: skip

    said: list[Part] = []
    verdicts = watch(build, Request(str(tmp_path), say=said.extend))
    with pytest.raises(StopIteration) as ended:
        while True:
            next(verdicts)
    assert ended.value.value == 0
    assert opened == ["0", "mistake", "1"] and any("not TOML" in str(part) for part in said)
