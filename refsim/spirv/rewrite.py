"""Rewrites a module so that Kompute can bind it: everything that it binds becomes a storage buffer.

Kompute knows storage buffers alone. Uniform blocks become buffers by another storage class, for their offsets are
explicit in both. Images become arrays of texels (`refsim.spirv.images`), whose extents are new specialization
constants, so that a module is rewritten once for all shapes. With ``guard_words``, every runtime array begins that much
later in its buffer, so that guard words in front of the data are under the kernel's feet too, and a store at a small
negative index is seen.
"""

from __future__ import annotations

from typing import NamedTuple

from refsim.core.counted import counted
from refsim.core.errors import LimitError, ParameterError
from refsim.spirv import images
from refsim.spirv.instruction import Instruction, string_words
from refsim.spirv.module import Module, Section
from refsim.spirv.older import lowered
from refsim.spirv.opcodes import Decoration, Op, StorageClass
from refsim.spirv.reflect import IMAGES, UNIFORM_BLOCK, Binding, interface
from refsim.spirv.types import Types

CHAINS = (Op.ACCESS_CHAIN, Op.IN_BOUNDS_ACCESS_CHAIN, Op.PTR_ACCESS_CHAIN, Op.IN_BOUNDS_PTR_ACCESS_CHAIN)
BUFFERS = (StorageClass.STORAGE_BUFFER, StorageClass.UNIFORM)
MAX_GUARD_WORDS = 1 << 24
MAIN = "main"
MAX_SPEC_ID = 1 << 16  # Kompute wants all of them from 0 on


class Rewritten(NamedTuple):
    """A module for Kompute.

    ``bindings`` are all storage buffers now; their numbers are those of the module that was given. ``extent_ids``
    names, for each binding that was an image, the specialization constants of its width and height, and of its depth in
    3-d. Their values are the image's extents in texels; texel (x, y, z) lies at x + width * (y + height * z).
    """

    code: bytes
    bindings: tuple[Binding, ...]
    extent_ids: dict[int, tuple[int, ...]]


def for_kompute(module: Module, spec_count: int, guard_words: int = 0) -> Rewritten:
    """``module`` with storage buffers only; it is not changed itself.

    The extents' specialization constants have ids from ``spec_count`` on, or from behind the module's highest id.
    ``guard_words`` words lie in front of each runtime array, and the array's length leaves out as many behind it.

    Raises what `reflect.interface` raises; UnsupportedError, with the reason, where an image is used otherwise than by
    fetches, reads, writes and questions for its size; ParameterError if ``guard_words`` is no whole number of elements
    of an array.
    """
    if not 0 <= guard_words <= MAX_GUARD_WORDS:
        raise ParameterError(module.where, "guard words", got=guard_words, need=f"0 to {MAX_GUARD_WORDS}")
    found = interface(module)
    work = module.copy()
    _named_main(work)
    uniforms = [row for row in found.bindings if row.kind == UNIFORM_BLOCK]
    pictures = [row for row in found.bindings if row.kind in IMAGES]
    extent_ids = {}
    if uniforms or pictures:
        _buffers_for_uniforms(work, uniforms)
    if pictures:
        first = max([spec_count, *(row.id + 1 for row in found.spec)])
        if not 0 <= first <= MAX_SPEC_ID:
            raise LimitError(module.where, "specialization constant", got=first, need=f"0 to {MAX_SPEC_ID}")
        extent_ids = images.to_buffers(work, pictures, first)
    if guard_words:
        _shift(work, guard_words)
    lowered(work)
    return Rewritten(work.to_bytes(), interface(work).bindings, extent_ids)


def _named_main(work: Module) -> None:
    """Kompute starts the entry point ``main``; compilers of other languages name it otherwise."""
    rows = work.sections[Section.ENTRY_POINT]
    for at, row in enumerate(rows):
        if row.op == Op.ENTRY_POINT and row.text(2) != MAIN:
            behind = 2 + len(string_words(row.text(2)))
            rows[at] = row.with_args(*row.args[:2], *string_words(MAIN), *row.args[behind:])


def _buffers_for_uniforms(work: Module, uniforms: list[Binding]) -> None:
    """The storage class of buffers for all blocks, and the decoration that goes with it.

    Blocks in the form of SPIR-V 1.0 (BufferBlock, class Uniform) are made new ones as well: then a pointer type never
    needs two storage classes.
    """
    if work.version < (1, 3):
        work.extension("SPV_KHR_storage_buffer_storage_class")
    place = {Op.TYPE_POINTER: 1, Op.VARIABLE: 2, Op.TYPE_FORWARD_POINTER: 1}  # where the storage class stands
    rows = []
    for row in work.globals:
        at = place.get(row.op)
        if at is not None and row.args[at] == StorageClass.UNIFORM:
            rows.append(row.with_args(*row.args[:at], StorageClass.STORAGE_BUFFER, *row.args[at + 1 :]))
        else:
            rows.append(row)
    work.replace_globals(rows)
    annotations = work.sections[Section.ANNOTATION]
    annotations[:] = [
        row.with_args(row.args[0], Decoration.BLOCK)
        if row.op == Op.DECORATE and row.args[1] == Decoration.BUFFER_BLOCK
        else row
        for row in annotations
    ]
    for uniform in uniforms:
        work.decorate(uniform.variable, Decoration.NON_WRITABLE)


def _shift(work: Module, guard_words: int) -> None:
    """Add the guard to every index into a runtime array, take it twice from every question for an array's length."""
    types = Types(work)
    for body in work.functions:
        rows: list[Instruction] = []
        for row in body:
            if row.op in CHAINS:
                rows += _shifted_chain(work, types, row, guard_words)
            elif row.op == Op.ARRAY_LENGTH:
                rows += _shifted_length(work, types, row, guard_words)
            else:
                rows.append(row)
        body[:] = rows


def _elements(work: Module, types: Types, array: int, guard_words: int) -> int:
    """The guard in elements of a runtime array."""
    stride = types.stride(array)
    if not stride or 4 * guard_words % stride:
        raise ParameterError(
            work.where,
            "guard words",
            got=guard_words,
            need=f"whole elements of {types.text(array)}, {counted(stride, 'byte')} each",
        )
    return 4 * guard_words // stride


def _shifted_chain(work: Module, types: Types, row: Instruction, guard_words: int) -> list[Instruction]:
    args = list(row.args)
    pointer = types.row(types.row(args[2]).type, Op.TYPE_POINTER)
    if pointer.args[1] not in BUFFERS:
        return [row]
    rows = []
    kind = pointer.args[2]
    first = 4 if row.op in (Op.PTR_ACCESS_CHAIN, Op.IN_BOUNDS_PTR_ACCESS_CHAIN) else 3
    for at in range(first, len(args)):
        of = types.row(kind)
        if of.op == Op.TYPE_STRUCT:
            member = types.row(args[at], Op.CONSTANT).args[2]
            if member >= len(of.args) - 1:
                raise work.error(f"%{row.result} reaches beyond a block", got=f"member {member}")
            kind = of.args[member + 1]
        elif of.op in (Op.TYPE_ARRAY, Op.TYPE_RUNTIME_ARRAY, Op.TYPE_VECTOR, Op.TYPE_MATRIX):
            kind = of.args[1]
        else:
            raise work.error(f"%{row.result} reaches into something without parts", got=of.name)
        if of.op == Op.TYPE_RUNTIME_ARRAY:
            index_type = types.row(args[at]).type
            if types.row(index_type, Op.TYPE_INT).args[1] != 32:
                raise work.refusal("an index of another width", got=types.text(index_type), need="32 bits")
            shift = work.constant(index_type, _elements(work, types, of.result, guard_words))
            shifted = work.new_id()
            rows.append(Instruction(Op.IADD, (index_type, shifted, args[at], shift)))
            args[at] = shifted
    return [*rows, row.with_args(*args)]


def _shifted_length(work: Module, types: Types, row: Instruction, guard_words: int) -> list[Instruction]:
    kind, made, base, member = row.args
    block = types.row(types.pointee(types.row(base).type), Op.TYPE_STRUCT)
    if member >= len(block.args) - 1:
        raise work.error(f"%{made} asks for the length of a member beyond a block", got=member)
    shift = 2 * _elements(work, types, block.args[member + 1], guard_words)
    all_of_it = work.new_id()
    return [
        row.with_args(kind, all_of_it, base, member),
        Instruction(Op.ISUB, (kind, made, all_of_it, work.constant(kind, shift))),
    ]
