"""A model of the zoo as a quantized program, with inputs and what torch computes from them."""

from __future__ import annotations

import zlib
from importlib import import_module

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from bench.zoo import quantize
from bench.zoo.model import Input, Model

#: Operators that only move values: a quantization step survives them.
MOVES = frozenset(
    f"aten.{name}"
    for name in (
        "view.default", "reshape.default", "permute.default", "transpose.int", "flatten.using_ints", "clone.default",
        "squeeze.dims", "squeeze.dim", "squeeze.default", "unsqueeze.default", "slice.Tensor", "select.int",
        "contiguous.default", "pixel_shuffle.default", "dropout.default", "alias.default", "expand.default",
    )
)  # fmt: skip
BATCHES = 2  # run for batch norm's statistics, and again for the observers


def build(model: Model) -> tuple[nn.Module, list[tuple[Tensor, ...]]]:
    """The module, in eval mode, and inputs: the first is what everything is compared on.

    Weights are drawn by the module itself, from a seed that the model's name gives. Without training, norms would do
    nothing and some branches would be zero; so scales and offsets that are all alike are drawn too, and the
    statistics of batch norms come from random inputs.
    """
    seed = zlib.crc32(model.name.encode())
    torch.manual_seed(seed)
    module_name, _, attribute = model.source.partition(":")
    module = getattr(import_module(module_name), attribute)(*model.args, **model.options)
    torch.manual_seed(seed + 1)
    _stir(module)
    inputs = [tuple(_draw(item) for item in model.inputs) for _ in range(BATCHES + 1)]
    _warm(module, model)
    return module.eval(), inputs


def _draw(item: Input) -> Tensor:
    return torch.randn(item.shape) if item.below is None else torch.randint(item.below, item.shape)


def _stir(module: nn.Module) -> None:
    """Draw the parameters whose elements are all alike: scales, offsets, layer scales.

    Offsets of batch norms are drawn above zero. Relus around zero make a deep network with random weights chaotic: one
    step in an early layer would become tens of steps at the end, whatever it came from.
    """
    norms = [each for each in module.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    with torch.no_grad():
        for norm in norms:
            if norm.affine:
                norm.weight.uniform_(0.5, 1.5)
                norm.bias.uniform_(1, 2).mul_(norm.weight)
        for parameter in module.parameters():
            if parameter.is_floating_point() and parameter.numel() > 1 and parameter.max() == parameter.min():
                if parameter[(0,) * parameter.ndim] == 0:
                    parameter.normal_(0, 0.1)
                else:
                    parameter.uniform_(0.5, 1.5)


def _warm(module: nn.Module, model: Model) -> None:
    """Statistics of batch norms, from four random inputs at once: one would have no variance behind a global pool."""
    norms = [each for each in module.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    module.eval()
    for norm in norms:
        norm.train()
        norm.momentum = None  # the mean of all batches
    with torch.no_grad():
        for _ in range(BATCHES):
            module(*(_draw(Input((4, *item.shape[1:]), item.below)) for item in model.inputs))
    module.eval()


def program(model: Model) -> tuple[ExportedProgram, tuple[Tensor, ...]]:
    """The quantized program, and the inputs that it is compared on."""
    module, inputs = build(model)
    return quantize.SCHEMES[model.scheme](module, inputs), inputs[0]


def outputs(exported: ExportedProgram, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """What torch computes."""
    with torch.no_grad():
        found = exported.module()(*inputs)
    flat = torch.utils._pytree.tree_leaves(found)
    return [each for each in flat if isinstance(each, Tensor)]


def steps(exported: ExportedProgram) -> list[float | None]:
    """For each output, the scale of the quantizer that it comes from; None for one that was computed in float."""
    found: list[float | None] = []
    (last,) = (node for node in exported.graph.nodes if node.op == "output")
    for node in fx.node.map_arg(last.args[0], lambda node: node):
        while str(node.target) in MOVES:
            node = node.args[0]
        quantized = str(node.target).startswith("quantized_decomposed.dequantize_per_tensor")
        found.append(float(node.args[1]) if quantized and isinstance(node.args[1], float) else None)
    return found
