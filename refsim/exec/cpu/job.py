"""Job: one native kernel with its argument block, split into tasks that may run at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from refsim.core.buffer import surrounded
from refsim.core.errors import ParameterError
from refsim.exec.cpu import compiled
from refsim.exec.cpu.args import ArgLayout
from refsim.exec.cpu.ir import ModuleText, Value

#: Bytes of a line of the caches. Parts of a scratch begin at one, so that no vector lies across two.
LINE_BYTES = 64
#: Larger constants are not copied.
SURROUNDED_BYTES = 1 << 20


def next_line(place: int) -> int:
    """The first byte, at ``place`` or behind it, that begins a line of the caches."""
    return -(-place // LINE_BYTES) * LINE_BYTES


class Scratch:
    """The parts of a thread's working memory, one behind the other. ``at``: where each begins, as ``at_NAME``."""

    def __init__(self, nbytes: int = 0) -> None:
        """Bytes of the first part, which has no name."""
        self.nbytes = nbytes
        self.at: dict[str, int] = {}

    def part(self, name: str, nbytes: int, at_line: bool = True) -> None:
        """Add a part, at the beginning of a line of the caches."""
        begin = self.at[f"at_{name}"] = next_line(self.nbytes) if at_line else self.nbytes
        self.nbytes = begin + nbytes


@dataclass(frozen=True)
class Relocation:
    """A word of an argument block that receives the address of a buffer when the buffers are known."""

    block: np.ndarray
    word: int
    buffer: str


@dataclass(frozen=True)
class Job:
    """One kernel with its arguments: ``kernel`` is an entry point, ``block`` the argument block (int64).

    Tasks 0 to ``tasks`` - 1 may run in any order and at the same time; each writes bytes of its own. ``scratch``: bytes
    of working memory that one thread needs. ``relocations``: where addresses of buffers go; ``owned``: arrays that
    argument blocks point into, which live as long as the job; ``temps``: buffers between the jobs of a call, bytes by
    name. ``parts``: the jobs that this one combines, see `combine`. ``exact``: buffers of which nothing but their own
    bytes is read, so that they may be anyone's memory; others are read a little beyond their end.
    """

    name: str
    kernel: int
    block: np.ndarray
    tasks: int
    scratch: int
    relocations: tuple[Relocation, ...]
    owned: tuple[np.ndarray, ...] = ()
    temps: tuple[tuple[str, int], ...] = ()
    parts: tuple[Job, ...] = ()
    exact: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """ParameterError if a number cannot be one: told here, where it was made, and not where it is used."""
        whole = {
            "tasks": self.tasks,
            "scratch": self.scratch,
            **{f"buffer {n}": size for n, size in self.temps},
        }
        for what, number in whole.items():
            if not isinstance(number, int | np.integer) or number < 0:
                raise ParameterError(f"job {self.name}", f"{what} is no count", got=number, need="0 or more")
        if not (isinstance(self.name, str) and isinstance(self.kernel, int)):
            raise ParameterError("job", "no name and entry point", got=f"{self.name!r} and {self.kernel!r}")
        if not isinstance(self.block, np.ndarray) or self.block.dtype != np.int64:
            raise ParameterError(f"job {self.name}", "no argument block of 64-bit words", got=self.block)

    @property
    def variant(self) -> str:
        """The kernel's name and what it is specialized for; of all parts, if there are some."""
        return " + ".join(part.variant for part in self.parts) or compiled.name_of(self.kernel)

    @property
    def kernels(self) -> tuple[int, ...]:
        """The entry points of its kernels: of all parts, if there are some."""
        return tuple(part.kernel for part in self.parts) or (self.kernel,)

    def renamed(self, **names: str) -> Job:
        """The job with some of its buffers under other names."""
        relocations = tuple(replace(r, buffer=names.get(r.buffer, r.buffer)) for r in self.relocations)
        temps = tuple((names.get(name, name), nbytes) for name, nbytes in self.temps)
        exact = tuple(names.get(name, name) for name in self.exact)
        return replace(self, relocations=relocations, temps=temps, exact=exact)


@dataclass
class Arguments:
    """Collects what the argument blocks of one job need: addresses to fill in later, arrays to keep alive."""

    relocations: list[Relocation] = field(default_factory=list)
    owned: list[np.ndarray] = field(default_factory=list)

    def address(self, array: np.ndarray, shared: bool = False) -> int:
        """The address of a constant, of which the job will own a copy among guard words.

        What is ``shared`` is not copied, nor is a block of this job: addresses will be written into it.
        """
        if any(array is block for block in self.owned):
            return int(array.ctypes.data)
        if array.nbytes <= SURROUNDED_BYTES and not shared:
            array = surrounded(array)
        self.owned.append(array)
        return int(array.ctypes.data)

    def block(
        self, layout: ArgLayout, buffers: dict[str, str], **values: float | np.floating | np.integer
    ) -> np.ndarray:
        """A block of these values; the words named in `buffers` receive the addresses of those buffers later."""
        block = layout.pack(**values, **dict.fromkeys(buffers, 0))
        self.owned.append(block)
        self.relocations += [
            Relocation(block, layout.index(name), buffer) for name, buffer in buffers.items()
        ]
        return block

    def job(
        self,
        name: str,
        kernel: int,
        block: np.ndarray,
        tasks: int,
        scratch: int = 0,
        temps: tuple[tuple[str, int], ...] = (),
    ) -> Job:
        """The job of a kernel over one of these blocks."""
        return Job(name, kernel, block, tasks, scratch, tuple(self.relocations), tuple(self.owned), temps)


# --- several jobs as one ---------------------------------------------------------------------------------

_PART = ArgLayout("kernel", "block", "tasks")
_PARTS = ArgLayout("count", "parts", "round_tasks")


def parts(module: ModuleText, name: str) -> None:
    """Write the kernel whose tasks are those of some jobs, in rounds: some tasks of each job, then the next ones."""
    with _PARTS.kernel(module, name) as (fn, a, scratch, tasks):

        def task(t: Value) -> None:
            turn, number = t // a.round_tasks, t % a.round_tasks

            def part(j: Value, first: Value) -> Value:
                p = _PART.read(fn, a.pointer("parts") + j * _PART.nbytes)
                own = number - first
                at = turn * p.tasks + own

                def run() -> None:
                    fn.call_pointer(p.pointer("kernel"), p.pointer("block"), at, at + 1, scratch)

                fn.when(own.compare("ult", p.tasks), run)
                return first + p.tasks

            fn.loop(a.count, part, [fn.i64(0)])

        tasks.each(task)


def combine(jobs: Sequence[Job], rounds: int = 1) -> Job:
    """One job of several that do not wait for each other, each with as many tasks in every one of the rounds."""
    if len(jobs) == 1:
        return jobs[0]
    args = Arguments()
    shares = [job.tasks // rounds for job in jobs]
    assert all(share * rounds == job.tasks for share, job in zip(shares, jobs, strict=True))
    rows = [
        _PART.pack(kernel=job.kernel, block=job.block.ctypes.data, tasks=share)
        for share, job in zip(shares, jobs, strict=True)
    ]
    table = args.address(np.concatenate(rows))
    block = args.block(_PARTS, {}, count=len(jobs), parts=table, round_tasks=max(1, sum(shares)))
    return Job(
        name=jobs[0].name,
        kernel=compiled.address(parts),
        block=block,
        tasks=sum(job.tasks for job in jobs),
        scratch=max(job.scratch for job in jobs),
        relocations=tuple(r for job in jobs for r in job.relocations),
        owned=(*args.owned, *(array for job in jobs for array in job.owned)),
        temps=tuple(temp for job in jobs for temp in job.temps),
        parts=tuple(jobs),
    )
