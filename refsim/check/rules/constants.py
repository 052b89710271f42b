"""Stored data: what is absent, too short, or in a place that the runtime no longer reads."""

from __future__ import annotations

from collections.abc import Iterator

from refsim.check.finding import Level
from refsim.check.rule import Hit, Rule
from refsim.check.runtime import Runtime
from refsim.check.subject import Delegate, Method, Operand
from refsim.formats.file import quote
from refsim.formats.vkgraph.schema import NAMED_OFFSET, VkBytes


def _named(method: Method) -> Iterator[tuple[Delegate, Operand, VkBytes]]:
    """Every constant tensor whose bytes are found by a key."""
    for delegate in method.delegates:
        for operand in delegate.operands:
            if operand.is_constant:
                row = delegate.graph.constants[operand.tensor.constant_id]
                if row.offset == NAMED_OFFSET:
                    yield delegate, operand, row


def absent(method: Method, runtime: Runtime) -> Iterator[Hit]:
    named = method.pte.named_data if method.pte is not None else {}
    for delegate, operand, row in _named(method):
        if row.named_key not in named:
            yield Hit(delegate.place(operand.value), {"key": quote(row.named_key)})


def short(method: Method, runtime: Runtime) -> Iterator[Hit]:
    named = method.pte.named_data if method.pte is not None else {}
    for delegate, operand, row in _named(method):
        data = named.get(row.named_key)
        if data is not None and len(data) < operand.tensor.nbytes:
            facts = {"stored": len(data), "bytes": operand.tensor.nbytes, "key": quote(row.named_key)}
            yield Hit(delegate.place(operand.value), facts)


def no_segment(method: Method, runtime: Runtime) -> Iterator[Hit]:
    if method.pte is not None:
        stored = method.pte.program.constant_segment
        if stored is None or not stored.offsets:
            yield Hit(method.place())


RULES = (
    Rule(
        "constant-absent",
        Level.ERROR,
        "the file has no data under the constant's key {key}",
        "loading throws: Failed to get constant data for key",
        "write the constant into the file, or load the data file that holds it beside the program",
        absent,
    ),
    Rule(
        "constant-short",
        Level.ERROR,
        "{stored} bytes are stored under the key {key}; the tensor has {bytes}",
        "the runtime copies past the end of the data: it crashes, or computes with arbitrary values",
        "store all of the tensor's bytes",
        short,
    ),
    Rule(
        "constant-segment",
        Level.ERROR,
        "the program has no constant_segment",
        "runtimes built without the deprecated constant buffers, as apps are, refuse to load the program",
        "write a constant_segment with the offsets [0], also where there are no constants",
        no_segment,
    ),
)
