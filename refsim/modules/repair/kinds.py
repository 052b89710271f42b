"""Which instruction may stand in the place of which, as tables: the same types, another meaning."""

from __future__ import annotations

from refsim.spirv.opcodes import Op

_INT = {128: "+", 130: "-", 132: "*", 134: "/", 135: "/", 137: "%", 138: "%", 139: "%"}
_BITS = {194: ">>", 195: ">>", 196: "<<", 197: "|", 198: "^", 199: "&"}
_FLOAT = {129: "+", 131: "-", 133: "*", 136: "/"}
_COMPARED = {
    170: "==", 171: "!=", 172: ">", 173: ">", 174: ">=", 175: ">=", 176: "<", 177: "<", 178: "<=", 179: "<=",
}  # fmt: skip
_COMPARED_FLOAT = {180: "==", 182: "!=", 184: "<", 186: ">", 188: "<=", 190: ">="}
_JOINED = {164: "==", 165: "!=", 166: "||", 167: "&&"}
_CONVERTED = {111: "int to float", 112: "uint to float"}
_TRUNCATED = {110: "int()", 109: "uint()"}
_FIELDS = {202: "bitfieldExtract of an int", 203: "bitfieldExtract of a uint"}
_ANY = {154: "any", 155: "all"}
_DOT = {4450: "a signed dot product", 4451: "an unsigned dot product", 4452: "a mixed dot product"}
_DOT_ADDED = {4453: _DOT[4450], 4454: _DOT[4451], 4455: _DOT[4452]}
_FAMILIES = (
    {**_INT, **_BITS}, _FLOAT, _COMPARED, _COMPARED_FLOAT, _JOINED, _CONVERTED, _TRUNCATED, _FIELDS, _ANY, _DOT,
    _DOT_ADDED,
)  # fmt: skip

#: Opcode -> how people call it.
SAID: dict[int, str] = {op: said for family in _FAMILIES for op, said in family.items()}
#: Opcode -> the opcodes that take and give the same types.
OTHERS: dict[int, tuple[int, ...]] = {
    op: tuple(other for other in family if other != op) for family in _FAMILIES for op in family
}
#: Slips of a key or a sign: these are tried first.
_SLIPS = (
    (128, 130), (128, 132), (134, 137), (134, 132), (135, 138), (135, 132), (194, 196), (195, 196), (194, 195),
    (197, 199), (197, 198), (129, 131), (129, 133), (133, 136), (170, 171), (172, 174), (173, 175), (176, 178),
    (177, 179), (172, 176), (173, 177), (174, 178), (175, 179), (172, 173), (174, 175), (176, 177), (178, 179),
    (172, 178), (173, 179), (174, 176), (175, 177), (134, 135), (137, 138), (137, 139), (184, 188), (186, 190),
    (184, 186), (188, 190), (184, 190), (186, 188), (180, 182), (166, 167), (164, 165), (111, 112), (110, 109),
    (202, 203), (154, 155), (4450, 4452), (4450, 4451), (4453, 4455), (4453, 4454),
)  # fmt: skip
NEAR = frozenset((*_SLIPS, *((b, a) for a, b in _SLIPS)))

#: (Kind of the operand, kind of the result) -> the conversion of numbers, and of bits.
CAST = {(Op.TYPE_FLOAT, Op.TYPE_INT): (110, Op.BITCAST), (Op.TYPE_INT, Op.TYPE_FLOAT): (111, Op.BITCAST)}
#: Opcodes whose two operands may not be exchanged without a difference.
ORDERED = frozenset(
    (130, 131, 134, 135, 136, 137, 138, 139, 141, *range(172, 180), *range(184, 192), 194, 195, 196)
)
#: Opcodes that give another value than one of their operands, although it has their type.
SKIPPED = frozenset(
    (*range(126, 142), 142, *range(194, 206), *range(166, 170), 201, 202, 203, 4453, 4454, 4455)
)

#: Numbers of GLSL's extended instructions, with the names of those that may stand in their place.
_EXTENDED = (
    {1: "round", 2: "roundEven", 3: "trunc", 8: "floor", 9: "ceil", 4: "abs", 6: "sign"},
    {37: "min", 40: "max"}, {38: "min", 41: "max", 39: "min", 42: "max"}, {43: "clamp", 81: "clamp"},
    {44: "clamp", 45: "clamp"}, {5: "abs", 7: "sign"}, {79: "min", 80: "max"},
)  # fmt: skip
EXTENDED_SAID = {number: said for family in _EXTENDED for number, said in family.items()}
EXTENDED = {
    number: tuple(other for other in family if other != number) for family in _EXTENDED for number in family
}
S_CLAMP, F_MAX, S_MAX, ROUND_EVEN = 45, 40, 42, 2
S_DIV, U_DIV = 135, 134
#: Opcodes that take a lane, or the first bit of one: shifts, bit fields, indices.
LANES = frozenset((194, 195, 196, 201, 202, 203, 77, 78, Op.ACCESS_CHAIN, Op.IN_BOUNDS_ACCESS_CHAIN))
#: Opcodes that take and give unsigned numbers alone.
UNSIGNED = frozenset((134, 137))

#: Opcode -> the first operand that is a value and may be replaced.
FIRST_VALUE = {
    Op.STORE: 1, Op.BRANCH_CONDITIONAL: 0, Op.RETURN_VALUE: 0, Op.EXT_INST: 4, Op.ACCESS_CHAIN: 3,
    Op.IN_BOUNDS_ACCESS_CHAIN: 3, Op.FUNCTION_CALL: 3, 251: 0,
}  # fmt: skip
#: Opcodes that nothing is changed in: declarations, and what says how control flows.
LEFT = frozenset((
    Op.LABEL, Op.VARIABLE, Op.FUNCTION, Op.FUNCTION_PARAMETER, Op.FUNCTION_END, Op.LOAD, Op.BRANCH, Op.RETURN,
    Op.LINE, Op.NO_LINE, Op.UNDEF, Op.SELECTION_MERGE, Op.LOOP_MERGE, 255, Op.CONTROL_BARRIER, Op.MEMORY_BARRIER,
    Op.COPY_OBJECT, Op.ARRAY_LENGTH, Op.IMAGE, Op.IMAGE_QUERY_SIZE_LOD, Op.IMAGE_QUERY_SIZE,
))  # fmt: skip
