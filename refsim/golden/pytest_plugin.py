"""A pytest plugin for projects that have kernels of their own: ``packed_golden`` compares raw buffers, byte by byte.

The golden bytes are stored beside the test in ``packed_golden/TESTFILE/TEST.bin``, with a sidecar, or come from a case.
Only ``--packed-golden-regen REASON`` writes them.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec
from urllib.parse import quote

import pytest

from refsim.core.counted import counted

if TYPE_CHECKING:  # what has no such tests pays for no imports
    import numpy as np

    from refsim.bytediff import Report
    from refsim.core.buffer import PackedBuffer
    from refsim.core.layout import Layout
    from refsim.exec.executor import Executor
    from refsim.formats.cases import Stored

    Buffer = bytes | np.ndarray | PackedBuffer | str | os.PathLike[str]

OPTION = "--packed-golden-regen"
FOLDER, CHANGELOG = "packed_golden", "CHANGELOG.md"
MOST_SHOWN = 10
_SAFE = "[]=,+@"  # kept in file names; what else a test's name may hold is escaped
_WRITTEN: pytest.StashKey[list[str]] = pytest.StashKey()
_EXECUTORS: pytest.StashKey[dict[str, Executor]] = pytest.StashKey()
_P = ParamSpec("_P")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("refsim").addoption(
        OPTION,
        metavar="REASON",
        help="Write the buffers that packed_golden compares with, and note the reason.",
    )


def pytest_configure(config: pytest.Config) -> None:
    reason = config.getoption(OPTION)
    if reason is not None and not reason.strip():
        raise pytest.UsageError(f"{OPTION}: needs a reason")
    config.stash[_WRITTEN] = []
    config.stash[_EXECUTORS] = {}


@pytest.fixture
def packed_golden(request: pytest.FixtureRequest) -> PackedGolden:
    """Compare raw buffers of packed tensors with golden ones: `PackedGolden`."""
    return PackedGolden(request)


def _brief(method: Callable[_P, None]) -> Callable[_P, None]:
    """The method, with typed errors that show the line of the test and no sources of refsim."""

    @wraps(method)
    def shown(*args: _P.args, **kwargs: _P.kwargs) -> None:
        __tracebackhide__ = True
        from refsim.core.errors import RefsimError

        try:
            method(*args, **kwargs)
        except RefsimError as error:
            raise error.with_traceback(None) from None

    return shown


class PackedGolden:
    """The golden buffers of one test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._config = request.config
        test = request.node.nodeid.partition("::")[2].replace("::", ".")
        self._folder = request.path.parent / FOLDER / request.path.stem
        self._test = quote(test, safe=_SAFE)
        self._used: set[str] = set()

    @_brief
    def check(
        self,
        buffer: Buffer,
        *,
        layout: Layout | str | None = None,
        shape: Sequence[int] | None = None,
        name: str = "",
        case: str | None = None,
        profile: str | os.PathLike[str] | None = None,
    ) -> None:
        """Fail the test unless ``buffer`` has the golden bytes; the failure says which differ, where and why.

        ``buffer`` is the bytes as they lie in memory, or a file that holds them. ``layout`` and ``shape`` (NCHW) are
        those of the tensor. ``name`` distinguishes the buffers of a test that checks several.

        With ``case`` (a case directory, ``ZIPFILE!NAME`` or ``OPERATOR/NUMBER``, as for `refsim replay`) nothing is
        stored: the bytes must be those that the case's operator writes. Padding that the operator does not define is
        not compared then, and ``profile`` names the numerics that the device may have, or a file that `refsim probe`
        saved. ``layout`` without a shape is that of ``buffer`` if it is another than the case's, such as ``NC4HW4``: a
        name, an order of dims or a ``.toml``. Raises what `refsim.diff` raises if the bytes do not fit the tensor.
        """
        __tracebackhide__ = True
        from refsim.golden.named import open_case

        self._check(buffer, layout, shape, name, None if case is None else open_case(case), profile)

    def _check(
        self,
        buffer: Buffer,
        layout: Layout | str | None,
        shape: Sequence[int] | None,
        name: str,
        stored: Stored | None,
        profile: str | os.PathLike[str] | None,
    ) -> None:
        """As `check`, with a case that is open."""
        __tracebackhide__ = True
        from refsim.bytediff import diff
        from refsim.formats import layout_file, profiles

        layout = layout_file.named(layout) if isinstance(layout, str) else layout
        if stored is not None:
            expected, call, where = stored.expected, stored.bound, stored.name
        else:
            path = self._path(name)
            actual = _buffer(buffer, layout, shape)
            if self._config.getoption(OPTION) is not None:
                self._write(path, actual)
                return
            expected, call, where = self._golden(path, actual), None, str(self._shown(path))
            layout, shape = actual.desc.layout, actual.desc.shape
        report = diff(
            expected, _raw(buffer), layout, shape,
            call=call, profile=None if profile is None else profiles.profile(profile),
            device=stored is not None, limit=MOST_SHOWN, title=where, actual_layout=layout if shape is None else None,
        )  # fmt: skip
        self._judge(report, "--actual FILE")

    def _judge(self, report: Report, source: str) -> None:
        """Fail if a report says so; ``source`` is where the buffer is from, as `refsim replay` has it."""
        __tracebackhide__ = True
        if not report.same:
            from refsim.golden.apart import apart

            telling = apart(report)
            lines = [] if telling is None else telling.lines(f"refsim replay {{case}} {source}")
            pytest.fail("\n".join((str(report), *lines)), pytrace=False)

    @_brief
    def check_kernel(
        self, case: str, executor: str = "cpu", *, profile: str | os.PathLike[str] | None = None
    ) -> None:
        """Run a case on an executor, such as ``spv:DIR`` with your own modules, and `check` what it writes.

        The executor stays open for the tests that follow. A test passes, with a warning, if every byte is that of a
        known defect of upstream's kernel. It fails if the executor has no kernel of yours for the case. Raises what the
        executor raises.
        """
        from refsim.exec.executor import YOURS
        from refsim.exec.factory import executor_named
        from refsim.formats import profiles
        from refsim.golden.check import asked_of, diff_on
        from refsim.golden.judge import KNOWN_DEFECT, judged
        from refsim.golden.named import open_case

        stored, opened = open_case(case), self._config.stash[_EXECUTORS]
        if executor not in opened:
            opened[executor] = executor_named(executor)
        runner = opened[executor]
        bound, expected = asked_of(runner, stored.bound, stored.expected)
        source = runner.source(bound.call)
        if runner.foreign and source.whose != YOURS:
            pytest.fail(
                f"{stored.name} on {executor}: no kernel of yours runs it: {source.why}", pytrace=False
            )
        actual = runner.run_call(bound.call, bound.inputs)
        if runner.foreign:
            found = judged(bound, actual, defects=source.forgiven)
            if found.verdict == KNOWN_DEFECT:
                warnings.warn(f"{stored.name} on {executor}: {found}", stacklevel=3)
                return
        allowed = None if profile is None else profiles.profile(profile)
        report = diff_on(
            runner, bound, expected, actual, profile=allowed, device=True, limit=MOST_SHOWN, title=stored.name
        )  # fmt: skip
        self._judge(report, f"-x {executor}")

    def _path(self, name: str) -> Path:
        __tracebackhide__ = True
        path = self._folder / (self._test + (f".{quote(name, safe=_SAFE)}" if name else "") + ".bin")
        if path.name in self._used:
            pytest.fail(
                f"packed_golden: a second buffer of this test without a name of its own; got {name!r}"
            )
        self._used.add(path.name)
        return path

    def _shown(self, path: Path) -> Path:
        root = self._config.rootpath
        return path.relative_to(root) if path.is_relative_to(root) else path

    def _golden(self, path: Path, actual: PackedBuffer) -> PackedBuffer:
        """The stored buffer; the test fails if there is none, or one of another tensor."""
        from refsim.core.buffer import PackedBuffer, naming
        from refsim.core.folder_write import current
        from refsim.core.tensor import TensorDesc
        from refsim.formats.dumps import read_sidecar

        path = current(path.parent, path.name)
        if not path.is_file():
            pytest.fail(
                f"{self._shown(path)}: no golden buffer yet; write it with {OPTION} REASON", pytrace=False
            )
        entry = read_sidecar(path.with_suffix(".json"))
        stored = None if entry.layout is None else TensorDesc(entry.shape, entry.layout)
        if stored is None or stored != actual.desc:
            pytest.fail(f"{self._shown(path)}: is {stored}, the test has {actual.desc}", pytrace=False)
        with naming(str(self._shown(path))):
            return PackedBuffer.from_raw(path.read_bytes(), entry.shape, stored.layout)

    def _write(self, path: Path, actual: PackedBuffer) -> None:
        """Store the bytes. What changed is printed at the end of the run, and recorded with the reason."""
        from refsim.core.folder_write import writing
        from refsim.formats import dumps

        old = path.read_bytes() if path.is_file() else None
        new = actual.raw.tobytes()
        if old is not None and len(old) == len(new):
            changed = sum(a != b for a, b in zip(old, new, strict=True))
            what = f"{changed} of {counted(len(new), 'byte')} changed"
        else:
            changed, what = (
                len(new),
                f"{counted(len(new), 'byte')}, {'new' if old is None else f'{len(old)} before'}",
            )
        with writing(path.parent, wait=True) as writer:  # tests may run in several processes
            dumps.write(writer, dumps.sidecar(path.stem, actual), actual)
        if changed:
            shown = path.relative_to(self._folder.parent)
            self._config.stash[_WRITTEN].append(f"{self._shown(path)}: {what}")
            with open(self._folder.parent / CHANGELOG, "a", encoding="utf-8") as log:
                print(f"- {shown}: {what}. {' '.join(self._config.getoption(OPTION).split())}", file=log)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    written = config.stash[_WRITTEN]
    if config.getoption(OPTION) is not None:
        terminalreporter.section("packed golden buffers")
        for row in written or ["nothing changed"]:
            terminalreporter.line(row)


def _raw(buffer: Buffer) -> bytes | np.ndarray | PackedBuffer:
    """The buffer as bytes."""
    if isinstance(buffer, (str, os.PathLike)):
        from refsim.formats.file import read_file

        return bytes(read_file(buffer))
    return buffer


def _buffer(buffer: Buffer, layout: Layout | str | None, shape: Sequence[int] | None) -> PackedBuffer:
    """The buffer as a tensor; the test fails if neither it nor the buffer gives layout and shape."""
    __tracebackhide__ = True
    from refsim.core.buffer import PackedBuffer

    raw = _raw(buffer)
    if isinstance(raw, PackedBuffer):
        return raw
    if layout is None or shape is None:
        raise TypeError("packed_golden.check: raw bytes need layout= and shape=")
    return PackedBuffer.from_raw(raw, tuple(shape), layout)
