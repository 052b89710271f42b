"""How a kernel receives its arguments: one block of 64-bit words, each with a name.

A kernel has dozens of arguments. Instead of a long parameter list it gets a pointer to a block, and `ArgLayout` is the
one place that says which word is which: prepack packs the values by name, the kernel reads them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from refsim.exec.cpu.ir import F32, I32, I64, PTR, Function, ModuleText, Value

#: Parameters of every kernel that runs tasks: argument block, first task, task after the last, scratch.
KERNEL_PARAMS = (PTR, I64, I64, PTR)


@dataclass(frozen=True)
class KernelTasks:
    """The tasks that one call of a kernel runs: from ``begin`` to ``end`` (excluded)."""

    fn: Function
    begin: Value
    end: Value

    def each(self, task: Callable[[Value], None]) -> None:
        """Write what does every one of them, by its number."""
        self.fn.loop(self.end, task, start=self.begin)


class ArgLayout:
    """Names of the words of an argument block, in order. Floats are stored as their binary32 bits."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self._index = {name: at for at, name in enumerate(names)}

    @property
    def nbytes(self) -> int:
        """Size of a block."""
        return 8 * len(self.names)

    def pack(self, **values: float | np.floating | np.integer) -> np.ndarray:
        """The block (int64) of these values. TypeError unless there is a value for every name and for no other."""
        if values.keys() != self._index.keys():
            raise TypeError(f"arguments differ: {sorted(values.keys() ^ self._index.keys())}")
        return np.array([_word(values[name]) for name in self.names], np.int64)

    def index(self, name: str) -> int:
        """Number of a name's word."""
        return self._index[name]

    @contextmanager
    def kernel(
        self, module: ModuleText, name: str
    ) -> Iterator[tuple[Function, LoadedArgs, Value, KernelTasks]]:
        """Write a kernel of these arguments: gives its function, the arguments read, scratch, and its tasks."""
        with module.function(name, KERNEL_PARAMS) as fn:
            block, begin, end, scratch = fn.params
            yield fn, self.read(fn, block), scratch, KernelTasks(fn, begin, end)

    def read(self, fn: Function, block: Value) -> LoadedArgs:
        """Emit the loads of all words at this point of a kernel."""
        return LoadedArgs(fn, {name: fn.load(block + 8 * at, I64) for name, at in self._index.items()})


class LoadedArgs:
    """An argument block inside a kernel: an attribute is the word of that name, as an i64."""

    def __init__(self, fn: Function, words: dict[str, Value]) -> None:
        self._fn, self._words = fn, words

    def __getattr__(self, name: str) -> Value:
        return self._words[name]

    def pointer(self, name: str) -> Value:
        return self._fn.pointer(self._words[name])

    def i32(self, name: str) -> Value:
        return self._words[name].trunc(I32)

    def f32(self, name: str) -> Value:
        return self._words[name].trunc(I32).bits(F32)


def _word(value: float | np.floating | np.integer) -> int:
    if isinstance(value, float | np.floating):
        return int(np.float32(value).view(np.uint32))
    word = int(value) & 0xFFFFFFFFFFFFFFFF
    return word - (1 << 64) if word >> 63 else word
