"""Recorded runs of ET-VK's own kernels (golden/upstream), repeated on any executor: does it write what they wrote?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from refsim.core.buffer import ByteKind
from refsim.core.counted import counted
from refsim.core.errors import RefsimError
from refsim.core.qmath import PROFILES
from refsim.exec.executor import Executor
from refsim.formats import recordings
from refsim.formats.recordings import RecordedDifferences, Recording
from refsim.golden.check import DIFFERENT, ERROR, REFUSED, Checked
from refsim.golden.judge import KNOWN_DEFECT, LEGAL, SAME, WRONG, judged
from refsim.golden.store import default_root
from refsim.ops.base.binding import bound_of
from refsim.ops.base.target import Target

DIFFERENCES = "differences.json"
OTHER_PADDING = 0x7B


def every(folder: Path | None = None) -> Iterator[Recording]:
    """All recordings, by operator and in name order; FormatError if there are none beside the package."""
    for path in sorted((folder or default_root() / "upstream").glob("*.zip")):
        yield from recordings.read(path)


def check(
    executor: Executor,
    folder: Path | None = None,
    only: Callable[[Recording], bool] = lambda recording: True,
    target: Target | None = None,
) -> Iterator[Checked]:
    """Repeat the recordings that ``only`` picks on an executor, one after another.

    ``same``: the bytes of the recorded device. ``legal``: those of another device, or of another profile. ``known``: a
    cause that differences.json lists. ``refused``: refsim does not take the call. A recording that was made twice, with
    another byte in the padding of its inputs, is repeated twice. ``target`` has the profile that the executor must
    follow: then nothing else is legal.
    """
    folder = folder or default_root() / "upstream"
    listed = RecordedDifferences.load(folder / DIFFERENCES)
    for recording in filter(only, every(folder)):
        cause, name = listed.cause(recording.id), recording.id
        yield Checked(name, executor.name, *_outcome(executor, recording, cause, target, 0))
        if recording.inpad7b is not None:
            name += f" with {OTHER_PADDING:#x} in the inputs' padding"
            yield Checked(name, executor.name, *_outcome(executor, recording, cause, target, OTHER_PADDING))


def _outcome(
    executor: Executor, recording: Recording, cause: str | None, target: Target | None, padding: int
) -> tuple[str, str]:
    """(Status, message) of one recording whose inputs' padding holds a byte; ``cause``: what differences.json says."""
    try:
        call, inputs = recording.call(target), recording.inputs()
        for buffer in inputs.values():
            buffer.raw[buffer.kinds() != ByteKind.VALUE] = padding
        case = bound_of(call, inputs)
    except RefsimError as error:
        return REFUSED, str(error)
    try:
        actual = executor.run_call(case.call, case.inputs)
    except RefsimError as error:
        return ERROR, str(error)
    theirs = recording.inpad7b if padding else recording.raw
    assert theirs is not None
    strict, apart = target is not None, recording.differences(actual, theirs, case.call)
    if not strict and not apart.size:
        return SAME, ""
    found = judged(case, actual, profiles=() if strict else PROFILES.values())
    if found.verdict == SAME:
        return (SAME, "") if cause is None else (KNOWN_DEFECT, f"as defined; the recording shows: {cause}")
    other = None if padding or strict else recording.h200
    if other is not None and not recording.differences(actual, other, case.call).size:
        return LEGAL, "as on an H200"
    if found.verdict != WRONG:
        return found.verdict, str(found)
    if not apart.size:
        return DIFFERENT, "the bytes of another profile"
    return DIFFERENT, f"{counted(apart.size, 'byte', 'differ')}, the first at byte {apart[0]}"
