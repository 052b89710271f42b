"""A float node as a row of `refsim_gpu.float_kernels` sees it: where its tensors lie on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refsim.core.launch import Launch, Triple
from refsim.core.layout import WIDTH_PACKED
from refsim.core.tensor import TensorDesc
from refsim.graph.graph import Graph, Node, Ref
from refsim_gpu.float_words import MAP_DIMS, OPS, ROWS
from refsim_gpu.strided import LOCAL, Operand, Unfit, counted, laid, placed, reshaped

#: What an element may be that takes a word: a bool is 0 or 1.
WORDS = tuple(np.dtype(kind) for kind in (np.float32, np.int32, np.bool_))
#: Push words by name.
Words = Mapping[str, Any]
#: A launch, and the tensors and numbers that it reads.
Launched = tuple[Launch, tuple[Operand, ...], Operand]


@dataclass(frozen=True)
class Number:
    """The name of a float32 that a kernel reads from memory."""

    value: float


@dataclass(frozen=True)
class Site:
    """A float node, and how its tensors lie on the device."""

    graph: Graph
    node: Node
    descs: Mapping[int, TensorDesc]
    constants: Mapping[int, np.ndarray]
    wanted: frozenset[int]  # the outputs that somebody reads

    @property
    def args(self) -> tuple[Any, ...]:
        return self.node.args[1:]

    def real(self, arg: Any) -> Operand:
        """A float32 tensor among the arguments, or a number as one."""
        if isinstance(arg, Ref):
            return self.tensor(arg, np.dtype(np.float32))
        if isinstance(arg, bool) or not isinstance(arg, int | float):
            raise Unfit(f"an argument {arg!r}")
        return Operand.of(Number(float(arg)), reshaped(placed(TensorDesc((1,), WIDTH_PACKED), (1,)), ()))

    def tensor(self, arg: Any, *dtypes: np.dtype[Any]) -> Operand:
        """A tensor among the arguments, of one of these dtypes."""
        if not isinstance(arg, Ref):
            raise Unfit(f"an argument {arg!r}")
        tensor = self.graph.tensors[arg.id]
        if tensor.dtype not in dtypes or 0 in tensor.shape:
            raise Unfit(f"{tensor.dtype} {list(tensor.shape)}")
        return Operand.of(arg.id, placed(self.desc(arg.id), tensor.shape))

    def dtype(self, value: int) -> np.dtype[Any]:
        return self.graph.tensors[value].dtype

    def moved(self) -> tuple[Operand, Operand]:
        """The first input and output, of words that somebody copies: of one dtype."""
        x, out = self.tensor(self.node.args[0], *WORDS), self.tensor(Ref(self.node.outputs[0]), *WORDS)
        if self.dtype(x.key) != self.dtype(out.key):
            raise Unfit(f"{self.dtype(x.key)} as {self.dtype(out.key)}")
        return x, out

    def desc(self, value: int) -> TensorDesc:
        if value in self.constants:
            held = self.graph.tensors[value]
            return TensorDesc(
                held.shape or (1,), WIDTH_PACKED, "float32" if held.dtype == np.float32 else "int32"
            )
        return self.descs[value]

    @property
    def x(self) -> Operand:
        return self.real(self.node.args[0])

    def out(self, number: int = 0, dtype: Any = np.float32) -> Operand:
        return self.tensor(Ref(self.node.outputs[number]), np.dtype(dtype))

    def alone(self) -> Operand:
        """The first output, if nobody reads another one."""
        if self.wanted & set(self.node.outputs[1:]):
            raise Unfit("another output than the first is read")
        return self.out()

    def mapped(
        self, out: Operand, op: str, a: Operand, b: Operand | None = None, p: float = 0.0, q: float = 0.0
    ) -> Launched:
        """The launch that makes the elements of ``out`` of those of ``a``, or of two tensors that broadcast."""
        shape, reads = out.view.shape, (a, b or a)
        left, right = (operand.viewed(np.broadcast_to(operand.view, shape)) for operand in reads)
        words, rows = laid(MAP_DIMS, OUT=out, A=left, B=right)
        words |= {"P": np.float32(p), "Q": np.float32(q)}
        return self.launched("map", out, reads, counted(words["COUNT"]), words, OP=OPS[op], DIMS=rows)

    def launched(
        self, name: str, out: Operand, reads: Sequence[Operand], size: Triple, words: Words, **constants: Any
    ) -> Launched:
        """The launch of a kernel of shaders/float, with its push words and its specialization words by name."""
        (push, spec), shader = ROWS[f"float/{name}"], f"float/{name}"
        packed = spec.pack({}, **constants), push.pack({}, **words)
        return Launch(shader, self.desc(out.key), *packed, size, (LOCAL, 1, 1)), tuple(reads), out


Row = Callable[[Site], Iterator[Launched]]
