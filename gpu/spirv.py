"""Finds built SPIR-V by shader name and refuses what would take the process down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from refsim.core.errors import MissingDependencyError
from refsim.spirv import module
from refsim.spirv.instruction import Instruction
from refsim.spirv.module import Module, Section
from refsim.spirv.opcodes import Decoration, Op

HERE = Path(__file__).resolve().parent
# an installed package carries the binaries next to its modules; a checkout keeps them next to their sources
#: The ending of builds that are right for denormals on devices that flush them.
EXACT = "exact"
FOLDERS = (HERE / "spirv", HERE.parent / "shaders" / "spirv")


def load(name: str) -> bytes:
    """The SPIR-V of ``name``, e.g. ``probe/selftest``.

    Raises MissingDependencyError if it was not built, FormatError if it is not SPIR-V.
    """
    for folder in FOLDERS:
        path = folder / f"{name}.spv"
        if path.is_file():
            return check(path.read_bytes(), str(path))
    searched = ", ".join(str(folder) for folder in FOLDERS)
    need = f"{name}.spv, which python -m refsim_gpu.build_shaders makes"
    raise MissingDependencyError(name, "no built SPIR-V", got=f"nothing under {searched}", need=need)


def exists(name: str) -> bool:
    """Whether ``name`` was built."""
    return any((folder / f"{name}.spv").is_file() for folder in FOLDERS)


def check(code: bytes, where: str) -> bytes:
    """``code`` itself; FormatError if it must not be given to a driver.

    Kompute crashes on an empty module, and silently drops a partial word at the end.
    """
    module.check(code, where)
    return code


# --- rounding -----------------------------------------------------------------------------------------------

FMA = 50  # of GLSL.std.450
FLOAT_ARITHMETIC = frozenset((Op.FNEGATE, Op.FADD, Op.FSUB, Op.FMUL, Op.VECTOR_TIMES_SCALAR))


def loose(parsed: Module) -> list[Instruction]:
    """Float arithmetic without NoContraction: a driver may fuse it."""
    pinned = {
        row.args[0]
        for row in parsed.sections[Section.ANNOTATION]
        if row.op == Op.DECORATE and row.args[1] == Decoration.NO_CONTRACTION
    }
    rows = parsed.instructions()
    return [row for row in rows if row.op in FLOAT_ARITHMETIC and row.result not in pinned]


def contractable(code: bytes) -> list[str]:
    """The instructions that a driver may fuse: float arithmetic without NoContraction, and every Fma."""
    parsed = Module.parse(code, "shader")
    fused = [row for row in parsed.instructions() if row.op == Op.EXT_INST and row.args[3] == FMA]
    return [f"%{row.result} ({row.name})" for row in loose(parsed)] + [
        f"%{row.result} (Fma)" for row in fused
    ]


def pin_rounding(code: bytes) -> bytes:
    """The module with NoContraction on all of its float arithmetic.

    GLSL's `precise` puts it there, but spirv-opt loses it on the copies that unrolling makes.
    """
    parsed = Module.parse(code, "shader")
    marks = parsed.sections[Section.ANNOTATION]
    marks += [Instruction(Op.DECORATE, (row.result, Decoration.NO_CONTRACTION)) for row in loose(parsed)]
    return parsed.to_bytes()


def with_modes(code: bytes, modes: Sequence[tuple[int, ...]]) -> bytes:
    """The module with execution modes that speak of the float operations of 32 bits: (capability, mode) each."""
    if not modes:
        return code
    parsed = Module.parse(code, "shader")
    parsed.extension("SPV_KHR_float_controls")
    (entry,) = parsed.sections[Section.ENTRY_POINT]
    for capability, mode in modes:
        parsed.require(capability)
        parsed.sections[Section.EXECUTION_MODE].append(
            Instruction(Op.EXECUTION_MODE, (entry.args[1], mode, 32))
        )
    return parsed.to_bytes()
