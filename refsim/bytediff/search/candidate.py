"""What a search tries: an edit of a kernel, or of what the kernels are launched with and read."""

from __future__ import annotations

from dataclasses import dataclass

from refsim.bytediff.search.device import DeviceEdit
from refsim.bytediff.search.schema import Entry, KernelEdit


@dataclass(frozen=True)
class Candidate:
    """An edit of the kernel of one step; with ``entry`` only where that place of the kernel leads to it.

    Or a ``device`` edit: the kernels are right, and launched with other words, or they read others. Both are a pair of
    edits; so are ``edit`` and ``also``, another one of the same kernel.
    """

    step: int
    edit: KernelEdit | None = None
    entry: Entry | None = None
    device: DeviceEdit | None = None
    also: KernelEdit | None = None

    @property
    def pair(self) -> bool:
        """Whether these are two edits."""
        return self.edit is not None and (self.also is not None or self.device is not None)

    @property
    def of_host(self) -> bool:
        """Whether a function of the host has the edit."""
        return self.device is not None and self.device.place is not None
