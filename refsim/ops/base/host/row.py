"""One row per operator: how the kernel of another build is called. The words are explained in docs/modules.md.

A row says nothing of a call's sizes. `refsim.ops.base.module_call` turns row and call into bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from refsim.ops.base.host.weights import Packing


@dataclass(frozen=True)
class Shader:
    """One module that computes an operator.

    ``name`` is the file's name without its ending. ``dot_product``: it needs the device's integer dot product;
    ``fallback``: it is for devices without that. ``unsigned``: it adds up unsigned products, so its weights are packed
    with 128 added. ``textures`` are the arguments that it takes as images.
    """

    name: str
    dot_product: bool = False
    fallback: bool = False
    unsigned: bool = False
    textures: tuple[str, ...] = ()

    @property
    def variant(self) -> str:
        """``base``, ``fallback`` or ``unsigned``."""
        return "unsigned" if self.unsigned else "fallback" if self.fallback else "base"


@dataclass(frozen=True)
class PlainWords:
    """A binding that holds plain words, one after the other: a uniform block, or a buffer."""

    words: tuple[str, ...]
    uniform: bool = True

    def __str__(self) -> str:
        return f"{'uniform' if self.uniform else 'buffer'} of {len(self.words)} words"


@dataclass(frozen=True)
class Own:
    """What the row of a kernel says that is not upstream's.

    ``where`` is the place of the row in its file. Specialization words begin with id 0. With ``groups`` its global size
    counts workgroups. ``rounding`` is the numerics profile of the kernel, beside that of the device.
    ``defines_padding``: the padding that it writes is compared. ``layouts`` are those that it takes, by argument, as
    `Layout` prints them; ``relaid`` are those of other libraries, in which it gets tensors, whatever a call says.
    ``flat``: it is a kernel for a runtime whose tensors are flat, in WGSL. ``overrides`` are the names of its
    specialization words there. ``launched``: it is called as refsim calls its own kernel of the operator.
    """

    where: str
    groups: bool = False
    rounding: str = ""
    defines_padding: bool = True
    layouts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    relaid: Mapping[str, str] = field(default_factory=dict)
    flat: bool = False
    overrides: tuple[str, ...] = ()
    launched: bool = False


@dataclass(frozen=True)
class ModuleCall:
    """How a host calls a kernel.

    - ``shaders``: the modules that can do it; the rules of `host.choice` pick one.
    - ``bindings``: what stands at binding 0, 1, ...: tensors, constants, then parameter blocks.
    - ``push``: the push words, ``spec`` the specialization words from id 3 on.
    - ``global_size``: how many invocations are needed along x, y and z, as three words or a rule; ``local_size``: the
      rule for the workgroup.
    - ``packing``: how constants are laid out, by their argument's name. An operator that expands to others may say it
      for them, and has no shaders itself.
    - ``view``: as which shape the host sees the output, if not as the call's own.
    - ``refuses(call)``: why the host refuses a call that refsim takes, or None. Its kernel would be wrong there.
    - ``later``: how later releases call it, oldest first. A module tells by its push words which one it belongs to.
      Where they are the same, ``came_with`` names a module that came with the release, or ``told_by`` the operator
      whose module tells.
    - ``own``: more about a kernel that is not upstream's.
    """

    shaders: tuple[Shader, ...] = ()
    bindings: tuple[str | PlainWords, ...] = ()
    push: tuple[str, ...] = ()
    spec: tuple[str, ...] = ()
    global_size: str | tuple[str, str, str] = ""
    local_size: str = ""
    packing: Mapping[str, Packing] = field(default_factory=dict)
    view: str = ""
    refuses: Callable[[Any], str | None] | None = None
    later: tuple[ModuleCall, ...] = ()
    told_by: str = ""
    came_with: str = ""
    own: Own | None = None

    def since(self, **changes: Any) -> ModuleCall:
        """This row, and how a later release differs from it."""
        return replace(self, later=(*self.later, replace(self, later=(), **changes)))


def plain(*names: str) -> tuple[Shader, ...]:
    """Modules that any device can run."""
    return tuple(Shader(name) for name in names)


def with_dot_product(name: str) -> tuple[Shader, ...]:
    """A module with the integer dot product and one without, weights as an image."""
    return (
        Shader(f"{name}_float", dot_product=True, textures=("weight",)),
        Shader(f"{name}_fallback_float", fallback=True, textures=("weight",)),
    )


def float_tensor(name: str, argument: str) -> tuple[Shader, ...]:
    """Modules whose float tensor is a buffer, and whose float tensor is an image."""
    return (Shader(f"{name}_buffer_float"), Shader(f"{name}_texture3d_float", textures=(argument,)))
