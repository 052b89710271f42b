"""What native kernels are asked to do, as text: which kernel, how its work is divided, and what numbers it is given.

A choice of a route, a tile, a block or a share of the work changes no byte, only how fast it is: no comparison of
bytes shows that such a choice went wrong. So what is chosen is written down for `cases`, for the joined steps of
`MODELS`, and for calls of drawn sizes, on several processors, and a test compares. Nothing is compiled or run; so
plans of processors that this machine is not can be written as well.

Choices are written in words. Of everything else that a kernel is given there are two digests: of its numbers, and of
the constants that it reads, which another processor may have laid out as no kernel of this one reads them.

python tests/exec/cpu/planned.py --write   writes tests/data/plans/ anew, after a choice was changed on purpose.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from cases import DEPTH, LAYERS, drawn, of_layouts

from refsim.exec.cpu import args, compiled, fusion, isa, routes, schedule
from refsim.exec.cpu.amx import tiles
from refsim.exec.cpu.job import Arguments, Job
from refsim.exec.cpu.relayout import prepack as relayout
from refsim.exec.model import load
from refsim.golden import rules
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call

CHECKOUT = Path(__file__).parents[3]
DATA = CHECKOUT / "tests" / "data"
FOLDER = DATA / "plans"
#: Processors by their row of `refsim.exec.cpu.isa.ISAS`, and threads.
MACHINES = (
    ("amx", 1),
    ("amx", 12),
    ("avx512vbmi", 1),
    ("avx512vbmi", 4),
    ("avx2", 1),
    ("avx2", 3),
    ("portable", 2),
)
#: Routes that are written down for `LAYERS` also where a rule holds them for slower.
FORCED = {"amx": ("amx",), "avx512vbmi": ("winograd4",), "avx2": ("winograd2", "gemm"), "portable": ()}
#: The bundled models whose steps and threads are written down.
MODELS = ("mobilenet_v2_035_96", "mixed_ops", "refine_seg", "linear_head", "linear_head_gemv")
#: What threads cost to wake as a rule: other tests take 0.
WAKING = schedule.WAKING
#: What a kernel is built for, and which of its arguments divide the work: of the others there is a digest.
BUILT_FOR = (
    "dot",
    "lanes",
    "rows",
    "vectors",
    "a_tiles",
    "b_tiles",
    "m",
    "words",
    "parts",
    "together",
    "pixel16s",
)
DIVIDED = (
    "row_blocks", "column_blocks", "block_h", "block_w", "block_rows", "block_columns", "parts", "parts_per_group",
    "rows_per_task", "words_per_task", "task_groups", "task_pixel4s", "tile_rows", "round_tasks", "pitch", "v_pitch",
    "k4_pitch", "panels", "chunk_bytes", "span", "flat", "gather", "ring",
)  # fmt: skip
#: Numbers that stand for kernels: no argument is as large.
FIRST_KERNEL = 1 << 60
#: Cases of the corpus of each operator besides `LAYERS`.
EACH = 3


# --- a processor that is not there -------------------------------------------------------------------------


class _Address(int):
    """Where a constant lies. A float's bits, or a large number, may happen to be the same: what is none stays one."""

    def __add__(self, other: int) -> _Address:
        return _Address(int(self) + other)

    __radd__ = __add__


class _Names:
    """Stands for the compiler: gives each kernel a number that no argument has, and knows blocks by their address.

    ``layouts``: the words of a block, and which of these are addresses of constants.
    """

    def __init__(self) -> None:
        self.kernels: list[tuple[str, dict[str, compiled.Variant]]] = []
        self.layouts: dict[int, tuple[tuple[str, ...], frozenset[str]]] = {}
        self.blocks: list[np.ndarray] = []  # kept, so that no other array gets their address

    def address(self, build: compiled.Builder, **variant: compiled.Variant) -> int:
        self.kernels.append((build.__name__, variant))
        return FIRST_KERNEL + len(self.kernels) - 1


@contextmanager
def processor(name: str) -> Iterator[_Names]:
    """Prepacks meanwhile take this row of `ISAS` for what the machine has, and compile nothing."""
    row = next(row for row in isa.ISAS if row.name == name)
    names, pack, address = _Names(), args.ArgLayout.pack, Arguments.address

    def packed(self: args.ArgLayout, **values: Any) -> np.ndarray:
        block = pack(self, **values)
        places = frozenset(name for name, value in values.items() if isinstance(value, _Address))
        names.layouts[block.ctypes.data] = (self.names, places)
        names.blocks.append(block)
        return block

    def placed(self: Arguments, array: np.ndarray, shared: bool = False) -> int:
        return _Address(address(self, array, shared))

    def none(*_: object) -> str:
        return "tables and fused arithmetic are tried out on the processor itself"

    def known() -> isa.Cpu:
        return isa.Cpu(name, "", row)

    with mock.patch.object(compiled, "address", names.address), \
            mock.patch.object(args.ArgLayout, "pack", packed), mock.patch.object(Arguments, "address", placed), \
            mock.patch.object(routes.lut, "find", none), mock.patch.object(routes.fma, "find", none), \
            mock.patch.object(tiles, "why_not", lambda isa: None if isa.tiles else "no tiles"), \
            mock.patch.object(routes, "cpu", known), mock.patch.object(relayout, "cpu", known), \
            mock.patch.object(fusion, "cpu", known), mock.patch.object(schedule, "cpu", known):  # fmt: skip
        yield names


# --- as text -----------------------------------------------------------------------------------------------


def told(job: Job, names: _Names) -> Iterator[str]:
    """A line for each part of a job: the kernel, its tasks and scratch, what it is built for, what divides its work."""
    if job.parts:
        name, _ = names.kernels[job.parts[0].kernel - FIRST_KERNEL]
        yield f"{name} in {len(job.parts)} parts: {job.tasks} tasks"
        for part in job.parts:
            yield from told(part, names)
        return
    name, built = names.kernels[job.kernel - FIRST_KERNEL]
    said = {key: value for key, value in built.items() if key in BUILT_FOR}
    numbers = [f"{key} {value}" for key, value in built.items() if key not in BUILT_FOR]
    numbers += [f"{r.buffer} in {r.word}" for r in job.relocations]
    numbers += [f"{temp} of {nbytes}" for temp, nbytes in job.temps]
    for block in job.owned:
        layout, places = names.layouts.get(block.ctypes.data, ((), frozenset()))
        for key, word in zip(layout, block.tolist(), strict=False):
            if key in DIVIDED:
                said[key] = min(word, FIRST_KERNEL)
            else:
                numbers.append(f"{key} {_number(word, key in places, job, names)}")
    constants = [each.tobytes() for each in job.owned if each.ctypes.data not in names.layouts]
    yield f"{name}: {job.tasks} tasks, scratch {job.scratch}; " + " ".join(
        [f"{k}={'a kernel' if v == FIRST_KERNEL else v}" for k, v in said.items()]
        + [f"numbers={_digest(*(each.encode() for each in numbers))}", f"constants={_digest(*constants)}"]
    )


def _number(word: int, is_address: bool, job: Job, names: _Names) -> str:
    """A word of an argument block; in place of an address, which constant it is of, or which kernel."""
    if FIRST_KERNEL <= word < FIRST_KERNEL + len(names.kernels):
        name, built = names.kernels[word - FIRST_KERNEL]
        return " ".join((name, *(f"{key} {value}" for key, value in built.items())))
    for number, array in enumerate(job.owned if is_address else ()):
        if 0 <= word - array.ctypes.data < max(1, array.nbytes):
            return f"byte {word - array.ctypes.data} of constant {number}"
    return str(word)


def _digest(*parts: bytes) -> str:
    made = sha256()
    for part in parts:
        made.update(sha256(part).digest())
    return made.hexdigest()[:8]


def _label(case: Case, call: Call) -> str:
    return f"{case.op} {', '.join(str(desc) for desc in call.descs.values())} to {call.out}"


def asked_of(name: str) -> Iterator[tuple[Case, str]]:
    """The cases of a processor, each with the route that is forced, "" if none is."""
    corpus = (rules.case(op, number * 5 + 1) for op in OPS for number in range(EACH))
    yield from ((case, "") for case in (*LAYERS, *of_layouts(), *corpus))
    for route in FORCED[name]:
        yield from ((case, route) for case in LAYERS if case.op != DEPTH)


def calls(name: str, threads: int, asked: Iterable[tuple[Case, str]]) -> Iterator[str]:
    """What a processor would do for these cases, on the routes that are forced."""
    with processor(name) as names:
        for case, route in asked:
            call = bind(case).call
            choice = routes.choose(call, threads, {"*": route} if route else {})
            yield f"{_label(case, call)}: {choice.route}"
            for job in choice.jobs() or ():
                yield from (f"  {line}" for line in told(job, names))


def models(name: str, threads: int) -> Iterator[str]:
    """The steps of bundled models and their threads."""
    with processor(name) as names, mock.patch.object(schedule, "WAKING", WAKING):
        for model in MODELS:
            for graph in load(DATA / "models" / f"{model}.pte").graphs.values():
                made = schedule.Schedule(graph, schedule.Options(threads))
                for steps in made.stretches():
                    taken = " ".join(step.route for step in steps)
                    yield f"{model}: {made.threads(steps)} of {threads} threads: {taken}"
                    for step in steps:
                        for job in step.jobs if len(step.nodes) > 1 else ():  # others are among the cases
                            yield from (f"  {line}" for line in told(job, names))


def layers_and_models(machine: tuple[str, int]) -> list[str]:
    return [*calls(*machine, asked_of(machine[0])), *models(*machine)]


def of_drawn_sizes(machine: tuple[str, int]) -> list[str]:
    return list(calls(*machine, drawn(9300 + MACHINES.index(machine))))


#: Folders of records, and what is written down for a processor.
RECORDS = {FOLDER: layers_and_models, FOLDER / "drawn": of_drawn_sizes}


def path(folder: Path, machine: tuple[str, int]) -> Path:
    name, threads = machine
    return folder / f"{name}_{threads}.txt"


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        raise SystemExit(__doc__)
    for folder, lines in RECORDS.items():
        folder.mkdir(exist_ok=True)
        for machine in MACHINES:
            path(folder, machine).write_text("\n".join(lines(machine)) + "\n")
