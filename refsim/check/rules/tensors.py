"""Single tensors: dtype, layout, storage, number of dims, size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from refsim.check.conditions import literal
from refsim.check.finding import Level
from refsim.check.rule import Hit, Rule
from refsim.check.runtime import Runtime
from refsim.check.subject import BUFFER, Call, Delegate, Method, Operand
from refsim.formats.vkgraph.schema import UNSET_DATATYPE


def _all(method: Method) -> Iterator[tuple[Delegate, Operand]]:
    for delegate in method.delegates:
        for operand in delegate.operands:
            yield delegate, operand


def _computed(method: Method) -> Iterator[tuple[Delegate, Operand]]:
    return ((delegate, operand) for delegate, operand in _all(method) if not operand.is_constant)


def no_dtype(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for delegate, operand in _all(method):
        if operand.tensor.datatype == UNSET_DATATYPE:
            yield Hit(delegate.place(operand.value))


def unknown_layout(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for delegate, operand in _all(method):
        if operand.layout is None:
            yield Hit(delegate.place(operand.value), {"layout": operand.tensor.memory_layout})


def packed_not_int8(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for delegate, operand in _computed(method):
        if operand.is_packed_int8 and operand.dtype != "INT8":
            facts = {"layout": operand.layout, "dtype": operand.dtype.lower()}
            yield Hit(delegate.place(operand.value), facts)


def packed_texture(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for delegate, operand in _computed(method):
        if operand.is_packed_int8 and operand.storage != BUFFER:
            yield Hit(delegate.place(operand.value), {"layout": operand.layout})


def texture_rank(method: Method, runtime: Runtime) -> Iterator[Hit]:
    most = runtime.limits["texture_rank"]
    for delegate, operand in _computed(method):
        if operand.storage != BUFFER and len(operand.dims) > most:
            yield Hit(delegate.place(operand.value), {"dims": list(operand.dims), "most": most})


def texture_extent(method: Method, runtime: Runtime) -> Iterator[Hit]:
    limits = runtime.limits["texture_x"], runtime.limits["texture_y"], runtime.limits["texture_z"]
    yield from _too_large(method, limits)


def texture_device(method: Method, runtime: Runtime) -> Iterator[Hit]:
    small, large = runtime.limits["texture_small"], runtime.limits["texture_x"]
    for hit in _too_large(method, (small, small, small)):
        if max(hit.facts["extents"]) <= large:  # type: ignore[call-overload]
            yield hit


def _too_large(method: Method, limits: tuple[int, int, int]) -> Iterator[Hit]:
    for delegate, operand in _computed(method):
        if operand.storage != BUFFER and not operand.is_packed_int8:
            extents = operand.extents
            if any(extent > limit for extent, limit in zip(extents, limits, strict=True)):
                facts = {"extents": list(extents), "limits": list(limits), "dims": list(operand.dims)}
                yield Hit(delegate.place(operand.value), facts)


def _texels(call: Call, factors: list[Mapping[str, Any]]) -> int | None:
    """The product of an extent's factors: a tensor's size over ``per``, rounded up, or an entry of a list."""
    total = 1
    for factor in factors:
        if "dim" in factor:
            operand = call.operand(factor["arg"])
            if operand is None or not -len(operand.dims) <= factor["dim"] < len(operand.dims):
                return None
            groups = literal(call, factor["groups"]) if "groups" in factor else 1
            if not isinstance(groups, int) or groups <= 0:
                return None
            found: object = operand.dims[factor["dim"]] // groups
        else:
            items = literal(call, factor["arg"])
            at = factor["item"]
            found = items[at] if isinstance(items, tuple) and at < len(items) else None
        if not isinstance(found, int):
            return None
        total *= -(-found // factor.get("per", 1))
    return total


def weight_texture(method: Method, runtime: Runtime) -> Iterator[Hit]:
    limit = runtime.limits["texture_2d"]
    rows = {name: row for row in runtime.weights for name in row["operators"]}
    for call in method.calls:
        row = rows.get(call.name)
        if row is None:
            continue
        extents = [_texels(call, row[axis]) for axis in ("x", "y")]
        if any(extent is not None and extent > limit for extent in extents):
            facts = {"extents": extents, "limit": limit, "operator": call.name}
            yield Hit(call.place(call.id(row["weight"])), facts)


RULES = (
    Rule(
        "tensor-dtype",
        Level.ERROR,
        "the tensor has no dtype",
        "loading throws: Invalid VkDataType type encountered",
        "write the tensor with a dtype",
        no_dtype,
    ),
    Rule(
        "tensor-layout",
        Level.ERROR,
        "the tensor has an unknown memory layout, {layout}",
        "loading throws: Invalid memory layout encountered",
        "write a layout of the schema",
        unknown_layout,
    ),
    Rule(
        "packed-dtype",
        Level.ERROR,
        "the tensor is {dtype} in the packed int8 layout {layout}",
        "loading throws: packed layouts hold int8 only",
        "give the tensor a layout of its dtype",
        packed_not_int8,
    ),
    Rule(
        "packed-texture",
        Level.ERROR,
        "the tensor has the packed int8 layout {layout} in a texture",
        "no kernel binds packed int8 tensors as textures; for most layouts loading throws",
        "store the tensor in a buffer",
        packed_texture,
    ),
    Rule(
        "texture-rank",
        Level.ERROR,
        "a texture has to hold a tensor of {dims}; it takes at most {most} dims",
        "shaders get the sizes of a texture as four numbers: building the graph throws or crashes",
        "store tensors of more than {most} dims in buffers",
        texture_rank,
    ),
    Rule(
        "texture-extent",
        Level.WARNING,
        "the tensor {dims} needs a texture of {extents} texels; the exporter's own limits are {limits}",
        "release builds do not check the size of an image: the content of one beyond the device's limit is undefined",
        "export with smaller texture_limits, so that the tensor lies in a buffer",
        texture_extent,
    ),
    Rule(
        "texture-device",
        Level.NOTE,
        "the tensor {dims} needs a texture of {extents} texels; many desktop GPUs stop at {limits}",
        "release builds do not check the size of an image: the content of one beyond the device's limit is undefined",
        "export with small_texture_limits for such devices",
        texture_device,
    ),
    Rule(
        "weight-texture",
        Level.ERROR,
        "the packed weight of {operator} needs a 2-d texture of {extents} texels; devices stop at {limit}",
        "the runtime puts it into a buffer, but the kernel reads its weight from a texture",
        "split the layer, or leave it in float",
        weight_texture,
    ),
)
