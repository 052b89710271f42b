"""A wrong call, run again: what makes it right, or other, says what no line of a kernel does.

An edit of a kernel gives the same bytes every time. So before a diff looks for one, the call runs again: as it was, on
one thread, in a fresh process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

from refsim.core.buffer import PackedBuffer
from refsim.core.errors import OutputError, PackingError, RefsimError
from refsim.exec.executor import Executor
from refsim.ops.base.binding import BoundCase

#: The cause where a module of the call's own folder packs weights otherwise than refsim.
PACKED = "weights packed otherwise"
#: How often a wrong call runs again as it was.
REPEATS = 2
#: In how many other ways it is computed; each compiles its kernels.
MOST_WAYS = 3

#: Says whether an output is as it must be.
Right = Callable[[PackedBuffer], bool]


@dataclass(frozen=True)
class Again:
    """What a wrong call gave when it ran again: ``distinct`` results in ``runs`` runs, the first one counted.

    ``alone``, ``fresh``: whether it was right on one thread instead of ``threads``, and in a process that had run
    nothing else; None where that was not tried. ``packed``: what was said of weights that were packed otherwise.
    ``ways``: a line that says which ways to compute it are right, where it is wrong in the same way each time.
    """

    distinct: int = 1
    runs: int = 1
    threads: int = 1
    alone: bool | None = None
    fresh: bool | None = None
    packed: str = ""
    ways: tuple[str, ...] = ()

    @property
    def told(self) -> tuple[str, str] | None:
        """What kind of bug that is, and what was seen; None if it is wrong in the same way each time."""
        return next(self._rules(), None)

    def _rules(self) -> Iterator[tuple[str, str]]:
        if self.packed:
            yield PACKED, self.packed
        if self.alone:
            yield (
                "threads",
                f"right on one thread, wrong on {self.threads}: look at what threads share, and who waits for whom",
            )
        if self.distinct > 1:
            yield (
                "other bytes each time",
                f"{self.distinct} distinct results in {self.runs} runs: look for a barrier that is missing, and for "
                "memory that is read before it is written",
            )
        if self.fresh:
            yield (
                "stale state",
                "right in a fresh process: look at what stays from an earlier call, such as buffers, constants, caches",
            )


def again(
    executor: Executor, bound: BoundCase, actual: PackedBuffer, right: Right, fresh: bool = True
) -> Again:
    """Run a call again that gave ``actual``. Without ``fresh`` in this process alone: it has run nothing else yet."""
    seen, runs = {actual.raw.tobytes()}, 1
    for _ in range(REPEATS):
        result, error = ran(executor, bound)
        if isinstance(error, PackingError):
            return Again(packed=str(error))
        if result is None:
            break
        seen.add(result.raw.tobytes())
        runs += 1
    found = Again(len(seen), runs, executor.threads)
    if executor.threads > 1:
        found = replace(found, alone=_is_right(executor.anew(1), bound, right))
    elif fresh and len(seen) == 1:
        found = replace(found, fresh=_is_right(executor.anew(1), bound, right))
    if found.told is None:
        with suppress(Exception):  # what writes another kernel may be wrong as well, and raise anything
            found = replace(found, ways=tuple(_ways(executor, bound, right)))
    return found


def _ways(executor: Executor, bound: BoundCase, right: Right) -> Iterator[str]:
    """Which of the ways in which an executor may compute a call are right, where the one that it takes is wrong."""
    ways = list(islice(executor.alternatives(bound.call), 1 + MOST_WAYS))
    tried = {name: _is_right(other, bound, right) for name, other in ways[1:]}
    if True in tried.values():
        said = (
            f"{verdict} by {' and '.join(names)}"
            for verdict, of in (("right", True), ("wrong as well", False))
            if (names := [name for name, is_right in tried.items() if is_right is of])
        )
        yield f"computed by {ways[0][0]}; {', '.join(said)}"


def _is_right(executor: Executor | None, bound: BoundCase, right: Right) -> bool | None:
    """Whether another executor gives the right bytes; None if there is none, or if it does not run the call."""
    result = None if executor is None else ran(executor, bound)[0]
    return None if result is None else right(result)


def ran(executor: Executor, bound: BoundCase) -> tuple[PackedBuffer | None, RefsimError | None]:
    """The output, if there is one, and the error, if there was one."""
    try:
        return executor.run_call(bound.call, bound.inputs), None
    except OutputError as error:
        return error.buffer if isinstance(error.buffer, PackedBuffer) else None, error
    except RefsimError as error:
        return None, error
