"""Refusals: why a node is not delegated, or not fused. Each has a code that programs can test, and a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from refsim.core.meanings import NodeName, OperatorName
from refsim.partition.nodes import target_name

#: code -> what it means; the detail of a `RefusedNode` completes the sentence.
CODES = {
    # not delegated: the node runs as a plain kernel outside
    "no-implementation": "the Vulkan delegate has no such operator",
    "dtype": "a tensor has a dtype that the operator does not take",
    "arguments": "the operator does not take these arguments",
    "high-dim": "a tensor has more dims than the operator takes",
    "blocked": "it was named with --block",
    "no-representation": "a tensor fits neither a texture nor a buffer layout that the operator takes",
    "runtime": "the runtime that is meant refuses it",
    # delegated, but as a float operator between a dequantize and a quantize
    "input-float": "an input is not dequantized from a static int8 tensor",
    "output-float": "the output is not quantized, or used before it is",
    "quant-range": "a tensor is not int8 over its whole range, which the kernels clamp to",
    "weight-not-constant": "the weight is not a constant",
    "weight-float": "the weight is not dequantized from int8",
    "weight-zero-point": "the weight has a zero point other than 0",
    "weight-axis": "the weight's scale varies within an output channel",
    "bias-not-constant": "the bias is not a float constant",
    "row-scales": "the scales of the activation are not those of its rows, made at run time",
    "in-channels": "the number of input channels is not a multiple of 4, or of 8 for weights of 4 bits",
    "out-channels": "the number of output channels per group is not a multiple of 4",
    "rows": "a view between dequantize and linear changes the rows",
    "dilation": "transposed convolutions are undilated only",
    "rank": "the kernel takes 2-D convolutions only",
    "groups": "the kernel does not take this grouping",
    "batch": "the batch dim of a matrix product is not 1",
}


@dataclass(frozen=True)
class RefusedNode:
    """A node that was not fused, or stays outside of delegates."""

    code: Annotated[str, "Why, in a word."]
    node: NodeName
    operator: OperatorName
    detail: Annotated[str, "What of it is meant; may be empty."] = ""

    def __post_init__(self) -> None:
        assert self.code in CODES, self.code

    @property
    def reason(self) -> Annotated[str, "Why, in words."]:
        return CODES[self.code]

    @property
    def _why(self) -> str:
        return self.reason + (f"; {self.detail}" if self.detail else "")

    def cells(self) -> tuple[object, ...]:
        return (self.node, self.operator, self.code, self._why)

    def __str__(self) -> str:
        return f"{self.node} ({self.operator}): {self._why}"


class Refused(Exception):
    """A refusal that ends the search of a pattern."""

    def __init__(self, code: str, node: Any, detail: str = "") -> None:
        super().__init__(code, node, detail)
        self.refusal = refuse(code, node, detail)


def refuse(code: str, node: Any, detail: str = "") -> RefusedNode:
    return RefusedNode(code, str(node), target_name(node), detail)
