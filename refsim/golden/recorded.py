"""Recorded runs of ET-VK's own kernels (golden/upstream), repeated on any executor: does it write what they wrote?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.core.counted import counted
from refsim.core.errors import RefsimError
from refsim.core.qmath import PROFILES
from refsim.exec.executor import Executor
from refsim.formats import recordings
from refsim.formats.recordings import RecordedDifferences, Recording
from refsim.golden.check import ACCEPTED, ERROR, REFUSED
from refsim.golden.judge import KNOWN_DEFECT, LEGAL, SAME, WRONG, judged
from refsim.golden.store import default_root
from refsim.ops.base.binding import BoundCase, bound_of
from refsim.ops.base.target import Target

DIFFERENCES = "differences.json"
OTHER_PADDING = 0x7B


@dataclass(frozen=True)
class RecordedOutcome:
    """How one recording came out on an executor.

    ``same``: the bytes of the recorded device. ``legal``: those of another device, or of another profile. ``known``: a
    cause that differences.json lists. ``refused``: refsim does not take the call, so that there is no ``bound``.
    ``note`` says which cause, or what went wrong. ``padding`` is the byte in the padding of the inputs.
    """

    recording: Recording
    verdict: str
    note: str = ""
    bound: BoundCase | None = None
    actual: PackedBuffer | None = None
    padding: int = 0

    @property
    def accepted(self) -> bool:
        return self.verdict in ACCEPTED

    @property
    def expected(self) -> PackedBuffer:
        """The buffer as the device left it."""
        assert self.bound is not None
        out = self.bound.call.out
        raw = self.recording.inpad7b if self.padding else self.recording.raw
        assert raw is not None
        return PackedBuffer.from_raw(raw[: out.nbytes], out.shape, out.layout)

    def __str__(self) -> str:
        padding = f" with {self.padding:#x} in the inputs' padding" if self.padding else ""
        return f"{self.recording.id}{padding}: {self.verdict}" + (f", {self.note}" if self.note else "")


def default_folder() -> Path:
    """The recordings beside the package; FormatError if there are none."""
    return default_root() / "upstream"


def every(folder: Path | None = None) -> Iterator[Recording]:
    """All recordings, by operator and in name order."""
    for path in sorted((folder or default_folder()).glob("*.zip")):
        yield from recordings.read(path)


def bound(recording: Recording, target: Target | None = None, padding: int = 0) -> BoundCase:
    """The recorded call with its inputs, whose padding holds a byte; raises what `OpSpec.bind` raises."""
    call, inputs = recording.call(target), recording.inputs()
    for buffer in inputs.values():
        buffer.raw[buffer.kinds() != ByteKind.VALUE] = padding
    return bound_of(call, inputs)


def check(
    executor: Executor,
    folder: Path | None = None,
    only: Callable[[Recording], bool] = lambda recording: True,
    target: Target | None = None,
) -> Iterator[RecordedOutcome]:
    """Repeat the recordings that ``only`` picks on an executor, one after another.

    A recording that was made twice, with another byte in the padding of its inputs, is repeated twice. ``target`` has
    the profile that the executor must follow: then nothing else is legal.
    """
    folder = folder or default_folder()
    listed = RecordedDifferences.load(folder / DIFFERENCES)
    for recording in filter(only, every(folder)):
        cause = listed.cause(recording.id)
        yield outcome(executor, recording, cause, target)
        if recording.inpad7b is not None:
            yield outcome(executor, recording, cause, target, OTHER_PADDING)


def outcome(
    executor: Executor,
    recording: Recording,
    cause: str | None = None,
    target: Target | None = None,
    padding: int = 0,
) -> RecordedOutcome:
    """Repeat one recording. ``cause`` is what differences.json says of it."""
    try:
        case = bound(recording, target, padding)
    except RefsimError as error:
        return RecordedOutcome(recording, REFUSED, str(error))
    try:
        actual = executor.run_call(case.call, case.inputs)
    except RefsimError as error:
        return RecordedOutcome(recording, ERROR, str(error), case)
    verdict, note = _verdict(recording, case, actual, cause, target is not None, padding)
    return RecordedOutcome(recording, verdict, note, case, actual, padding)


def _verdict(
    recording: Recording,
    case: BoundCase,
    actual: PackedBuffer,
    cause: str | None,
    strict: bool,
    padding: int,
) -> tuple[str, str]:
    theirs = recording.inpad7b if padding else recording.raw
    others = {} if padding or recording.h200 is None else {"an H200": recording.h200}
    assert theirs is not None
    if not strict and not recording.differences(actual, theirs, case.call).size:
        return SAME, ""
    found = judged(case, actual, profiles=() if strict else PROFILES.values())
    if found.verdict == SAME:
        return (SAME, "") if cause is None else (KNOWN_DEFECT, f"as defined; the recording shows: {cause}")
    for device, raw in others.items():
        if not strict and not recording.differences(actual, raw, case.call).size:
            return LEGAL, f"as on {device}"
    if found.verdict != WRONG:
        return found.verdict, str(found)
    apart = recording.differences(actual, theirs, case.call)
    if not apart.size:
        return WRONG, "the bytes of another profile"
    return WRONG, f"{counted(apart.size, 'byte', 'differ')}, the first at byte {apart[0]}"


def counts(outcomes: list[RecordedOutcome]) -> dict[str, int]:
    """Verdict -> how many."""
    names = [row.verdict for row in outcomes]
    return {name: names.count(name) for name in dict.fromkeys(names)}
