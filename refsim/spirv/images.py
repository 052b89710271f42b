"""Images as buffers of texels.

Each image becomes a block with a runtime array of texels, row after row and plane after plane. Fetches, reads and
writes become calls of small functions (`refsim.spirv.texels`), one of each kind for an image; questions for the size
are answered by the extents. Functions that take an image are copied for each image that they are called with. What else
may be done with an image is refused: sampling, atomics, images chosen at run time.
"""

from __future__ import annotations

from collections.abc import Sequence

from refsim.spirv.instruction import Instruction
from refsim.spirv.module import MAX_DEPTH, Module, Section
from refsim.spirv.opcodes import Decoration, Op, StorageClass
from refsim.spirv.reflect import FORMATS, STORED, Binding, entry_point, image_type
from refsim.spirv.texels import Texels
from refsim.spirv.types import Types

#: Capabilities that only images need: a device that has no such image should not be asked for them.
IMAGE_CAPABILITIES = frozenset((25, 27, 29, 31, 34, 43, 44, 45, 46, 47, 48, 49, 50, 55, 56))
OPAQUE = (Op.TYPE_IMAGE, Op.TYPE_SAMPLED_IMAGE)
BARRIERS = {Op.CONTROL_BARRIER: 2, Op.MEMORY_BARRIER: 1}  # where the memory semantics stand
IMAGE_MEMORY, UNIFORM_MEMORY = 0x800, 0x40
LOD = 2  # image operands: a level of detail
HARMLESS = 0x3000  # sign or zero extension: nothing to extend in 32 bits
MAX_COPIES = 256  # of functions that take images


def to_buffers(work: Module, pictures: Sequence[Binding], first_id: int) -> dict[int, tuple[int, ...]]:
    """Change ``work``; returns the specialization constants of each binding's extents, from ``first_id`` on."""
    return _Images(work, pictures, first_id).run()


class _Images:
    def __init__(self, work: Module, pictures: Sequence[Binding], first_id: int) -> None:
        self.work, self.pictures, self.next_spec_id = work, pictures, first_id
        self.types = Types(work)
        self.by_variable = {row.variable: row for row in pictures}
        self.texels: dict[int, Texels] = {}
        self.debug = {
            row.result
            for row in work.sections[Section.IMPORT]
            if row.op == Op.EXT_INST_IMPORT and row.text(1).startswith(("NonSemantic.", "OpenCL.DebugInfo"))
        }
        self.functions = {rows[0].result: rows for rows in work.functions}
        self.copies: dict[tuple[int, tuple[int, ...]], int] = {}  # (function, its images) -> the copy
        self.copied: set[int] = set()
        self.made: list[list[Instruction]] = []
        self.depth = 0  # of calls, while functions are copied
        self.gone: set[int] = set()  # ids that nothing makes any more

    def run(self) -> dict[int, tuple[int, ...]]:
        opaque = self.opaque_types()
        self.globals(opaque)
        extent_ids = {}
        for row in self.pictures:
            texels = self.texels[row.variable]
            extent_ids[row.number] = tuple(range(self.next_spec_id, self.next_spec_id + texels.dims))
            texels.extents(extent_ids[row.number], row.name)
            self.next_spec_id += texels.dims
        self.takes = self.image_parameters(opaque)
        self.copy(entry_point(self.work).args[1], ())
        # functions that nothing calls stay if they take no image; they may not use one either
        for number, rows in self.functions.items():
            if not self.takes[number]:
                self.copy(number, ())
            elif number not in self.copied:
                self.gone |= {number, *(made for row in rows if (made := row.result))}
        self.work.functions[:] = self.made
        for row in self.pictures:
            self.work.functions += self.texels[row.variable].functions()
        self.work.forget(self.gone)
        self.tidy(opaque)
        return extent_ids

    # --- globals ----------------------------------------------------------------------------------------------

    def opaque_types(self) -> set[int]:
        """Types of images, pointers to them, and functions that take them."""
        found: set[int] = set()
        for row in self.work.globals:
            holds = row.args[2:] if row.op in (Op.TYPE_POINTER, Op.TYPE_FUNCTION) else ()
            if row.op in OPAQUE or not found.isdisjoint(holds):
                found.add(row.result)
        return found

    def globals(self, opaque: set[int]) -> None:
        """The image variables get the types of buffers; types of images go."""
        rows: list[Instruction] = []
        early: set[int] = set()  # types that were moved in front of a variable that needs them
        here: set[int] = set()
        vectors = {row.args[1:]: row for row in self.work.globals if row.op == Op.TYPE_VECTOR}
        for row in self.work.globals:
            made = row.result
            if made in early:
                continue
            if made in opaque:
                self.gone.add(made)
                continue
            if row.op == Op.VARIABLE and made in self.by_variable:
                texel, new = self.buffer(self.by_variable[made], vectors)
                if texel.op == Op.TYPE_VECTOR and texel.result not in here:
                    rows.append(texel)
                    early.add(texel.result)
                    here.add(texel.result)
                rows += new
            else:
                rows.append(row)
            here.add(made)
        self.work.replace_globals(rows)

    def buffer(
        self, row: Binding, vectors: dict[tuple[int, ...], Instruction]
    ) -> tuple[Instruction, list[Instruction]]:
        """The type of a texel, and the types and the variable of an image's buffer."""
        work, types = self.work, self.types
        kind = types.pointee(types.row(row.variable).args[0])
        image = image_type(types, kind)
        assert image is not None  # reflect saw that it is one
        component, texel_format = image.args[1], image.args[7]
        if texel_format not in FORMATS or types.text(component) not in ("int", "uint", "float"):
            raise work.refusal(
                f"binding {row.number} is an image of other texels",
                got=f"image format {texel_format} of {types.text(component)}",
                need="components of 32 bits",
            )
        components = FORMATS[texel_format]
        texel = types.row(component)
        if components > 1:
            texel = vectors.get((component, components)) or Instruction(
                Op.TYPE_VECTOR, (work.new_id(), component, components)
            )
            vectors[component, components] = texel
        array, block, pointer = work.new_id(), work.new_id(), work.new_id()
        work.decorate(array, Decoration.ARRAY_STRIDE, 4 * components)
        work.decorate(block, Decoration.BLOCK)
        work.decorate_member(block, 0, Decoration.OFFSET, 0)
        if row.kind not in STORED.values():
            work.decorate(row.variable, Decoration.NON_WRITABLE)
        dims = 3 if row.kind.endswith("3d") else 2
        self.texels[row.variable] = Texels(work, row.variable, component, components, texel.result, dims)
        return texel, [
            Instruction(Op.TYPE_RUNTIME_ARRAY, (array, texel.result)),
            Instruction(Op.TYPE_STRUCT, (block, array)),
            Instruction(Op.TYPE_POINTER, (pointer, StorageClass.STORAGE_BUFFER, block)),
            Instruction(Op.VARIABLE, (pointer, row.variable, StorageClass.STORAGE_BUFFER)),
        ]

    def tidy(self, opaque: set[int]) -> None:
        """Drop capabilities and debug information of what went; refuse a module that still uses it."""
        work = self.work
        capabilities = work.sections[Section.CAPABILITY]
        capabilities[:] = [row for row in capabilities if row.args[0] not in IMAGE_CAPABILITIES]
        work.replace_globals([row for row in work.globals if not self.is_debug_of(row, self.gone)])
        for row in work.instructions():
            if not opaque.isdisjoint(row.args) and opaque & {row.args[place] for place in row.id_places()}:
                raise work.refusal("an image is used in a way that no buffer has", got=row.name)

    def is_debug_of(self, row: Instruction, ids: set[int]) -> bool:
        return row.op == Op.EXT_INST and row.args[2] in self.debug and not ids.isdisjoint(row.args[4:])

    # --- functions --------------------------------------------------------------------------------------------

    def image_parameters(self, opaque: set[int]) -> dict[int, list[bool]]:
        """For each function, which of its parameters are images; [] where none is."""
        found = {}
        for number, rows in self.functions.items():
            flags = [row.type in opaque for row in rows if row.op == Op.FUNCTION_PARAMETER]
            found[number] = flags if any(flags) else []
        return found

    def copy(self, number: int, given: tuple[int, ...]) -> int:
        """The function with buffers for the images ``given`` to it (ids of variables); the first copy keeps its ids."""
        key = (number, given)
        if key in self.copies:
            return self.copies[key]
        if len(self.copies) >= MAX_COPIES + len(self.functions):
            raise self.work.refusal("functions take images in too many combinations", need=f"<= {MAX_COPIES}")
        rows = self.functions.get(number)
        if rows is None:
            raise self.work.error("a call of something that is no function", got=f"%{number}")
        if len(given) != sum(self.takes[number]):
            got, need = len(given), f"{sum(self.takes[number])} images"
            raise self.work.error(f"function %{number} is called without its images", got=got, need=need)
        again = number in self.copied
        self.copied.add(number)
        ids = {made: self.work.new_id() for row in rows if (made := row.result)} if again else {}
        self.copies[key] = ids.get(number, number)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.work.refusal("calls are nested too deeply", need=f"<= {MAX_DEPTH} levels")
        body = _Body(self, rows, given).run()
        self.depth -= 1
        if again:
            self.duplicate_annotations({row.result: ids[row.result] for row in body if row.result in ids})
            body = [row.renamed(ids) for row in body]
        self.made.append(body)
        return self.copies[key]

    def duplicate_annotations(self, ids: dict[int, int]) -> None:
        """Names and decorations of a copy, NoContraction among them."""
        for section in (Section.NAME, Section.ANNOTATION):
            rows = self.work.sections[section]
            rows += [row.with_args(ids[row.args[0]], *row.args[1:]) for row in rows if row.args[0] in ids]


class _Body:
    """One function, with the images that it is given."""

    def __init__(self, images: _Images, rows: list[Instruction], given: tuple[int, ...]) -> None:
        self.images, self.work, self.rows = images, images.work, rows
        self.image_of = {variable: variable for variable in images.by_variable}  # id -> the image's variable
        self.flags = images.takes[rows[0].result]
        parameters = [row for row in rows if row.op == Op.FUNCTION_PARAMETER]
        taken = [row.result for row, flag in zip(parameters, self.flags, strict=False) if flag]
        self.image_of.update(zip(taken, given, strict=True))
        self.new: list[Instruction] = []

    def run(self) -> list[Instruction]:
        for row in self.rows:
            self.one(row)
        return self.new

    def one(self, row: Instruction) -> None:
        op, args = row.op, row.args
        if op in BARRIERS:
            row = self.barrier(row)
        elif op == Op.FUNCTION and self.flags:
            row = row.with_args(*args[:3], self.function_type(row))
        elif op == Op.FUNCTION_CALL:
            row = self.call(row)
        elif not self.image_of.keys().isdisjoint(args):
            used = [self.image_of[args[at]] for at in row.id_places() if args[at] in self.image_of]
            if used:
                self.image(row, used)
                return
        self.new.append(row)

    def image(self, row: Instruction, used: list[int]) -> None:
        """An instruction that has an image, or a value that came of one, among its operands."""
        op, args = row.op, row.args
        if self.images.is_debug_of(row, set(self.image_of) - set(self.images.by_variable)):
            self.images.gone.add(row.result)
        elif op == Op.EXT_INST and args[2] in self.images.debug:
            self.new.append(row)
        elif op in (Op.LOAD, Op.IMAGE, Op.COPY_OBJECT, Op.FUNCTION_PARAMETER):
            self.image_of[row.result] = used[0]
            self.images.gone.add(row.result)
        elif op in (Op.IMAGE_FETCH, Op.IMAGE_READ):
            self.operands(row, 4)
            texels = self.images.texels[used[0]]
            place = self.position(row, args[3], texels)
            self.new.append(Instruction(Op.FUNCTION_CALL, (args[0], args[1], texels.reader(args[0]), place)))
        elif op == Op.IMAGE_WRITE:
            self.operands(row, 3)
            texels = self.images.texels[used[0]]
            place = self.position(row, args[1], texels)
            void, made = self.work.type(Op.TYPE_VOID), self.work.new_id()
            kind = self.images.types.row(args[2]).type
            self.new.append(Instruction(Op.FUNCTION_CALL, (void, made, texels.writer(kind), place, args[2])))
        elif op in (Op.IMAGE_QUERY_SIZE_LOD, Op.IMAGE_QUERY_SIZE):
            if op == Op.IMAGE_QUERY_SIZE_LOD:
                self.level(row, args[3])
            self.new += self.images.texels[used[0]].size(args[0], args[1])
        elif op == Op.IMAGE_QUERY_LEVELS:
            self.new.append(Instruction(Op.COPY_OBJECT, (*args[:2], self.work.constant(args[0], 1))))
        else:
            number = self.images.by_variable[used[0]].number
            raise self.work.refusal(
                f"binding {number}: an image is used in a way that no buffer has",
                got=row.name,
                need="fetches, reads, writes and questions for the size",
            )

    def operands(self, row: Instruction, at: int) -> None:
        """Image operands may ask for level 0 and nothing else."""
        mask = row.args[at] if len(row.args) > at else 0
        if mask & ~(LOD | HARMLESS):
            raise self.work.refusal(
                f"{row.name} with other image operands", got=f"{mask:#x}", need="Lod or none"
            )
        if mask & LOD:
            if len(row.args) <= at + 1:
                raise self.work.error(f"{row.name} is cut short", got="no level of detail")
            self.level(row, row.args[at + 1])

    def level(self, row: Instruction, number: int) -> None:
        level = self.images.types.row(number)
        if level.op != Op.CONSTANT_NULL and (level.op != Op.CONSTANT or level.args[2]):
            raise self.work.refusal(
                f"{row.name} of another level", got=f"%{number} ({level.name})", need="level 0"
            )

    def position(self, row: Instruction, number: int, texels: Texels) -> int:
        """The position as the signed vector that the texel functions take."""
        kind = self.images.types.row(number).type
        wanted = texels.position_type
        if kind == wanted:
            return number
        vector = self.images.types.row(kind)
        scalar = self.images.types.row(vector.args[1]) if vector.op == Op.TYPE_VECTOR else vector
        if vector.op != Op.TYPE_VECTOR or scalar.op != Op.TYPE_INT or scalar.args[1] != 32:
            got = self.images.types.text(kind)
            raise self.work.refusal(
                f"{row.name} at another kind of position", got=got, need="32-bit integers"
            )
        if vector.args[2] < texels.dims:
            raise self.work.error(
                f"{row.name}: the position is too short", got=vector.args[2], need=texels.dims
            )
        parts = []
        for axis in range(texels.dims):
            part, signed = self.work.new_id(), self.work.new_id()
            self.new.append(Instruction(Op.COMPOSITE_EXTRACT, (scalar.result, part, number, axis)))
            if scalar.result != texels.word:
                self.new.append(Instruction(Op.BITCAST, (texels.word, signed, part)))
            parts.append(part if scalar.result == texels.word else signed)
        made = self.work.new_id()
        self.new.append(Instruction(Op.COMPOSITE_CONSTRUCT, (wanted, made, *parts)))
        return made

    def function_type(self, row: Instruction) -> int:
        """The function's type without its images."""
        old = self.images.types.row(row.args[3], Op.TYPE_FUNCTION)
        kept = [kind for kind, flag in zip(old.args[2:], self.flags, strict=False) if not flag]
        return self.work.type(Op.TYPE_FUNCTION, old.args[1], *kept)

    def call(self, row: Instruction) -> Instruction:
        """A call of the copy that has these images, without them among its arguments."""
        flags = self.images.takes.get(row.args[2], [])
        given, kept = [], []
        for place, number in enumerate(row.args[3:]):
            if place < len(flags) and flags[place]:
                if number not in self.image_of:
                    raise self.work.refusal(
                        "an image is chosen at run time", got=f"argument {place} of a call"
                    )
                given.append(self.image_of[number])
            elif number in self.image_of:
                raise self.work.error(
                    "an image is given where none is taken", got=f"argument {place} of a call"
                )
            else:
                kept.append(number)
        return row.with_args(*row.args[:2], self.images.copy(row.args[2], tuple(given)), *kept)

    def barrier(self, row: Instruction) -> Instruction:
        """What ordered images orders buffers."""
        at = BARRIERS[row.op]
        semantics = self.images.types.row(row.args[at])
        if semantics.op != Op.CONSTANT or not semantics.args[2] & IMAGE_MEMORY:
            return row
        word = self.work.constant(semantics.type, semantics.args[2] | UNIFORM_MEMORY)
        return row.with_args(*row.args[:at], word, *row.args[at + 1 :])
