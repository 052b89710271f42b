"""A model made ready on an executor: what a run decides anew each time is decided once.

The instructions of a program always write the same values in the same order. So which session a delegate has, which
implementation a plain kernel, and which arguments are constants, is known before the first run.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refsim.core.errors import ShapeError
from refsim.exec.executor import Pending

#: Values of a run, by id.
Values = dict[int, Any]
#: Does an instruction: reads values and writes others. Gives a value of a run.
Instruction = Callable[[Values], None]
Fetch = Callable[[Values], Any]
#: Computes outputs from inputs, both in order.
Compute = Callable[[Sequence[np.ndarray]], list[np.ndarray]]
#: Shape and dtype of each input.
Shapes = Sequence[tuple[tuple[int, ...], np.dtype[Any]]]


@dataclass(frozen=True)
class Delegate:
    """An instruction that calls a delegate: at once, or begun, so that other runs can go on meanwhile.

    ``reads`` fetch its inputs, ``writes`` are the ids of its outputs.
    """

    compute: Compute
    start: Callable[[Sequence[np.ndarray]], Pending]
    reads: tuple[Fetch, ...]
    writes: tuple[int, ...]

    def __call__(self, values: Values) -> None:
        made = self.compute([fetch(values) for fetch in self.reads])
        values.update(zip(self.writes, made, strict=True))

    def begin(self, values: Values) -> Pending:
        return self.start([fetch(values) for fetch in self.reads])

    def end(self, pending: Pending, values: Values) -> None:
        values.update(zip(self.writes, pending.finish(), strict=True))


class PreparedModel:
    """Runs a model on one executor.

    ``shapes`` are the inputs' shapes and dtypes, ``inputs`` their ids; ``outputs`` fetches each output. ``whole``: does
    all of it, from the inputs in order to the outputs in order, if one session does.
    """

    def __init__(
        self,
        where: str,
        shapes: Shapes,
        inputs: Sequence[int],
        instructions: Sequence[Instruction],
        outputs: Sequence[Fetch],
        whole: Compute | None = None,
    ) -> None:
        self._where = where
        self._shapes, self._inputs = tuple((tuple(s), dtype) for s, dtype in shapes), tuple(inputs)
        self._instructions, self._outputs = tuple(instructions), tuple(outputs)
        self._whole = whole

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs, as `Model.run` gives them; raises as it does."""
        return self.compute(checked(self._where, self._shapes, inputs))

    def steps(self, inputs: Sequence[np.ndarray]) -> Generator[None, None, list[np.ndarray]]:
        """The same run, which stands still after each delegate's beginning."""
        values: Values = dict(zip(self._inputs, checked(self._where, self._shapes, inputs), strict=True))
        for instruction in self._instructions:
            if isinstance(instruction, Delegate):
                pending = instruction.begin(values)
                yield
                instruction.end(pending, values)
            else:
                instruction(values)
        return [fetch(values) for fetch in self._outputs]

    def fits(self, inputs: Sequence[np.ndarray]) -> bool:
        """Whether the inputs have the model's shapes and dtypes, and lie in C order."""
        return len(inputs) == len(self._shapes) and all(
            isinstance(array, np.ndarray)
            and array.shape == shape
            and array.dtype is dtype
            and array.flags.c_contiguous
            for array, (shape, dtype) in zip(inputs, self._shapes, strict=True)
        )

    def compute(self, given: Sequence[np.ndarray]) -> list[np.ndarray]:
        """As `run`, for inputs that fit."""
        if self._whole is not None:
            return self._whole(given)
        values: Values = dict(zip(self._inputs, given, strict=True))
        for instruction in self._instructions:
            instruction(values)
        return [fetch(values) for fetch in self._outputs]


def checked(where: str, shapes: Shapes, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The inputs in C order. ShapeError if they do not fit."""
    if len(inputs) != len(shapes):
        raise ShapeError(where, "wrong number of inputs", got=len(inputs), need=len(shapes))
    for number, (array, (shape, dtype)) in enumerate(zip(inputs, shapes, strict=True)):
        if array.shape != shape or array.dtype != dtype:
            raise ShapeError(
                f"{where}: input {number}",
                "does not fit",
                got=f"{array.dtype} {list(array.shape)}",
                need=f"{dtype} {list(shape)}",
            )
    return [np.asarray(array, order="C") for array in inputs]
