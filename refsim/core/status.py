"""The exit statuses of the command: those of cmp, one for what is missing, and what a shell reports for two signals.

docs/cli.md has the table.
"""

from __future__ import annotations

SAME, DIFFERENT, BAD_INPUT = 0, 1, 2
#: A device, or a package that only some verbs need, is missing or was lost.
UNAVAILABLE = 3
#: A program was lowered, and the runtime that is meant will not load it.
NOT_LOADED = 4
INTERRUPTED, PIPE_CLOSED = 130, 141
