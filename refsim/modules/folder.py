"""A folder of modules, SPIR-V or WGSL, that somebody is building: which files it holds, and which have changed.

A build often writes a file again with the same bytes, or writes it in several pieces. Neither is a change: only other
bytes are, and only once they are a whole module. A file that stays broken is a change after a while, and whoever uses
it says what is wrong with it.
"""

from __future__ import annotations

import contextlib
import filecmp
import hashlib
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from refsim.core.errors import RefsimError
from refsim.formats import kernels, wgsl
from refsim.formats.module_folder import SUFFIX, no_folder
from refsim.spirv.module import MAX_BYTES, Module

POLL_S = 0.05
#: Where upstream's build keeps a copy of each module, in the folder of the modules.
CACHE = "shader_cache"
#: How long a file may be broken, or be away, while it is being written.
PATIENCE_S = 1.0

_Stamp = tuple[int, int, int, int]


@dataclass(frozen=True)
class ModuleKind:
    """One kind of modules: how their files end, how they are listed by name, and whether bytes are a whole one."""

    suffix: str
    listed: Callable[[Path], Iterator[tuple[str, Path]]]
    whole: Callable[[bytes], bool]


@dataclass(frozen=True)
class Seen:
    """A file at one moment: the digest of its bytes (empty if there is no file), and whether it is a whole module."""

    digest: str
    whole: bool


class Folder:
    """The modules of a folder, by name without ``.spv``. FormatError for a folder that cannot be read.

    Only files with one of the names in ``watched`` are read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        watched: Collection[str],
        kind: ModuleKind | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.path, self.watched, self.kind = Path(path), frozenset(watched), kind or SPIRV
        self._files: dict[str, Path] = {}
        self._clock, self._sleep = clock, sleep
        self._stamps = self._listed()
        self._known = {name: self._look(name) for name in self.watched & self._stamps.keys()}
        self._broken: dict[str, float] = {}

    def names(self) -> list[str]:
        """The modules that are there, watched or not."""
        return sorted(self._stamps)

    def compiled(self, name: str) -> int:
        """When a module was compiled, in ns of the system's clock.

        Upstream's build copies what has not changed from `CACHE`, where it lies since it was compiled.
        """
        here = self.file(name)
        there = self.path / CACHE / here.name
        with contextlib.suppress(OSError):
            if filecmp.cmp(here, there, shallow=False):
                return there.stat().st_mtime_ns
        return self._stamps[name][0]

    def file(self, name: str) -> Path:
        """The file of a module."""
        return self._files.get(name, self.path / f"{name}{self.kind.suffix}")

    @property
    def unsettled(self) -> frozenset[str]:
        """The modules that somebody seems to be writing."""
        return frozenset(self._broken)

    def changed(self) -> frozenset[str]:
        """The modules that have changed since this was asked last; does not wait."""
        now = self._listed()
        touched = {name for name in self.watched if now.get(name) != self._stamps.get(name)}
        found = {name for name in {*touched, *self._broken} if self._settled(name)}
        self._stamps = now
        return frozenset(found)

    def wait(self, seconds: float | None = None) -> frozenset[str]:
        """The modules that change next; none if ``seconds`` pass before."""
        end = None if seconds is None else self._clock() + seconds
        while not (found := self.changed()):
            if end is not None and self._clock() >= end:
                break
            self._sleep(POLL_S)
        return found

    def _settled(self, name: str) -> bool:
        """Whether a file that was touched holds other bytes, and does not look as if more of them were to come."""
        seen = self._look(name)
        if not seen.whole:
            since = self._broken.setdefault(name, self._clock())
            if self._clock() - since < PATIENCE_S:
                return False
        self._broken.pop(name, None)
        before = self._known.get(name)
        self._known[name] = seen
        return before is None or before.digest != seen.digest

    def _look(self, name: str) -> Seen:
        try:
            with open(self.file(name), "rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError:
            return Seen("", False)
        return Seen(hashlib.sha256(data).hexdigest(), self.kind.whole(data))

    def _listed(self) -> dict[str, _Stamp]:
        found = {}
        self._files = dict(self.kind.listed(self.path))
        for name, path in self._files.items():
            try:
                at = path.stat()
            except OSError:  # gone since it was listed, or a link that leads nowhere
                continue
            if stat.S_ISREG(at.st_mode):
                found[name] = (at.st_mtime_ns, at.st_ctime_ns, at.st_size, at.st_ino)
        return found


def _modules(folder: Path) -> Iterator[tuple[str, Path]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(SUFFIX) and not entry.name.startswith("."):
                    yield entry.name.removesuffix(SUFFIX), folder / entry.name
    except OSError as error:
        raise no_folder(folder) from error


def whole(data: bytes) -> bool:
    """Whether bytes are a SPIR-V module to its end: what is cut off has no function, or one without an end."""
    try:
        return bool(Module.parse(data, "").functions)
    except RefsimError:
        return False


def _whole_wgsl(data: bytes) -> bool:
    try:
        wgsl.parse(data, "")
    except RefsimError:
        return False
    return True


SPIRV = ModuleKind(SUFFIX, _modules, whole)
WGSL = ModuleKind(wgsl.SUFFIX, lambda folder: iter(wgsl.sources(folder).items()), _whole_wgsl)


class EditedFile:
    """The file ``refsim.toml`` of a folder of modules, or such a file itself, as somebody edits it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._known = self._last = self._look()

    def changed(self) -> bool:
        """Whether it holds other bytes than when this was true last, or is new or gone; does not wait.

        Bytes count once they are found twice: an editor may write them in several pieces.
        """
        before, self._last = self._last, self._look()
        if self._last == self._known or self._last != before:
            return False
        self._known = self._last
        return True

    def _look(self) -> bytes | None:
        _, file = kernels.find(self.path)
        if file is None:
            return None
        try:
            with open(file, "rb") as opened:
                return opened.read(kernels.MAX_BYTES + 1)
        except OSError:  # somebody replaces it
            return None
