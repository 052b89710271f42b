"""Writes a module of SPIR-V 1.4 to 1.6 as one of 1.3, which is what a device opened for Vulkan 1.1 takes.

Compilers write what Vulkan's version allows, and kernels seldom need it: then only the list of variables at the entry
point and the form of a workgroup size differ. A module that does use something newer stays as it is; drivers take it
all the same, although Vulkan does not say so.
"""

from __future__ import annotations

from refsim.spirv.instruction import Instruction, string_words
from refsim.spirv.module import Module, Section
from refsim.spirv.opcodes import Decoration, Op, StorageClass
from refsim.spirv.reflect import LOCAL_SIZE, LOCAL_SIZE_ID, WORKGROUP_SIZE

VERSION = (1, 3)
#: The last instruction of SPIR-V 1.3; extensions have higher numbers, and some of them are part of a later version.
LAST = 366
IMAGES = range(86, 101)  # in 1.4 they may say how integers are extended
COPY_MEMORY = (Op.COPY_MEMORY, Op.COPY_MEMORY_SIZED)
COMPOSITES = (Op.TYPE_VECTOR, Op.TYPE_ARRAY, Op.TYPE_STRUCT)
LISTED = (StorageClass.INPUT, 3)  # and outputs, which kernels have none of


def lowered(work: Module) -> None:
    """Change a module to SPIR-V 1.3 if it holds nothing newer; FormatError if it names what it does not define."""
    try:
        if work.version > VERSION and not _is_newer(work):
            _lower(work)
    except (KeyError, IndexError) as error:
        raise work.error(
            "an instruction names what is not defined, or has too few words", got=error
        ) from error


def _lower(work: Module) -> None:
    made = work.definitions()
    entries = work.sections[Section.ENTRY_POINT]
    for at, row in enumerate(entries):
        head = 2 + len(string_words(row.text(2)))
        kept = [one for one in row.args[head:] if made[one].args[2] in LISTED]
        entries[at] = row.with_args(*row.args[:head], *kept)
    _sizes(work)
    work.set_version(VERSION)


def _is_newer(work: Module) -> bool:
    types = {row.result: row.type for row in work.instructions()}
    made = work.definitions()
    for row in work.instructions():
        if row.op > LAST or row.op in COPY_MEMORY or row.op in IMAGES:
            return True
        if (
            row.op == Op.SELECT
            and made[row.type].op in COMPOSITES
            and made[types[row.args[2]]].op == Op.TYPE_BOOL
        ):
            return True
    return False


def _sizes(work: Module) -> None:
    """A workgroup size that is named by ids becomes a constant with the built-in's decoration."""
    modes = work.sections[Section.EXECUTION_MODE]
    for at, row in enumerate(modes):
        if row.op == Op.EXECUTION_MODE_ID and row.args[1] == LOCAL_SIZE_ID:
            made = work.definitions()
            sizes = [made[one] for one in row.args[2:]]
            if not _has_built_in(work):
                three = work.type(Op.TYPE_VECTOR, sizes[0].type, 3)
                composite = work.add(Op.SPEC_CONSTANT_COMPOSITE, three, *row.args[2:])
                work.decorate(composite, Decoration.BUILT_IN, WORKGROUP_SIZE)
            modes[at] = Instruction(
                Op.EXECUTION_MODE, (row.args[0], LOCAL_SIZE, *(size.args[2] for size in sizes))
            )


def _has_built_in(work: Module) -> bool:
    return any(
        row.op == Op.DECORATE and row.args[1:3] == (Decoration.BUILT_IN, WORKGROUP_SIZE)
        for row in work.sections[Section.ANNOTATION]
    )
