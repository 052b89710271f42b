"""Stand-ins for torch.fx nodes, for tests of what needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Shape = Sequence[int]


@dataclass
class FakeTensor:
    shape: tuple[int, ...]
    dtype: str = "torch.float32"


@dataclass(eq=False)
class FakeNode:
    target: Any
    args: tuple[Any, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)
    op: str = "call_function"
    users: dict[Any, None] = field(default_factory=dict)


def tensor_node(shape: Shape) -> FakeNode:
    return FakeNode("x", meta={"val": FakeTensor(tuple(shape))}, op="placeholder")


def list_node(*shapes: Shape) -> FakeNode:
    """A node that produces several tensors."""
    return FakeNode("several", meta={"val": tuple(FakeTensor(tuple(s)) for s in shapes)})


def call(target: Any, args: Sequence[Any], *out: Shape) -> FakeNode:
    """A node that calls an operator and produces tensors of these shapes."""
    values = tuple(FakeTensor(tuple(shape)) for shape in out)
    return FakeNode(target, tuple(args), {"val": values[0] if len(values) == 1 else values})
