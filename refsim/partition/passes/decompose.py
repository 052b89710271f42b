"""Decompose an exported program to core ATen operators, but for those that the delegate runs as they are."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from refsim.core.errors import GraphError
from refsim.ops.base.registry import OPS
from refsim.ops.base.traits import Family
from refsim.partition import fx_program
from refsim.partition.fx_program import KIND, FxProgram
from refsim.partition.nodes import DEQUANTIZE_AFFINE, QUANTIZE_AFFINE
from refsim.partition.passes import bounds

#: Kept whole: the delegate has kernels for them, and patterns look for them.
PRESERVED = (
    torch.ops.aten.pixel_shuffle.default,
    torch.ops.aten.hardswish.default,
    torch.ops.aten.upsample_nearest2d.vec,
)
#: Decomposed by ExecuTorch, though they are core operators.
ADDED = (torch.ops.aten.linalg_vector_norm.default,)
_KINDS = {
    InputKind.PARAMETER: fx_program.InputKind.PARAMETER,
    InputKind.BUFFER: fx_program.InputKind.BUFFER,
    InputKind.CONSTANT_TENSOR: fx_program.InputKind.CONSTANT,
}


def run(exported: ExportedProgram, where: str = "program") -> FxProgram:
    """A program of core ATen operators, its parameters and buffers as constants.

    GraphError for a program that changes its buffers or returns anything but tensors.
    """
    table: Any = torch.export.default_decompositions()
    table.update(get_decompositions(ADDED))
    for kept in (*PRESERVED, *_of_torchao()):
        table.pop(kept, None)
    bounds.only_symbols(exported.graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own parts
        core = exported.run_decompositions(table)
    for spec in core.graph_signature.output_specs:
        if spec.kind is not OutputKind.USER_OUTPUT:
            raise GraphError(where, "writes to its own state", got=f"{spec.kind.name} {spec.target}")
    stored = [spec for spec in core.graph_signature.input_specs if spec.kind in _KINDS]
    constants = {spec.arg.name: _tensor(core, spec.target) for spec in stored}
    program = FxProgram(core.graph, constants).copy()
    kinds = {spec.arg.name: _KINDS[spec.kind] for spec in stored}
    for node in program.graph.nodes:
        if node.name in kinds:
            node.meta[KIND] = kinds[node.name]
    return bounds.run(program.clean(), {**exported.range_constraints, **core.range_constraints}, where)


def _of_torchao() -> list[Any]:
    """torchao's operators that patterns look for, if somebody has imported it."""
    ranges = [op.serialized for op in OPS.of_family(Family.ROW_RANGE) if op.serialized]
    names = [name.split(".")[1] for name in (*ranges, QUANTIZE_AFFINE, DEQUANTIZE_AFFINE)]
    packets = (getattr(torch.ops.torchao, name, None) for name in names)
    return [packet.default for packet in packets if packet is not None]


def _tensor(exported: ExportedProgram, name: str) -> torch.Tensor:
    stored = exported.state_dict if name in exported.state_dict else exported.constants
    tensor: torch.Tensor = stored[name]
    return tensor.detach()
