"""Native kernels one at a time, each in a frame that has its name: a crash then tells which kernel it was.

A frame reads ``kernel of FILE: NAME``, as in `last_words`. Before and after each kernel the allocator is asked for
blocks of many sizes, so that it notices here what a kernel broke, and after it the guard bytes behind its scratch are
looked at. There are many of these, and around buffers between jobs too: what is written there breaks nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mutants import last_words
from refsim.core import doing
from refsim.exec.cpu import compiled, executor, thread_pool
from refsim.exec.cpu.thread_pool import JobList

_FOUND = re.compile(r"kernel of (?P<file>refsim/\S+\.py): (?P<name>[^\s:;,]+)")
#: Sizes of blocks that the allocator keeps in different lists.
_SIZES = tuple(1 << power for power in range(5, 20))
#: Guard bytes behind scratch, and around buffers between the jobs of a call.
_BEHIND = 1 << 22


def kernels_of(said: str) -> list[tuple[str, str]]:
    """(name, file) of each kernel that may have crashed or written outside, by what was said last."""
    return list(dict.fromkeys((found["name"], found["file"]) for found in _FOUND.finditer(said)))


def install() -> None:
    """From now on, in this process, every list of jobs runs so, on one thread."""
    files: dict[str, str] = {}
    link, run = compiled._link, JobList.run

    def linked(name: str, build: Callable[..., Any], variant: dict[str, Any]) -> int:
        module = build.__module__.replace(".", "/")
        files[name] = f"{module}.py"
        return link(name, build, variant)

    def stepped(jobs: JobList) -> None:
        for job in jobs.jobs:
            names = [compiled.name_of(part.kernel) for part in (job.parts or (job,))]
            told = "+".join(names)
            single = JobList([job], 1, None, jobs._scratch[:1])
            what = last_words.KERNEL.format(name=told, file=files.get(names[0], "?"))
            doing.during(what, _checked, run, single)
            single.check_scratch(what)

    compiled._link = linked
    thread_pool._GUARD_BYTES = _BEHIND
    setattr(executor, "FAR_WORDS", _BEHIND // 4)  # noqa: B010
    setattr(JobList, "run", stepped)  # noqa: B010


def _checked(run: Callable[[JobList], None], jobs: JobList) -> None:
    _ask_allocator()
    run(jobs)
    _ask_allocator()


def _ask_allocator() -> None:
    held = [np.empty(size, np.uint8) for size in _SIZES]
    del held


def beside(file: str, kernel_file: str) -> bool:
    """Whether a file writes a kernel of ``kernel_file``, or its arguments: `prepack.py` lies beside the kernel.

    So does `amx/tiles.py`, which writes what the kernel there calls.
    """
    mine, kernels = Path(file), Path(kernel_file)
    return mine == kernels or (mine.parent == kernels.parent and mine.name in ("prepack.py", "tiles.py"))
