"""Typed errors: each names the thing, the value found and what was allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from refsim.core import choices, status
from refsim.core.escape import escaped

#: Characters of each part of a message: what files hold can be of any length.
MOST_SHOWN = 1000
#: Characters of a line on stderr.
MOST_IN_LINE = 300


class RefsimError(Exception):
    """Base of every error that refsim raises on purpose.

    The message always reads ``<where>: <what>; got <got>, need <need>``; the parts stay available as
    attributes, so that a caller never has to parse the text. In the message they are escaped, so that no
    name out of a file can command a terminal, and cut where they are very long. ``exit_status`` is what the
    command line returns for it (`refsim.core.status`). ``hints`` are whole commands that may be meant; they are no
    part of the message, and the command line prints each on a line of its own, whole.
    """

    exit_status: ClassVar[int] = status.BAD_INPUT

    def __init__(
        self, where: str, what: str, *, got: object = None, need: object = None, hints: Sequence[str] = ()
    ) -> None:
        self.where = where
        self.what = what
        self.got = got
        self.need = need
        self.hints = tuple(hints)
        super().__init__(_joined(self._parts()))

    def line(self, most: int = MOST_IN_LINE) -> str:
        """The message in at most ``most`` characters: its longest parts are cut, a list after one of its names."""
        parts = self._parts()
        room = most - len(_joined(dict.fromkeys(parts, "")))
        return _joined(dict(zip(parts, choices.fitted(list(parts.values()), room), strict=True)))

    def _parts(self) -> dict[str, str]:
        named = {"where": self.where, "what": self.what, "got": self.got, "need": self.need}
        return {name: _shown(part) for name, part in named.items() if part is not None}

    def __reduce__(self) -> tuple[object, ...]:
        # keyword-only arguments do not survive the default pickling; workers send errors home, with their notes
        return (_made, (type(self), *self.args), dict(vars(self)))


def _joined(parts: dict[str, str]) -> str:
    detail = ", ".join(f"{name} {parts[name]}" for name in ("got", "need") if name in parts)
    return f"{parts['where']}: {parts['what']}" + (f"; {detail}" if detail else "")


def _shown(part: object) -> str:
    return escaped(choices.cut(str(part), MOST_SHOWN))


def _made(kind: type[RefsimError], *args: object) -> RefsimError:
    return kind.__new__(kind, *args)


class ParameterError(RefsimError):
    """A scalar argument of an operator (scale, zero point, stride, ...) is outside what is allowed."""


class ShapeError(RefsimError):
    """A tensor's shape is impossible, or does not fit the other arguments."""


class LayoutError(RefsimError):
    """A memory layout is unknown, or an operator does not take it."""


class RawBufferError(RefsimError):
    """A raw buffer's size or dtype does not match its description, or a guard byte changed."""


class OutputError(RefsimError):
    """A kernel ran, but not as it must.

    ``buffer`` is its output, a PackedBuffer, so that it can be compared; None where the output is not what was left.
    """

    buffer: Any = None


class GuardError(OutputError, RawBufferError):
    """A kernel wrote outside of its output, or of its working memory."""


class FormatError(RefsimError):
    """A file (.pte, delegate blob, case directory, sidecar) is not what it claims to be."""


class PackingError(OutputError, FormatError):
    """A module packs weights otherwise than refsim."""


class UnsupportedError(RefsimError):
    """A file is sound, but it does something that refsim has no way to do."""


class GraphError(RefsimError):
    """A graph is not executable: unknown value, missing constant, unsound memory sharing."""


class UnknownOperatorError(GraphError):
    """No executor and no bridge knows the operator."""


class LimitError(RefsimError):
    """A declared size exceeds a limit that protects memory or time."""


class IncompleteError(RefsimError):
    """A comparison found no difference, but did not compare everything, or compared another run."""


class MissingDependencyError(RefsimError):
    """An optional package is needed for this and is not installed."""

    exit_status: ClassVar[int] = status.UNAVAILABLE


class PluginError(RefsimError):
    """An executor of another package cannot be opened, failed, or gave something else than a buffer."""


class DeviceError(RefsimError):
    """A Vulkan device is missing, was lost, ran out of memory or cannot take a dispatch."""

    exit_status: ClassVar[int] = status.UNAVAILABLE
