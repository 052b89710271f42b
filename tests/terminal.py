"""A terminal for a process that is started, and what it shows in the end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import termios


def opened(columns: int) -> tuple[int, int]:
    """A terminal so wide: where its text is read, and where a process writes it."""
    controller, written = os.openpty()
    fcntl.ioctl(written, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    return controller, written


def shown(controller: int) -> str:
    """All that a terminal is given until nobody has it open."""
    text = b""
    with contextlib.suppress(OSError):  # the other side is closed
        while part := os.read(controller, 65536):
            text += part
    os.close(controller)
    return text.decode()
