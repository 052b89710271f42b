"""SPIR-V's instructions as data: numbers, names, and which of their operands are ids.

A pattern has one letter per operand, in the order of the SPIR-V specification:

t  the result's type      r  the result      i  another id      n  a literal word, an enumerant or a mask
s  a string               m  memory operands: a mask, an alignment if the mask asks for one, ids of scopes
o  an opcode and the operands that it has here      w  pairs of literal and label      p  pairs of id and literal

``?`` behind a letter: the operand may be missing. ``*``: any number of them, to the end.
"""

from __future__ import annotations

from typing import NamedTuple


class Op:
    """Numbers of the instructions that code asks for by name."""

    UNDEF, SOURCE_CONTINUED, SOURCE, NAME, MEMBER_NAME, STRING, LINE = 1, 2, 3, 5, 6, 7, 8
    EXTENSION, EXT_INST_IMPORT, EXT_INST, MEMORY_MODEL = 10, 11, 12, 14
    ENTRY_POINT, EXECUTION_MODE, CAPABILITY = 15, 16, 17
    TYPE_VOID, TYPE_BOOL, TYPE_INT, TYPE_FLOAT, TYPE_VECTOR, TYPE_MATRIX = 19, 20, 21, 22, 23, 24
    TYPE_IMAGE, TYPE_SAMPLED_IMAGE, TYPE_ARRAY, TYPE_RUNTIME_ARRAY = 25, 27, 28, 29
    TYPE_STRUCT, TYPE_POINTER, TYPE_FUNCTION, TYPE_FORWARD_POINTER = 30, 32, 33, 39
    CONSTANT, CONSTANT_COMPOSITE, CONSTANT_NULL = 43, 44, 46
    SPEC_CONSTANT_TRUE, SPEC_CONSTANT_FALSE, SPEC_CONSTANT = 48, 49, 50
    SPEC_CONSTANT_COMPOSITE = 51
    FUNCTION, FUNCTION_PARAMETER, FUNCTION_END, FUNCTION_CALL, VARIABLE = 54, 55, 56, 57, 59
    IMAGE_TEXEL_POINTER, LOAD, STORE, COPY_MEMORY, COPY_MEMORY_SIZED = 60, 61, 62, 63, 64
    ACCESS_CHAIN, IN_BOUNDS_ACCESS_CHAIN, PTR_ACCESS_CHAIN, ARRAY_LENGTH = 65, 66, 67, 68
    IN_BOUNDS_PTR_ACCESS_CHAIN, DECORATE, MEMBER_DECORATE = 70, 71, 72
    GROUP_DECORATE, GROUP_MEMBER_DECORATE = 74, 75
    VECTOR_SHUFFLE, COMPOSITE_CONSTRUCT, COMPOSITE_EXTRACT, COPY_OBJECT = 79, 80, 81, 83
    IMAGE_FETCH, IMAGE_READ, IMAGE_WRITE, IMAGE = 95, 98, 99, 100
    IMAGE_QUERY_SIZE_LOD, IMAGE_QUERY_SIZE, IMAGE_QUERY_LEVELS = 103, 104, 106
    BITCAST, IADD, ISUB, IMUL, LOGICAL_AND, SELECT, ULESS_THAN = 124, 128, 130, 132, 167, 169, 176
    UDIV, UMOD, LOGICAL_OR, IEQUAL, INOT_EQUAL = 134, 137, 166, 170, 171
    FNEGATE, FADD, FSUB, FMUL, VECTOR_TIMES_SCALAR = 127, 129, 131, 133, 142
    CONTROL_BARRIER, MEMORY_BARRIER, ATOMIC_STORE, ATOMIC_IADD = 224, 225, 228, 234
    ATOMIC_EXCHANGE, ATOMIC_UMAX = 229, 239
    PHI, LOOP_MERGE, SELECTION_MERGE, LABEL, BRANCH, BRANCH_CONDITIONAL = 245, 246, 247, 248, 249, 250
    RETURN, RETURN_VALUE, NO_LINE, EXECUTION_MODE_ID, DECORATE_ID = 253, 254, 317, 331, 332


class Decoration:
    """Numbers of the decorations that code asks for by name."""

    SPEC_ID, BLOCK, BUFFER_BLOCK, ARRAY_STRIDE, BUILT_IN = 1, 2, 3, 6, 11
    MATRIX_STRIDE, NON_WRITABLE, NON_READABLE, BINDING, DESCRIPTOR_SET, OFFSET = 7, 24, 25, 33, 34, 35
    ROW_MAJOR, NO_CONTRACTION = 4, 42


class StorageClass:
    """Numbers of the storage classes."""

    UNIFORM_CONSTANT, INPUT, UNIFORM, WORKGROUP, PRIVATE, FUNCTION = 0, 1, 2, 4, 6, 7
    PUSH_CONSTANT, IMAGE, STORAGE_BUFFER = 9, 11, 12


class Grammar(NamedTuple):
    """One row: the instruction's name, its pattern, and what follows from it.

    ``least`` is the smallest number of operand words. ``type_at`` and ``result_at`` are places among the operands, -1
    where there is none.
    """

    name: str
    pattern: str
    least: int
    type_at: int
    result_at: int


#: Pattern -> names with numbers; NAME N-M is a family that code never tells apart.
_ROWS = {
    "": "Nop 0, FunctionEnd 56, EmitVertex 218, EndPrimitive 219, Kill 252, Return 253, Unreachable 255, NoLine 317, "
    "TerminateInvocation 4416, DemoteToHelperInvocation 5380",
    "s": "SourceContinued 2, SourceExtension 4, Extension 10, ModuleProcessed 330",
    "nni?s?": "Source 3",
    "is": "Name 5",
    "ins": "MemberName 6, DecorateString 5632",
    "inns": "MemberDecorateString 5633",
    "rs": "String 7, ExtInstImport 11, TypeOpaque 31",
    "inn": "Line 8",
    "trini*": "ExtInst 12",
    "nn": "MemoryModel 14",
    "nisi*": "EntryPoint 15",
    "inn*": "ExecutionMode 16, Decorate 71, SelectionMerge 247, Lifetime 256-257",
    "n": "Capability 17",
    "r": "TypeVoid 19, TypeBool 20, TypeSampler 26, TypeKernel 34-37, DecorationGroup 73, Label 248, "
    "TypePipeStorage 322",
    "rnn": "TypeInt 21",
    "rnn?": "TypeFloat 22",
    "rin": "TypeVector 23, TypeMatrix 24",
    "rinnnnnnn?": "TypeImage 25",
    "ri": "TypeSampledImage 27, TypeRuntimeArray 29",
    "rii": "TypeArray 28",
    "ri*": "TypeStruct 30",
    "rii*": "TypeFunction 33, TypeCooperativeMatrixKHR 4456, TypeCooperativeMatrixNV 5358",
    "rni": "TypePointer 32",
    "rn": "TypePipe 38",
    "in": "TypeForwardPointer 39",
    "tr": "Undef 1, ConstantTrue 41, ConstantFalse 42, ConstantNull 46, SpecConstantTrue 48, SpecConstantFalse 49, "
    "FunctionParameter 55, IsHelperInvocationEXT 5381",
    "trnn*": "Constant 43, ConstantSampler 45, SpecConstant 50",
    "tri*": "ConstantComposite 44, SpecConstantComposite 51, CompositeConstruct 80, Phi 245",
    "tro": "SpecConstantOp 52",
    "trni": "Function 54",
    "trii*": "FunctionCall 57, GenericPtrMemSemantics 69, CopyObject 83, Transpose 84, Image 100, "
    "ImageQueryFormat 101, ImageQueryOrder 102, ImageQuerySize 104, ImageQueryLevels 106, ImageQuerySamples 107, "
    "ConvertFToU 109, ConvertFToS 110, ConvertSToF 111, ConvertUToF 112, UConvert 113, SConvert 114, FConvert 115, "
    "Convert 116-122, Bitcast 124, SNegate 126, FNegate 127, Any 154, All 155, IsNan 156, IsInf 157, "
    "Test 158-163, LogicalNot 168, "
    "Not 200, BitReverse 204, BitCount 205, Derivative 207-215, ImageSparseTexelsResident 316, SizeOf 321, "
    "GroupNonUniformElect 333, CopyLogical 400, SubgroupBallotKHR 4421, SubgroupFirstInvocationKHR 4422, "
    "SubgroupVoteKHR 4428-4430, CooperativeMatrixLengthKHR 4460, ReadClockKHR 5056, "
    "GroupNonUniformPartitionNV 5296, CooperativeMatrixLengthNV 5362",
    "triii*": "AccessChain 65, InBoundsAccessChain 66, PtrAccessChain 67, InBoundsPtrAccessChain 70, "
    "VectorExtractDynamic 77, SampledImage 86, ImageQuerySizeLod 103, "
    "ImageQueryLod 105, IAdd 128, FAdd 129, ISub 130, FSub 131, IMul 132, FMul 133, UDiv 134, SDiv 135, FDiv 136, "
    "UMod 137, SRem 138, SMod 139, FRem 140, FMod 141, VectorTimesScalar 142, Product 143-147, Dot 148, "
    "IAddCarry 149, ISubBorrow 150, UMulExtended 151, SMulExtended 152, Logical 164-165, LogicalOr 166, "
    "LogicalAnd 167, IEqual 170, INotEqual 171, UGreaterThan 172, SGreaterThan 173, UGreaterThanEqual 174, "
    "SGreaterThanEqual 175, ULessThan 176, SLessThan 177, ULessThanEqual 178, SLessThanEqual 179, "
    "FloatComparison 180-191, ShiftRightLogical 194, ShiftRightArithmetic 195, ShiftLeftLogical 196, BitwiseOr 197, "
    "BitwiseXor 198, BitwiseAnd 199, AtomicFlagTestAndSet 318, GroupAll 261, GroupAny 262, GroupBroadcast 263, "
    "GroupNonUniform 334-341, GroupNonUniformBallotFind 343-344, GroupNonUniformShuffle 345-348, "
    "GroupNonUniformQuad 365-366, PtrCompare 401-403, GroupNonUniformRotateKHR 4431, SubgroupReadInvocationKHR 4432",
    "triiii*": "VectorInsertDynamic 78, ImageTexelPointer 60, Select 169, "
    "BitFieldSExtract 202, BitFieldUExtract 203, AtomicLoad 227, AtomicIIncrement 232, AtomicIDecrement 233, "
    "CooperativeMatrixMulAddNV 5361",
    "triiiii*": "BitFieldInsert 201, AtomicExchange 229, AtomicIAdd 234, AtomicISub 235, AtomicSMin 236, "
    "AtomicUMin 237, AtomicSMax 238, AtomicUMax 239, AtomicAnd 240, AtomicOr 241, AtomicXor 242, "
    "AtomicFloat 5614-5615, AtomicFAddEXT 6035",
    "triiiiiii*": "AtomicCompareExchange 230-231",
    "trni?": "Variable 59",
    "trim": "Load 61",
    "iim": "Store 62",
    "iimm": "CopyMemory 63",
    "iiimm": "CopyMemorySized 64",
    "trin": "ArrayLength 68, GenericCastToPtrExplicit 123",
    "innn*": "MemberDecorate 72",
    "ii*": "GroupDecorate 74",
    "ip*": "GroupMemberDecorate 75",
    "triin*": "VectorShuffle 79, CompositeInsert 82",
    "trin*": "CompositeExtract 81",
    "triin?i*": "ImageSampleImplicitLod 87, ImageSampleExplicitLod 88, ImageSampleProjImplicitLod 91, "
    "ImageSampleProjExplicitLod 92, ImageFetch 95, ImageRead 98, ImageSparse 305-306, ImageSparseProj 309-310, "
    "ImageSparseFetch 313, ImageSparseRead 320",
    "triiin?i*": "ImageSampleDrefImplicitLod 89, ImageSampleDrefExplicitLod 90, ImageSampleProjDrefImplicitLod 93, "
    "ImageSampleProjDrefExplicitLod 94, ImageGather 96, ImageDrefGather 97, ImageSparseDref 307-308, "
    "ImageSparseProjDref 311-312, ImageSparseGather 314-315",
    "iiin?i*": "ImageWrite 99",
    "iii": "ControlBarrier 224",
    "ii": "MemoryBarrier 225, AtomicFlagClear 319",
    "iiii": "AtomicStore 228",
    "iinn*": "LoopMerge 246",
    "i": "Branch 249, ReturnValue 254",
    "iiin*": "BranchConditional 250",
    "iiw": "Switch 251",
    "trinii*": "Group 264-271, GroupNonUniformBallotBitCount 342, GroupNonUniformArithmetic 349-364",
    "inii*": "ExecutionModeId 331, DecorateId 332",
    "triin?": "Dot 4450-4452",
    "triiin?": "DotAccSat 4453-4455, CooperativeMatrixMulAddKHR 4459",
    "triii?m": "CooperativeMatrixLoadKHR 4457",
    "iiii?m": "CooperativeMatrixStoreKHR 4458",
    "triiim": "CooperativeMatrixLoadNV 5359",
    "iiiim": "CooperativeMatrixStoreNV 5360",
}


def _row(name: str, pattern: str) -> Grammar:
    plain = pattern.replace("*", "?").replace("m", "").replace("w", "").replace("p?", "")
    least = len(plain) - 2 * plain.count("?")
    return Grammar(f"Op{name}", pattern, least, pattern.find("t"), pattern.find("r"))


def _table() -> dict[int, Grammar]:
    table = {}
    for pattern, names in _ROWS.items():
        for entry in names.split(", "):
            name, numbers = entry.split(" ")
            first, _, last = numbers.partition("-")
            for number in range(int(first), int(last or first) + 1):
                table[number] = _row(name, pattern)
    return table


#: Opcode -> its row. Instructions of extensions that are not here can be kept and written back, not understood.
GRAMMAR = _table()


def name_of(opcode: int) -> str:
    """The instruction's name, or its number where the table lacks it."""
    return GRAMMAR[opcode].name if opcode in GRAMMAR else f"opcode {opcode}"
