"""A changed shader that `refsim shaders --repair` searches, built with lines, and where it says that the change is."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from modules import build

from mutants.generated.change import Change
from mutants.tree import CHECKOUT
from refsim.core.errors import FormatError
from refsim.formats import kernels
from refsim.modules import repaired as verb
from refsim.modules.build import Repairing, Request, opened
from refsim.ops.base.conv import WindowVariant
from refsim.ops.base.registry import OPS

SHADERS = CHECKOUT / "shaders"
#: Cases of the corpus beside the recordings, as `refsim shaders` has them.
CASES = 48
#: What is said of a module that a host cannot call, where its source is known.
DECLARED = re.compile(r"declares binding \d+ \((?:\w+, )?(?P<line>[^()]+:\d+)\)")


@dataclass(frozen=True)
class Outcome:
    """What became of one bug; ``lines`` are those of its statement, ``others`` those of further repairs."""

    change: Change
    module: str
    level: str
    lines: tuple[str, ...]
    told: str
    place: str
    others: tuple[str, ...]
    tried: int
    seconds: float
    processor: float

    @property
    def repaired(self) -> bool:
        return bool(self.told)

    @property
    def named(self) -> bool:
        return self.place in self.lines

    @property
    def among(self) -> bool:
        """Whether a repair that is told is at the bug, the first or one beside it."""
        return any(place in self.lines for place in (self.place, *self.others))

    def __str__(self) -> str:
        state = ("repaired" if self.named else "repaired elsewhere") if self.repaired else "not repaired"
        told = f"; {self.place}: {self.told}" if self.told else ""
        took = f"{self.seconds:.1f} s ({self.processor:.1f} s of processor time)"
        return f"{state} in {took}, {self.tried} edits: {self.module} {self.level}, {self.change}{told}"


@dataclass(frozen=True)
class Target:
    """A kernel that gets bugs: one of ExecuTorch's interface, or one of refsim's own, which is ``launched`` as such.

    ``takes``: what must hold of a call, for a build of one window.
    """

    operator: str
    module: build.Module
    launched: bool = False
    takes: tuple[str, ...] = ()

    @classmethod
    def own(cls, operator: str, variant: str = "") -> Target:
        """The shader of refsim's own with this name, or a build of it for one window."""
        window = next((one for one in OPS[operator].variants if one.name == variant), None)
        if not isinstance(window, WindowVariant):
            return cls(operator, build.Module(operator, operator), True)
        defined = tuple(f"{name}={value}" for name, value in window.definitions.items())
        pairs = {"kernel_size": window.kernel, "stride": window.stride, "dilation": (1, 1)}
        sizes = [
            (f"{name}.{axis}", size)
            for name, pair in pairs.items()
            for axis, size in zip("hw", pair, strict=True)
        ]
        takes = tuple(f"{word} == {size}" for word, size in (*sizes, ("padding.w", window.pad_w)))
        return cls(operator, build.Module(operator, operator, defined), True, takes)

    @property
    def root(self) -> Path:
        return SHADERS if self.launched else build.SOURCES

    def sources(self) -> Iterator[str]:
        """The files below the root that the module is made of, but for those that are written by a program."""
        waiting, seen = [self.root / f"{self.module.source}.comp"], set[Path]()
        while waiting:
            path = waiting.pop()
            if path not in seen and path.parent.name != "push" and path.parent.parent.name != "push":
                seen.add(path)
                yield str(path.relative_to(self.root))
                named = re.findall(r'#include "([^"]+)"', path.read_text())
                waiting += [path.parent / name for name in named if (path.parent / name).is_file()]

    def folder(self, scratch: Path, code: bytes) -> Path:
        """A folder with this build of the module, among the right ones of its kind."""
        if self.launched:
            folder = scratch / "spirv"
            folder.mkdir()
            name = self.module.name
            table = f'[{name}]\nmodule = "{name}.spv"\nlaunch = "refsim"\ntakes = {json.dumps(self.takes)}\n'
            (folder / kernels.NAME).write_text(table)
        else:
            folder = Path(shutil.copytree(build.BINARIES, scratch / "spirv"))
        (folder / f"{self.module.name}.spv").write_bytes(code)
        return folder


def tried(target: Target, change: Change, level: str, seconds: float) -> Outcome | None:
    """What becomes of a bug; None if it does not compile, cannot be opened, is refused, or makes no byte wrong."""
    with suppress(FormatError):
        return _searched(target, change, level, seconds)
    return None


def _searched(target: Target, change: Change, level: str, seconds: float) -> Outcome | None:
    op, module = target.operator, target.module
    with tempfile.TemporaryDirectory() as scratch:
        glsl = Path(
            shutil.copytree(target.root, Path(scratch) / "glsl", ignore=shutil.ignore_patterns("*.spv"))
        )
        (glsl / change.file).write_text(change.changed)
        code = build.compiled(module, Path(scratch), (level, "-g"), glsl)
        folder = target.folder(Path(scratch), code)
        variant = "fallback" if "FALLBACK" in module.definitions else ""
        request = Request(str(folder), (op,), CASES, variant=variant, repair=Repairing(seconds))
        with opened(request) as shaders:
            outcome = shaders.verification.run([op])
            refused = [DECLARED.search(one.message) for one in outcome.failed if one.actual is None]
            if not outcome.wrong and not any(refused):
                return None
            begin, used = time.perf_counter(), _processor_time()
            searched = verb.repaired(shaders, outcome) or []
            took, used = time.perf_counter() - begin, _processor_time() - used
        found = [(str(one.line), one.edit.said) for each in searched for one in each.repairs]
        found += [(one["line"], one[0]) for one in refused if one]
        place, *others = [line.removeprefix(f"{glsl}/") for line, _ in found] or [""]
        told = found[0][1] if found else ""
        return Outcome(
            change,
            f"{'refsim ' * target.launched}{module.name}",
            level,
            _lines(change),
            told,
            place,
            tuple(others),
            sum(one.tried for one in searched),
            took,
            used,
        )


def _lines(change: Change) -> tuple[str, ...]:
    """The lines of the statement that a change is in."""
    begin = change.source.index(change.statement, max(0, change.begin - len(change.statement)))
    first = change.source.count("\n", 0, begin) + 1
    return tuple(f"{change.file}:{first + line}" for line in range(change.statement.count("\n") + 1))


def _processor_time() -> float:
    """Seconds of this process and of those that it waited for."""
    return sum(os.times()[:4])
