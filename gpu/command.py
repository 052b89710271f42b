"""How the commands of this package end: an error that refsim names is a line on stderr, and its exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from refsim.core.errors import RefsimError

P = ParamSpec("P")


def command(name: str) -> Callable[[Callable[P, int]], Callable[P, int]]:
    """For a command's ``main``, which returns its exit status."""

    def ended(main: Callable[P, int]) -> Callable[P, int]:
        @wraps(main)
        def run(*args: P.args, **kwargs: P.kwargs) -> int:
            try:
                return main(*args, **kwargs)
            except RefsimError as error:
                print(f"{name}: {error}", file=sys.stderr)
                return error.exit_status

        return run

    return ended
