"""What a compute module asks of its caller: bindings, push constants, specialization constants, workgroup size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from refsim.spirv.instruction import Instruction
from refsim.spirv.module import Module, Section
from refsim.spirv.opcodes import Decoration, Op, StorageClass
from refsim.spirv.types import Member, Types

STORAGE_BUFFER, UNIFORM_BLOCK = "storage buffer", "uniform block"
SAMPLED = {1: "sampled image 2d", 2: "sampled image 3d"}  # SPIR-V's numbers of the dims, 2D and 3D
STORED = {1: "storage image 2d", 2: "storage image 3d"}
IMAGES = (*SAMPLED.values(), *STORED.values())

GL_COMPUTE = 5
MAX_BINDINGS = 256  # kernels have a dozen; the bound keeps damaged files from taking long
LOCAL_SIZE, LOCAL_SIZE_ID, WORKGROUP_SIZE = 17, 38, 25  # two execution modes and a built-in

#: SPIR-V's number of an image format -> components that a texel keeps. 0 is no format: four, as the shader sees them.
FORMATS = {0: 4, 1: 4, 3: 1, 21: 4, 24: 1, 30: 4, 33: 1, 6: 2, 25: 2, 35: 2}


class Binding(NamedTuple):
    """One descriptor of set 0.

    ``kind`` is one of the words above. ``element`` is what a buffer's array or an image holds: ``int``, ``float``,
    ``ivec4``, ``vec4``...; "" for a block without an array. ``stride`` is the bytes of an element in a runtime array
    (0 without one), ``nbytes`` the bytes in front of it, or of the whole block. ``members`` describes a block.
    ``variable`` is the id in the module. ``name`` is the variable's, else the block's, "" without OpName.
    """

    number: int
    kind: str
    element: str
    readable: bool
    writable: bool
    name: str
    stride: int
    nbytes: int
    members: tuple[Member, ...]
    variable: int


class SpecConstant(NamedTuple):
    """A specialization constant; ``default`` is its word, as an unsigned number. Booleans are 0 or 1.

    Where a module makes several of one id, the first one is described.
    """

    id: int
    type: str
    default: int
    name: str


class Interface(NamedTuple):
    """All that a caller must know.

    ``local_size`` are the defaults; ``local_size_ids`` names the specialization constant of each axis, None where the
    size is fixed. ``push_bytes`` counts to the end of the last member. ``bindings`` are in the order of their numbers.
    """

    bindings: tuple[Binding, ...]
    push_bytes: int
    push: tuple[Member, ...]
    spec: tuple[SpecConstant, ...]
    local_size: tuple[int, int, int]
    local_size_ids: tuple[int | None, int | None, int | None]
    capabilities: frozenset[int]
    extensions: tuple[str, ...]
    entry_point: str

    @property
    def spec_ids(self) -> dict[int, int]:
        """Id of each specialization constant -> its default."""
        return {row.id: row.default for row in self.spec}

    def local(self, spec: Mapping[int, int]) -> tuple[int, int, int]:
        """The workgroup size with these specialization constants (id -> word); defaults for the others."""
        pairs = zip(self.local_size, self.local_size_ids, strict=True)
        x, y, z = (size if number is None else spec.get(number, size) for size, number in pairs)
        return x, y, z


def interface(module: Module) -> Interface:
    """Describe a module with one compute entry point.

    Raises FormatError for a module that contradicts itself, UnsupportedError for another kind of shader, several
    entry points, descriptors of another set, arrays of descriptors, and kinds of descriptors that are not listed here.
    """
    types = Types(module)
    entry = entry_point(module)
    push = _push(module, types)
    size, ids = _local_size(module, types, entry.args[1])
    return Interface(
        bindings(module, types),
        max((member.offset + member.nbytes for member in push), default=0),
        push,
        _spec(module, types),
        size,
        ids,
        frozenset(row.args[0] for row in rows_of(module, Section.CAPABILITY, Op.CAPABILITY)),
        tuple(row.text(0) for row in rows_of(module, Section.EXTENSION, Op.EXTENSION)),
        entry.text(2),
    )


def rows_of(module: Module, section: Section, op: int) -> list[Instruction]:
    return [row for row in module.sections[section] if row.op == op]


def entry_point(module: Module) -> Instruction:
    """The one OpEntryPoint; UnsupportedError if there are several, or if it is no compute shader."""
    rows = rows_of(module, Section.ENTRY_POINT, Op.ENTRY_POINT)
    if len(rows) != 1:
        raise module.refusal("entry points", got=len(rows), need=1)
    if rows[0].args[0] != GL_COMPUTE:
        raise module.refusal(
            "not a compute shader", got=f"execution model {rows[0].args[0]}", need=GL_COMPUTE
        )
    return rows[0]


def bindings(module: Module, types: Types) -> tuple[Binding, ...]:
    """The descriptors of a module, by number; two variables of one number are one binding."""
    found: dict[int, Binding] = {}
    for row in module.globals:
        if row.op != Op.VARIABLE or row.args[2] not in (
            StorageClass.UNIFORM_CONSTANT,
            StorageClass.UNIFORM,
            StorageClass.STORAGE_BUFFER,
        ):
            continue
        new = _binding(module, types, row)
        if len(found) >= MAX_BINDINGS:
            raise module.refusal("bindings", got=f"more than {MAX_BINDINGS}", need=f"<= {MAX_BINDINGS}")
        old = found.get(new.number)
        if old is None:
            found[new.number] = new
            continue
        if {old.kind, new.kind} != {STORAGE_BUFFER}:
            raise module.refusal(
                f"binding {new.number} is declared twice",
                got=f"{old.kind}, {new.kind}",
                need="storage buffers",
            )
        found[new.number] = old._replace(
            readable=old.readable or new.readable, writable=old.writable or new.writable
        )
    return tuple(found[number] for number in sorted(found))


def _binding(module: Module, types: Types, row: Instruction) -> Binding:
    variable, storage = row.args[1], row.args[2]
    name = types.names.get(variable, "")
    called = f"variable %{variable}" + (f" ({name})" if name else "")
    number = types.decoration(variable, Decoration.BINDING)
    descriptor_set = types.decoration(variable, Decoration.DESCRIPTOR_SET, 0)
    if number is None:
        raise module.error(f"{called} has no binding", need="a Binding decoration")
    if descriptor_set:
        raise module.refusal(f"{called} is in another descriptor set", got=descriptor_set, need=0)
    type_id = types.pointee(row.args[0])
    kind = types.row(type_id)
    if kind.op in (Op.TYPE_ARRAY, Op.TYPE_RUNTIME_ARRAY):
        raise module.refusal(
            f"{called} is an array of descriptors", got=types.text(type_id), need="one descriptor"
        )
    if storage == StorageClass.UNIFORM_CONSTANT:
        return _image(module, types, number, variable, type_id, called)
    if kind.op != Op.TYPE_STRUCT:
        raise module.error(f"{called} is no block", got=kind.name, need="OpTypeStruct")
    members = types.members(type_id)
    uniform = storage == StorageClass.UNIFORM and not types.has(type_id, Decoration.BUFFER_BLOCK)
    array = members[-1] if members and types.row(kind.args[-1]).op == Op.TYPE_RUNTIME_ARRAY else None
    alone = members[0] if len(members) == 1 and members[0].stride else None
    element = (array or alone).type.rsplit("[", 1)[0] if array or alone else ""  # type: ignore[union-attr]
    return Binding(
        number,
        UNIFORM_BLOCK if uniform else STORAGE_BUFFER,
        element,
        uniform or not _everywhere(types, variable, type_id, Decoration.NON_READABLE),
        not uniform and not _everywhere(types, variable, type_id, Decoration.NON_WRITABLE),
        name or types.names.get(type_id, ""),
        array.stride if array else 0,
        array.offset if array else max((m.offset + m.nbytes for m in members), default=0),
        members,
        variable,
    )


def _everywhere(types: Types, variable: int, struct: int, kind: int) -> bool:
    """Whether a decoration is on a variable, or on all members of its block."""
    count = len(types.rows[struct].args) - 1
    return types.has(variable, kind) or (
        count > 0 and all(kind in types.member_decorations.get((struct, i), {}) for i in range(count))
    )


def image_type(types: Types, number: int) -> Instruction | None:
    """The OpTypeImage of an image or of a sampled image; None for another type."""
    row = types.row(number)
    if row.op == Op.TYPE_SAMPLED_IMAGE:
        row = types.row(row.args[1])
    return row if row.op == Op.TYPE_IMAGE else None


def _image(module: Module, types: Types, number: int, variable: int, type_id: int, called: str) -> Binding:
    image = image_type(types, type_id)
    if image is None:
        raise module.refusal(
            f"{called} is no image", got=types.text(type_id), need="an image with its sampler"
        )
    _, component, dim, _, arrayed, multisampled, sampled, texels = image.args[:8]
    kinds = STORED if sampled == 2 else SAMPLED
    if dim not in kinds or arrayed or multisampled or sampled not in (1, 2):
        got = f"dim {dim}" + ", arrayed" * bool(arrayed) + ", multisampled" * bool(multisampled)
        raise module.refusal(f"{called} is an image of another kind", got=got, need="2D or 3D")
    scalar = types.text(component)
    stored = sampled == 2
    return Binding(
        number,
        kinds[dim],
        texel_type(scalar, FORMATS.get(texels, 4)),
        not stored or not types.has(variable, Decoration.NON_READABLE),
        stored and not types.has(variable, Decoration.NON_WRITABLE),
        types.names.get(variable, ""),
        0,
        0,
        (),
        variable,
    )


def texel_type(scalar: str, components: int) -> str:
    """The GLSL type of a texel as it lies in a buffer."""
    prefix = {"float": "", "int": "i", "uint": "u"}.get(scalar, f"{scalar} ")
    return scalar if components == 1 else f"{prefix}vec{components}"


def _push(module: Module, types: Types) -> tuple[Member, ...]:
    for row in module.globals:
        if row.op == Op.VARIABLE and row.args[2] == StorageClass.PUSH_CONSTANT:
            return types.members(types.pointee(row.args[0]))
    return ()


def _spec(module: Module, types: Types) -> tuple[SpecConstant, ...]:
    found: dict[int, SpecConstant] = {}
    for row in module.globals:
        if row.op not in (Op.SPEC_CONSTANT_TRUE, Op.SPEC_CONSTANT_FALSE, Op.SPEC_CONSTANT):
            continue
        number = types.decoration(row.result, Decoration.SPEC_ID)
        if number is None:
            continue  # a constant that nobody can set
        kind = types.text(row.type)
        if row.op == Op.SPEC_CONSTANT and len(row.args) != 3:
            raise module.refusal(f"specialization constant {number} is not a word", got=kind, need="32 bits")
        default = row.args[2] if row.op == Op.SPEC_CONSTANT else int(row.op == Op.SPEC_CONSTANT_TRUE)
        # glslang makes a second constant of one id, with another default, for a local size that has a name
        if number not in found:
            found[number] = SpecConstant(number, kind, default, types.names.get(row.result, ""))
    return tuple(found[number] for number in sorted(found))


def _local_size(
    module: Module, types: Types, function: int
) -> tuple[tuple[int, int, int], tuple[int | None, int | None, int | None]]:
    """Sizes and the specialization constants that set them; a WorkgroupSize constant goes before execution modes."""
    for target, decorations in types.decorations.items():
        if decorations.get(Decoration.BUILT_IN) == (WORKGROUP_SIZE,):
            row = types.row(target, Op.SPEC_CONSTANT_COMPOSITE, Op.CONSTANT_COMPOSITE)
            return _three(module, types, row.args[2:])
    for row in module.sections[Section.EXECUTION_MODE]:
        if row.args[0] == function and row.op == Op.EXECUTION_MODE and row.args[1] == LOCAL_SIZE:
            if len(row.args) != 5:
                raise module.error("LocalSize is cut short", got=len(row.args) - 2, need="3 sizes")
            return row.args[2:5], (None, None, None)
        if row.args[0] == function and row.op == Op.EXECUTION_MODE_ID and row.args[1] == LOCAL_SIZE_ID:
            return _three(module, types, row.args[2:])
    raise module.error("no workgroup size", need="LocalSize, LocalSizeId or a WorkgroupSize constant")


def _three(
    module: Module, types: Types, ids: tuple[int, ...]
) -> tuple[tuple[int, int, int], tuple[int | None, int | None, int | None]]:
    if len(ids) != 3:
        raise module.error("workgroup size", got=f"{len(ids)} sizes", need=3)
    sizes = [types.row(one, Op.CONSTANT, Op.SPEC_CONSTANT).args[2] for one in ids]
    numbers = [types.decoration(one, Decoration.SPEC_ID) for one in ids]
    return (sizes[0], sizes[1], sizes[2]), (numbers[0], numbers[1], numbers[2])
