"""One argument of an operator: what it holds, and the checks of what is given for it.

The checks take the operator's name for their errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import numpy as np

from refsim.core.errors import LayoutError, ParameterError, ShapeError
from refsim.core.layout import Layout, layout
from refsim.core.tensor import TensorDesc

#: The shapes of tensors, and their arrays, by argument.
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
Arrays: TypeAlias = Mapping[str, np.ndarray]


class Kind(Enum):
    """What an argument holds."""

    INPUT = "input"  # a tensor that other operators produce
    CONST = "const"  # a tensor known when the graph is built
    PARAM = "param"  # a scalar, list or string: the field of `Params` with the same name
    OUTPUT = "output"


@dataclass(frozen=True)
class Arg:
    """One argument: its name, kind, legal layouts (tensors), dtype, and whether it may be none.

    A tensor without a dtype is int8 in a packed layout, and float32 in another. An input of int32 holds indices.

    ``channels`` is the dim of a constant that counts output channels; it may be padded to a multiple of 4.
    ``contiguous``: the tensor is plain NCHW bytes in one dim, whatever its layout is called. ``plain``: an int8 tensor
    that graphs keep in a plain layout, four to a texel; here it lies four to a word.
    """

    name: str
    kind: Kind = Kind.PARAM
    layouts: tuple[Layout, ...] = ()
    dtype: type | None = None
    optional: bool = False
    channels: int | None = None
    contiguous: bool = False
    plain: bool = False

    def desc(self, shape: Sequence[int], row: Layout | str) -> TensorDesc:
        """A tensor for this argument."""
        return TensorDesc(tuple(shape), layout(row), "" if self.dtype is None else np.dtype(self.dtype).name)

    def check_layout(self, op: str, given: Layout) -> None:
        """LayoutError for a tensor in a layout that is not among the argument's."""
        if given not in self.layouts:
            raise LayoutError(
                op,
                f"{self.name} has a layout that the operator does not take",
                got=given,
                need=", ".join(map(str, self.layouts)),
            )

    def check_dtype(self, op: str, given: str) -> None:
        """ParameterError for an input of another dtype."""
        need = "float32" if self.dtype is None else np.dtype(self.dtype).name
        if given not in ("int8", need):
            raise ParameterError(op, f"{self.name} has the wrong dtype", got=given, need=need)

    def check_const(self, op: str, value: np.ndarray | None) -> None:
        """ParameterError or ShapeError for a constant that is missing, of another dtype, or with too few dims."""
        if value is None:
            if not self.optional:
                raise ParameterError(op, f"constant {self.name} is missing")
        elif self.dtype is not None and value.dtype != self.dtype:
            raise ParameterError(
                op, f"{self.name} has the wrong dtype", got=value.dtype, need=np.dtype(self.dtype)
            )
        if value is not None and value.ndim <= (self.channels or 0):
            need = f"more than {self.channels or 0} dims"
            raise ShapeError(op, f"{self.name} has too few dims", got=value.shape, need=need)

    def trim(self, op: str, value: np.ndarray | None, channels: int) -> np.ndarray | None:
        """A constant without the rows that only pad it to a multiple of 4.

        An optional vector may be longer still: ExecuTorch hands the whole bias of a layer to each slice of it.
        """
        if value is None or self.channels is None:
            return value
        allowed: tuple[int, ...] = (channels, -(-channels // 4) * 4)
        if self.longer(value, channels):
            allowed = (*allowed, value.shape[self.channels])
        if value.ndim <= self.channels or value.shape[self.channels] not in allowed:
            raise ShapeError(
                op,
                f"{self.name} has the wrong shape",
                got=value.shape,
                need=f"{channels} output channels, padded to a multiple of 4 or not, in dim {self.channels}",
            )
        return value.take(range(channels), self.channels) if value.shape[self.channels] != channels else value

    def longer(self, value: np.ndarray, channels: int) -> bool:
        """Whether an optional vector has more values than the output has channels, padding aside."""
        vector = value.ndim == 1 and self.optional and self.channels is not None
        return vector and len(value) > -(-channels // 4) * 4
