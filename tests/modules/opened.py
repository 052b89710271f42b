"""Fixtures of tests that need a folder of modules and a device; a test file takes them with ``pytest_plugins``.

`gpu/validate.py` knows by that name which files open a device.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from needed import needs_device

from modules import build
from refsim.exec.executor import Executor
from refsim.exec.factory import executor_named
from refsim.modules import executors


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Executor]]:
    """A folder of right modules, and an executor of it that stays open; it reads what has changed.

    On lavapipe it has one thread. Some of the seeded bugs are races, and more threads would let them lose.
    """
    folder = tmp_path_factory.mktemp("modules") / "spirv"
    shutil.copytree(build.BINARIES, folder)
    with needs_device():
        executor = executor_named(f"spv:{folder}")
    with pytest.MonkeyPatch.context() as patch, executor:
        patch.setenv("LP_NUM_THREADS", "1")
        yield folder, executor


class Kept:
    """An executor that a verb can neither open nor close."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def begin_opening(self) -> None: ...

    def close(self) -> None: ...

    def anew(self, threads: int) -> None:
        """No further device is opened for a test."""


@pytest.fixture
def folder(opened: tuple[Path, Executor], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder, whose modules are right again afterwards. Plain names of it get the executor that is open."""
    path, executor = opened
    real = executors.of

    def modules(folder: object, *options: Any) -> object:
        plain = str(folder) == str(path) and not any(options)
        return Kept(executor) if plain else real(str(folder), *options)

    monkeypatch.setattr(executors, "of", modules)
    yield path
    shutil.rmtree(path)
    shutil.copytree(build.BINARIES, path)
