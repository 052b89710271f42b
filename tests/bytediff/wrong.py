"""What makes wrong kernels: the right one with one edit of a line, of its launch, or of what it reads."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from refsim.bytediff.search.bench import Bench, Out, ReadWords, Step
from refsim.bytediff.search.candidate import Candidate
from refsim.bytediff.search.whole import predicted
from refsim.core.buffer import PackedBuffer
from refsim.core.rng import Rng
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.registry import OPS, kernel_of

#: Of a case, so that plain Python takes no second; so many cases are tried until one shows enough.
MOST_ELEMENTS, CASES, ENOUGH = 500, 60, 24
MOST_STEPS = 1 << 30

#: Words for one and the same edit, of which a diff says either.
ALIKE = {
    "lanes exchanged": "lanes rotated", "operands exchanged": "stale or foreign buffer",
    "stale or foreign buffer": "reduction too short",  # sums of nothing
    "scale of another group": "group ignored", "bias left out": "channel constants misplaced",
    "one coordinate for another": "H and W exchanged",  # where the third dim is 1
}  # fmt: skip


def bench_of(bound: BoundCase) -> Bench:
    return Bench(bound.call, {name: buffer.words for name, buffer in bound.inputs.items()})


def predicted_by(bench: Bench, row: Candidate, right: PackedBuffer) -> np.ndarray | None:
    """The words of the output by kernels with these edits; None where they end otherwise."""
    with np.errstate(all="ignore"):
        return predicted(bench, row, (0,), right.words, MOST_STEPS)


@dataclass(frozen=True)
class Line:
    """A text of a function, which occurs there once, and what a wrong kernel has instead."""

    module: Any
    function: str
    right: str
    wrong: str

    def __str__(self) -> str:
        return f"{self.wrong} for {self.right}"

    @contextmanager
    def edited(self) -> Iterator[None]:
        """The function has the wrong text meanwhile, whoever calls it."""
        function = getattr(self.module, self.function)
        function = getattr(function, "py_func", function)
        source, right = textwrap.dedent(inspect.getsource(function)), function.__code__
        assert source.count(self.right) == 1, source
        source = source[source.index("def ") :].replace(self.right, self.wrong)
        made = dict(function.__globals__)
        exec(compile(f"from __future__ import annotations\n{source}", "<wrong>", "exec"), made)
        function.__code__ = made[self.function].__code__
        try:
            yield
        finally:
            function.__code__ = right


@dataclass(frozen=True)
class Edit:
    """A bug: the ``cause`` that a diff must name first, and the edit: of a line, or of what a kernel is given.

    ``given``: push words, buffers that it reads, or ``reached``, the grid; each with an expression of the right ones.
    ``what`` says in words what is wrong. ``of_host``: the line launches the kernel, or lays out its constants.
    """

    cause: str
    op: str
    what: str
    line: Line | None = None
    given: Mapping[str, str] = field(default_factory=dict)
    of_host: bool = False

    @classmethod
    def of(cls, row: str) -> Edit:
        """The edit that a row of seeded.txt tells."""
        cause, op, place, change = row.split(" | ", 3)
        right, arrow, wrong = change.partition(" => ")
        if not arrow:
            return cls(cause, op, place, given=dict(one.split(" = ", 1) for one in change.split("; ")))
        module, _, function = place.removeprefix("host ").rpartition(".")
        line = Line(import_module(f"refsim.{module or f'ops.{op}'}"), function, right, wrong)
        return cls(cause, op, str(line), line, of_host=place.startswith("host "))

    @property
    def names(self) -> tuple[str, ...]:
        """The cause, in all words for it."""
        return (self.cause, ALIKE[self.cause]) if self.cause in ALIKE else (self.cause,)

    def wrong(self, bound: BoundCase) -> PackedBuffer:
        """The output of a call, by kernels with the edit; as plain Python."""
        bench = bench_of(bound)
        held: dict[str, Any] = dict(bench.arrays)
        found = PackedBuffer(bound.call.out)
        with nullcontext() if self.line is None else self.line.edited():
            for step in bench.steps:
                if self.of_host:
                    held |= _prepared(step)
                inputs = [ReadWords.of(self._given(name, held[name], held)) for name in step.inputs]
                held[step.output] = self._step(step, inputs)
        found.words[:] = held[bench.steps[-1].output][: found.words.size]
        return found

    def _given(self, name: str, right: Any, known: Mapping[str, Any]) -> Any:
        """What a kernel is given by this name instead of what is right."""
        return eval(self.given[name], {"np": np, **known}) if name in self.given else right

    def _step(self, step: Step, inputs: list[ReadWords]) -> np.ndarray:
        kernel, out = kernel_of(step.launch.shader), Out()
        out.size = step.launch.out.words
        push = dict(zip(kernel.push.names, step.push, strict=True))
        words = [self._given(name, word, push) for name, word in push.items()]
        x, y, z = self._given("reached", step.launch.reached, {"launch": step.launch})
        with np.errstate(all="ignore"):
            kernel.run.py_func((z, y, x), step.spec, tuple(words), *inputs, out)
        written = np.zeros(out.size, np.int64)
        for at, value in out.items():
            if at < out.size:
                written[at] = int(value) & 0xFFFFFFFF
        return written.astype(np.uint32).view(np.int32)

    def shown(self) -> tuple[BoundCase, PackedBuffer]:
        """The first case of the operator that shows enough, and the wrong output."""
        return max(self._cases(), key=lambda row: _counted(*row))

    def _cases(self) -> Iterator[tuple[BoundCase, PackedBuffer]]:
        for seed in range(CASES):
            bound = bind(OPS[self.op].sample(Rng(seed)))
            if 32 <= bound.call.out.numel <= MOST_ELEMENTS:
                wrong = self.wrong(bound)
                yield bound, wrong
                if _counted(bound, wrong)[0] == 2 * ENOUGH:
                    return


def _prepared(step: Step) -> dict[str, np.ndarray]:
    """Launch a step as the host does now; the constants that it lays out."""
    step.launch = launch = kernel_of(step.launch.shader).launch(step.call)
    step.spec = tuple(np.array(launch.spec, np.uint32).astype(np.int64).tolist())
    step.push = tuple(np.array(launch.push, np.uint32).view(np.int32).tolist())
    given = ((name, step.call.consts.get(name)) for name in step.inputs)
    return {name: step.call.op.prepack(step.call, name, held) for name, held in given if held is not None}


def _counted(bound: BoundCase, wrong: PackedBuffer) -> tuple[int, int]:
    """How many elements differ and how many values there are, each up to what is enough; and how many bytes differ."""
    right = bound.call.expected(bound.inputs)
    differing = np.count_nonzero(right.unpack().view(np.uint8) != wrong.unpack().view(np.uint8))
    values = min(len(np.unique(wrong.data)), ENOUGH) if differing else 0
    return min(differing, ENOUGH) + values, np.count_nonzero(right.raw != wrong.raw)
