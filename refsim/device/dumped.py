"""What a device's run says of its values: the buffers of it, and which values are no longer those of the right run.

`Row` is what is known about one operator of the run.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.core.errors import RawBufferError
from refsim.core.tensor import TensorDesc
from refsim.exec.executor import Executor
from refsim.exec.model import Model
from refsim.exec.trace import Traced, trace
from refsim.formats.dumps import value_name
from refsim.graph.describe import NodeOutput
from refsim.ops.base.binding import BoundCase

if TYPE_CHECKING:
    from refsim.bytediff import Report


class Buffers(Protocol):
    """The buffers of a device's run by value name: `refsim.formats.dumps.Recorded`, or what was just collected."""

    def __contains__(self, name: object) -> bool: ...

    def unfit(self, name: str, desc: TensorDesc) -> str:
        """Why the device's buffer cannot be compared with such a tensor; empty if it can, or if there is none."""
        ...

    def beside(self, name: str, buffer: PackedBuffer) -> np.ndarray:
        """The device's bytes of a value, to be compared with this buffer of the same shape and layout."""
        ...


class Strayed:
    """The values whose elements on the device are others than those of the right run, or may be.

    Of dumped ones it is seen; others stray with what they were computed from, or where upstream is known to be wrong,
    and the inputs of a later delegate with any value. ``others``: so may the inputs of the model. ``known``: what the
    device must have had of a value that was not dumped, if its operator is right.
    """

    def __init__(self, model: Model, recorded: Buffers, others: bool) -> None:
        self._model, self._recorded, self._others = model, recorded, others
        self._names: dict[str, str] = {}  # name -> what upstream is known to get wrong, "" if it is not that
        self.known: dict[str, PackedBuffer | np.ndarray] = {}
        self._delegate: int | None = None

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def reached(self, traced: Traced) -> bool:
        """Whether an input of a node has strayed."""
        number = traced.delegate
        if number != self._delegate:
            self._delegate = number
            if self._others or self._names:
                inputs = (value_name(number, value) for value in self._model.graphs[number].inputs)
                self._names = {**dict.fromkeys(inputs, ""), **self._names}
        return any(value_name(number, value) in self for value in traced.node.reads)

    def why(self, traced: Traced) -> str:
        """What upstream is known to get wrong of what a node reads, in words; empty if nothing is."""
        told = (self._names.get(value_name(traced.delegate, value), "") for value in traced.node.reads)
        return next(filter(None, told), "")

    def see(self, traced: Traced, reached: bool) -> None:
        """Go on to the values that a node writes; ``reached``: an input of it has strayed."""
        node = traced.node
        wrong = f"it reads what {node} wrote: {node.upstream}" if node.is_float and node.upstream else ""
        for name, held in traced.outputs.items():
            known = isinstance(held, PackedBuffer) and name in self._recorded
            if self._differs(name, held) if known else reached or wrong:  # type: ignore[arg-type]
                self._names[name] = "" if known else wrong or self.why(traced)

    def _differs(self, name: str, held: PackedBuffer) -> bool:
        if self._recorded.unfit(name, held.desc):
            return True
        raw = self._recorded.beside(name, held)
        return bool((raw != held.raw)[held.kinds() == ByteKind.VALUE].any())


def dumped(recorded: Buffers, name: str, like: PackedBuffer) -> PackedBuffer:
    """The device's buffer of a value that is such a tensor."""
    desc = like.desc
    return PackedBuffer.from_raw(recorded.beside(name, like), desc.shape, desc.layout, desc.dtype)


def dumped_inputs(
    traced: Traced, recorded: Buffers, strayed: Container[object] = ()
) -> dict[str, PackedBuffer] | None:
    """What an operator read on the device; None if an input was not dumped, or is another tensor.

    A float input that was not dumped is that of the right run, unless it has strayed from it.
    """
    assert traced.bound is not None
    handed = {}
    for argument, value in traced.input_names().items():
        buffer = traced.bound.inputs[argument]
        if recorded.unfit(value, buffer.desc):
            return None
        if value in recorded:
            handed[argument] = dumped(recorded, value, buffer)
        elif not buffer.desc.is_int8 and value not in strayed:
            handed[argument] = buffer
        else:
            return None
    return handed


@dataclass(frozen=True)
class Ran:
    """Values of a run by name, as the model's own tensors: `Buffers`. What is not packed is none of them."""

    held: Mapping[str, PackedBuffer | np.ndarray]

    def __contains__(self, name: object) -> bool:
        return isinstance(self.held.get(str(name)), PackedBuffer)

    def unfit(self, name: str, desc: TensorDesc) -> str:
        return ""

    def beside(self, name: str, buffer: PackedBuffer) -> np.ndarray:
        """The bytes of a value; RawBufferError unless it is the tensor that ``buffer`` is."""
        held = self.held[name]
        if not isinstance(held, PackedBuffer) or held.desc != buffer.desc:
            got = held.desc if isinstance(held, PackedBuffer) else held.dtype
            raise RawBufferError(name, "another tensor", got=got, need=buffer.desc)
        return held.raw


def run_on(model: Model, inputs: Sequence[np.ndarray], executor: Executor) -> Ran:
    """Run a model on an executor, and keep every packed and float buffer of its delegates."""
    found: dict[str, PackedBuffer | np.ndarray] = {}
    trace(model, inputs, executor, lambda traced: found.update(traced.outputs))
    return Ran({name: held for name, held in found.items() if isinstance(held, PackedBuffer)})


#: On what an operator was computed of whose inputs one was not dumped.
GIVEN = "inputs that were not all dumped, taken from your run"


@dataclass(frozen=True)
class Row(NodeOutput):
    """One node. ``run`` compares its dump with a run from the start, ``alone`` with the node on its dumped inputs.

    ``wrong``: the operator itself is at fault. ``cause``: what upstream's kernel is known to get wrong here, or in what
    the node read. ``own``: the call with its dumped inputs; ``given``: one of these was not dumped, and is that of the
    right run. ``is_int8``: a whole dump has its output. ``unfit``: why the dumped buffer cannot be compared. ``doubt``:
    what there is to say about the inputs (`refsim.device.other_inputs`).
    """

    run: Report | None
    alone: Report | None
    wrong: bool
    cause: str = ""
    own: BoundCase | None = None
    is_int8: bool = True
    unfit: str = ""
    given: bool = False
    doubt: str = ""

    @classmethod
    def of(
        cls, traced: Traced, name: str, run: Report | None, alone: Report | None, diverged: bool, **more: Any
    ) -> Row:
        """A node's row. ``diverged``: it read other values than in the right run, so ``alone`` says who is wrong."""
        node = traced.node
        wrong = run is not None and not run.same and (not diverged if alone is None else not alone.same)
        return cls(traced.delegate, node.number, node.operator, name, run, alone, wrong, **more)

    @property
    def judged(self) -> Report | None:
        """The report about the operator itself: on its own inputs, if they are known."""
        return self.run if self.alone is None else self.alone

    @property
    def excused(self) -> bool:
        """Whether other inputs explain its bytes, and no cause does."""
        return bool(self.doubt) and not self.wrong
