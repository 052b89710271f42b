"""A model made ready on an executor: what a run decides anew each time is decided once.

The instructions of a program always write the same values in the same order. So which session a delegate has, which
implementation a plain kernel, and which arguments are constants, is known before the first run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from refsim.core.errors import ShapeError
from refsim.exec.executor import Session

#: Values of a run, by id.
Values = dict[int, Any]
#: Does an instruction: reads values and writes others. Gives a value of a run.
Instruction = Callable[[Values], None]
Fetch = Callable[[Values], Any]
#: Shape and dtype of each input.
Shapes = Sequence[tuple[tuple[int, ...], np.dtype[Any]]]


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
        whole: Callable[[Sequence[np.ndarray]], list[np.ndarray]] | None = None,
    ) -> None:
        self._where = where
        self._shapes, self._inputs = tuple((tuple(s), dtype) for s, dtype in shapes), tuple(inputs)
        self._instructions, self._outputs = tuple(instructions), tuple(outputs)
        self._whole = whole

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs, as `Model.run` gives them; raises as it does."""
        return self.compute(checked(self._where, self._shapes, inputs))

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


def delegate(session: Session, number: int, inputs: Sequence[Fetch], outputs: Sequence[int]) -> Instruction:
    """Run a session; ``inputs`` fetch what it reads, ``outputs`` are the ids of what it writes."""
    run, reads, writes = session.run, tuple(inputs), tuple(outputs)

    def instruction(values: Values) -> None:
        values.update(zip(writes, run([fetch(values) for fetch in reads], number), strict=True))

    return instruction
