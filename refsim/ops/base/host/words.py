"""The names of `ModuleCall` that are no sizes or parameters: blocks, words of tensors, rules for sizes, views.

A name may have a tensor (``layout:x``). Tensors have the names of the operator's arguments; ``out`` is the output.
`host.expression` looks words up. docs/modules.md lists the names, docs/own-kernels.md everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from refsim.core import choices
from refsim.core.errors import ParameterError
from refsim.core.launch import Triple
from refsim.core.tensor import TensorDesc
from refsim.ops.base.host import tensor
from refsim.ops.base.host.row import Shader
from refsim.ops.base.host.weights import up4
from refsim.ops.base.spec import Call


@dataclass(frozen=True)
class CallSite:
    """A call at the place where its words are looked up.

    ``tensors`` are inputs and output by argument, as the host sees them. ``whole`` is the call that the graph holds:
    another one where an operator expands to several. ``fed`` are the inputs that another of its parts computes.
    """

    call: Call
    whole: Call
    tensors: Mapping[str, TensorDesc]
    fed: frozenset[str]
    shader: Shader

    def tensor(self, name: str) -> TensorDesc:
        """The tensor of that name; ParameterError if the operator has none."""
        if name not in self.tensors:
            raise self.unknown("tensor", name, self.tensors)
        return self.tensors[name]

    def unknown(self, what: str, word: str, allowed: Any) -> ParameterError:
        """An error that names a word of a row and the words that would do."""
        return ParameterError(
            f"{self.call.op.name}: module", f"unknown {what}", got=word, need=choices.need(word, allowed)
        )

    def parameter(self, name: str) -> Any:
        """A parameter that a word needs; ParameterError if the operator has none of that name."""
        if not hasattr(self.call.params, name):
            where = f"{self.call.op.name}: module"
            raise ParameterError(where, f"a word needs {name}", need="an operator with that parameter")
        return getattr(self.call.params, name)

    def is_image(self, name: str) -> bool:
        return name in self.shader.textures


def split(word: str) -> tuple[str, str]:
    """``layout:x`` as ("layout", "x"); a word without a tensor has an empty one."""
    name, _, of = word.partition(":")
    return name, of


# --- parameter blocks ------------------------------------------------------------------------------------


def _meta(site: CallSite, of: str) -> np.ndarray:
    desc = site.tensor(of)
    return tensor.texture_metadata(desc) if site.is_image(of) else tensor.buffer_metadata(desc)


def _conv_params(site: CallSite, of: str) -> np.ndarray:
    """Conv2DParams: the window, width first, then channels of a group and lengths of K; 17 words of 20."""
    p, whole, groups = site.call.params, site.whole, site.parameter("groups")
    per_group = site.tensor("x").shape[-3] // groups
    logical = p.taps * per_group
    pairs = (p.kernel_size, p.stride, p.padding, p.dilation)
    k = 4 * up4(logical)
    out_per_group = whole.out.shape[-3] // groups
    counts = (groups, out_per_group, per_group, logical, k, k // 4)
    whole_k = (logical * groups, k * groups, k * groups // 4)
    return np.array(
        [*(size for h, w in pairs for size in (w, h)), *counts, *whole_k, 0, 0, 0], np.int32
    ).view("<u4")


#: A word of `ModuleCall.bindings` that is a parameter block -> its content, uint32.
BLOCKS: Mapping[str, Callable[[CallSite, str], np.ndarray]] = {
    "meta": _meta,
    "sizes": lambda site, of: tensor.sizes_block(site.tensor(of)),
    "conv_params": _conv_params,
}


# --- words -----------------------------------------------------------------------------------------------

ACTIVATIONS = {"none": 0, "relu": 1}


def _config(site: CallSite, of: str) -> int:
    """``config:out`` is the configuration of a tensor alone, ``config:x/out`` that of x beside the output's."""
    name, _, _ = of.partition("/")
    return tensor.block_config(site.tensor(name), site.tensor("out"), site.tensor(other(of)))


def _apply_bias(site: CallSite, of: str) -> int:
    if "bias" not in site.call.consts:
        raise site.unknown("word", "apply_bias", site.call.consts)
    return int(site.call.consts["bias"] is not None)


def other(pair: str) -> str:
    """The tensor beside the output in ``x/out`` and ``out/x``; the output itself in ``out``."""
    return next((name for name in pair.split("/") if name != "out"), "out")


#: A word that is no size and no parameter -> its value, unsigned.
WORDS: Mapping[str, Callable[[CallSite, str], int]] = {
    "k4": lambda site, of: up4(site.tensor("x").shape[-3] // site.parameter("groups")),
    "oc4": lambda site, of: up4(site.call.out.shape[-3] // site.parameter("groups")),
    "layout": lambda site, of: tensor.hashed(site.tensor(of), site.is_image(of)),
    "config": _config,
    "apply_bias": _apply_bias,
    "activation": lambda site, of: ACTIVATIONS[site.parameter("activation")],
    "fed": lambda site, of: int(of in site.fed),
}


# --- sizes -----------------------------------------------------------------------------------------------


def walked(site: CallSite, pair: str) -> tuple[TensorDesc, tuple[int, int]]:
    """The output, and the inner and outer dim of the blocks in which a kernel walks a pair of tensors."""
    out, name = site.tensor("out"), pair.partition("/")[0]
    return out, tensor.block_dims(site.tensor(name), out, site.tensor(other(pair)))


def _blocks(site: CallSite, pair: str) -> Triple:
    """Blocks in a row; along the axes if the kernel takes an image."""
    along = tensor.extents(*walked(site, pair))
    return along if site.shader.textures else (prod(along), 1, 1)


def rows_of(desc: TensorDesc) -> int:
    """Rows of a tensor, of all outer dims."""
    return desc.numel // desc.shape[-1]


#: Global sizes by name and tensors.
GLOBALS: Mapping[str, Callable[[CallSite, str], Triple]] = {
    "blocks": _blocks,
    "extents": lambda site, pair: tensor.extents(*walked(site, pair)),
    "words": lambda site, of: (up4(site.tensor(of).buffer_numel), 1, 1),
    "fours": lambda site, of: (up4(site.tensor(of).numel), 1, 1),
    "tiles": lambda site, of: (up4(rows_of(site.tensor(of))) * up4(site.tensor(of).shape[-1]), 1, 1),
}


def global_size(site: CallSite, word: str) -> Triple:
    """The invocations along x, y and z by a rule of `GLOBALS`."""
    name, of = split(word)
    if name not in GLOBALS:
        raise site.unknown("global size", word, [*GLOBALS, "three words"])
    return GLOBALS[name](site, of)


def default_local(size: Triple) -> Triple:
    """64 invocations: along one axis; 16 x 4 or 32 x 2 along two; 8 x 4 x 2 or fewer along three.

    The axes are ranked by their size. With three different ranks a host gives the axes each other's shares where the
    ranking is a turn of all three; so does this.
    """
    ranked = sorted(range(3), key=lambda axis: -size[axis])
    first, second, third = 8, max(1, min(4, size[ranked[1]])), max(1, min(2, size[ranked[2]]))
    if size[ranked[2]] == 1:
        if size[ranked[1]] == 1:
            first, second = 64, 1
        else:
            first, second = (16, 4) if size[ranked[1]] % 4 == 0 else (32, 2)
    shares = (first, second, third)
    return (shares[ranked[0]], shares[ranked[1]], shares[ranked[2]])


def _square(site: CallSite, size: Triple, of: str) -> Triple:
    if size[0] >= 6 and size[1] >= 6:
        return (8, 8, 1)
    return (4, 16, 1) if size[0] < 6 else (16, 4, 1)


def _wide_or_deep(size: Triple, thin: bool) -> Triple:
    if size[0] >= 6 and size[2] >= 6:
        return (8, 1, 8)
    if thin and size[0] < 2:
        return (1, 1, 64)
    return (64, 1, 1) if size[2] < 2 else (16, 1, 4)


def _narrow(size: Triple, most: int) -> Triple | None:
    """For outputs of a few groups of columns and many channels."""
    if size[0] == 2 and size[2] >= 32:
        return (2, 1, 32)
    return (4, 1, 16) if 3 <= size[0] <= most and size[2] >= 16 else None


def _conv(site: CallSite, size: Triple, narrow: bool) -> Triple:
    if site.tensor("out").shape[-2] >= 100 and size[0] >= 24 and size[2] >= 24:
        return (8, 1, 8)
    if size[0] >= 4 and size[1] >= 2 and size[2] >= 8:
        return (4, 2, 8)
    return (_narrow(size, 3) if narrow else None) or _wide_or_deep(size, thin=True)


def _blocked(site: CallSite, size: Triple, pair: str) -> Triple:
    if size[1] == size[2] == 1:
        return (64, 1, 1)
    _, dims = walked(site, pair)
    x, y, z = (8 if axis in dims else 1 for axis in range(3))
    return (x, y, z)


#: Workgroups by name, from the global size and tensors.
LOCALS: Mapping[str, Callable[[CallSite, Triple, str], Triple]] = {
    "default": lambda site, size, of: default_local(size),
    "blocked": _blocked,
    "square": _square,
    "conv": lambda site, size, of: _conv(site, size, narrow=False),
    "conv_narrow": lambda site, size, of: _conv(site, size, narrow=True),
    "depthwise": lambda site, size, of: _wide_or_deep(size, thin=False),
    "depthwise_narrow": lambda site, size, of: _narrow(size, 4) or _wide_or_deep(size, thin=False),
    "transposed": lambda site, size, of: _wide_or_deep(size, thin=True),
}


def local_size(site: CallSite, size: Triple, word: str) -> Triple:
    """The workgroup: three numbers, or a rule."""
    name, of = split(word)
    if name in LOCALS:
        return LOCALS[name](site, size, of)
    numbers = word.split(",")
    if len(numbers) != 3 or not all(number.isdigit() and int(number) for number in numbers):
        raise site.unknown("local size", word, [*LOCALS, "three numbers"])
    return (int(numbers[0]), int(numbers[1]), int(numbers[2]))


# --- the output as the host sees it ----------------------------------------------------------------------


def _plane(desc: TensorDesc) -> TensorDesc:
    return TensorDesc(desc.shape[-3:], desc.layout, desc.dtype)


def _rows(desc: TensorDesc) -> TensorDesc:
    *outer, channels, height, width = desc.shape
    return TensorDesc((1, channels, prod(outer) * height, width), desc.layout, desc.dtype)


#: `ModuleCall.view`: one image without its batch; all rows of all images as one image.
VIEWS: Mapping[str, Callable[[TensorDesc], TensorDesc]] = {
    "": lambda desc: desc,
    "plane": _plane,
    "rows": _rows,
}
