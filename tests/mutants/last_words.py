"""What a process was at when it died: the test, and the native kernels that ran or were compiled last.

Native code that crashes says nothing, nor does it say which of several kernels broke what crashes later. So both are
kept in a file that is mapped into memory: what was written stays there, whatever becomes of the process.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

#: The variable that says where the file is; without it nothing is kept.
FILE = "REFSIM_MUTANT_LAST_WORDS"
_BYTES = 4096
#: What is said of kernels, and how each is told; `one_by_one.kernels_of` finds them again.
RUNNING, RAN, COMPILED = "native kernels were running", "native kernels ran last", "was being compiled"
KERNEL = "kernel of {file}: {name}"

_kept: mmap.mmap | None = None
_test, _kernels = "", ""


def install() -> None:
    """From now on, in this process, they are kept."""
    global _kept
    where = os.environ.get(FILE)
    if not where:
        return
    Path(where).write_bytes(bytes(_BYTES))
    with open(where, "r+b") as file:
        _kept = mmap.mmap(file.fileno(), _BYTES)
    try:
        from refsim.exec.cpu import compiled  # of the copy: what it imports may be what was changed
        from refsim.exec.cpu.thread_pool import JobList
    except Exception:  # whoever needs it will say so
        return

    files: dict[str, str] = {}
    link, run = compiled._link, JobList.run

    def linked(name: str, build: Any, variant: dict[str, Any]) -> int:
        files[name] = f"{build.__module__.replace('.', '/')}.py"
        before = _kernels
        _keep(f"{COMPILED}: {KERNEL.format(file=files[name], name=name)}")
        address = link(name, build, variant)
        _keep(before)  # the runner is compiled when kernels are about to run
        return address

    def ran(jobs: JobList) -> None:
        names = [compiled.name_of(part.kernel) for job in jobs.jobs for part in (job.parts or (job,))]
        told = [KERNEL.format(file=files.get(name, "?"), name=name) for name in dict.fromkeys(names)]
        _keep(f"{RUNNING}: {', '.join(told)}")
        run(jobs)
        _keep(f"{RAN}: {', '.join(told)}")

    compiled._link = linked
    setattr(JobList, "run", ran)  # noqa: B010


def begin(test: str) -> None:
    """A test begins."""
    global _test
    _test = test
    _keep("")


def _keep(kernels: str) -> None:
    global _kernels
    _kernels = kernels
    if _kept is not None:
        _kept[:] = f"{_test}\n{kernels}"[:_BYTES].encode(errors="replace")[:_BYTES].ljust(_BYTES, b"\0")


def read(path: Path) -> tuple[str, str]:
    """(test, what is said of kernels) of a process that has ended; empty texts if it had not come so far."""
    if not path.exists():
        return "", ""
    test, _, kernels = path.read_bytes().rstrip(b"\0").decode(errors="replace").partition("\n")
    return test, kernels
