"""The processor that native kernels are compiled for, and what they may use of it.

Numba's variables decide here too: NUMBA_CPU_NAME and NUMBA_CPU_FEATURES name another processor than the host.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm

from refsim.core import choices
from refsim.core.errors import DeviceError, ParameterError


@dataclass(frozen=True)
class Isa:
    """What kernels use of a processor, and about how fast it is with it.

    ``lanes``: 32-bit lanes of a vector. ``macs8``, ``macs16``: about how many products a kernel adds in a cycle, of
    bytes and of 16-bit integers, for estimates. Measured on an AMD EPYC (Zen 4) by `python -m bench.peers` where it
    has the instructions of a row, else estimated. ``registers``: vector registers. ``dpbusd``: four unsigned by signed
    byte products added into each lane in one instruction. ``maddubs``: pairs of them, added with saturation to 16
    bits. ``packs``: two vectors narrowed to one with saturation, inside pieces of 128 bits. ``lookup``: 64 bytes
    looked up among 128 in one instruction. ``fma``: floats multiplied and added with one rounding. ``tiles``: a matrix
    unit (AMX), which the operating system may still refuse, see `refsim.exec.cpu.amx.tiles`. ``needs``: the features
    that must all be present.
    """

    name: str
    lanes: int
    registers: int
    macs8: float
    macs16: float
    needs: tuple[str, ...] = ()
    dpbusd: bool = False
    maddubs: bool = False
    packs: bool = False
    lookup: bool = False
    fma: bool = False
    tiles: bool = False


_X86 = {"maddubs": True, "packs": True, "fma": True}
_AVX512 = ("avx512f", "avx512bw", "avx512vl", "avx512dq")
_VBMI = (*_AVX512, "avx512vnni", "avx512vbmi")

#: From best to least; a processor gets the first row whose features it has. The last is portable code of 128-bit
#: vectors.
ISAS = (
    Isa(
        "amx", 16, 32, 96, 54, (*_VBMI, "amx-tile", "amx-int8"), **_X86, dpbusd=True, lookup=True, tiles=True
    ),
    Isa("avx512vbmi", 16, 32, 96, 54, _VBMI, **_X86, dpbusd=True, lookup=True),
    Isa("avx512vnni", 16, 32, 96, 54, (*_AVX512, "avx512vnni"), **_X86, dpbusd=True),
    Isa("avx512", 16, 32, 27, 27, _AVX512, **_X86),
    Isa("avxvnni", 8, 16, 50, 27, ("avx2", "fma", "avxvnni"), **_X86, dpbusd=True),
    Isa("avx2", 8, 16, 20, 20, ("avx2", "fma"), **_X86),
    Isa("neon", 4, 32, 8, 8, ("neon",)),
    Isa("portable", 4, 16, 6, 6),
)


@dataclass(frozen=True)
class Cpu:
    """A processor by LLVM's name and features, with the row of `ISAS` that it reaches."""

    name: str
    features: str
    isa: Isa


@cache
def cpu() -> Cpu:
    """The processor to compile for: the host, or what Numba's variables name."""
    name, features = os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES")
    if name is None:
        name = llvm.get_host_cpu_name()
        if features is None:
            features = llvm.get_host_cpu_features().flatten()
    return _cpu(name, features or "")


def environment(isa: str) -> dict[str, str]:
    """The variables that make a new process compile for a row of `ISAS`.

    Raises ParameterError for an unknown row, DeviceError for one whose instructions this processor lacks.
    """
    names = {row.name: row for row in ISAS}
    if isa not in names:
        raise ParameterError("instruction set", "unknown", got=isa, need=choices.need(isa, names))
    host = llvm.get_host_cpu_features()
    lacking = [need for need in names[isa].needs if not host.get(need)]
    if lacking:
        raise DeviceError(f"instruction set {isa}", "this processor lacks it", need=", ".join(lacking))
    named = _LEAST.get(isa, "generic")
    if isa == "portable" and platform.machine().lower() in ("x86_64", "amd64"):
        named = "x86-64-v2"
    return {"NUMBA_CPU_NAME": named, "NUMBA_CPU_FEATURES": ""}


#: The least processor that reaches a row.
_LEAST = {
    "amx": "sapphirerapids",
    "avx512vbmi": "icelake-server",
    "avx512vnni": "cascadelake",
    "avx512": "skylake-avx512",
    "avxvnni": "alderlake",
    "avx2": "haswell",
}


def _cpu(name: str, features: str) -> Cpu:
    on = {item[1:] for item in features.split(",") if item.startswith("+")}
    off = {item[1:] for item in features.split(",") if item.startswith("-")}
    on |= _IMPLIED.get(name, frozenset()) - off
    return Cpu(name, features, next(row for row in ISAS if on.issuperset(row.needs)))


_AVX2 = frozenset({"avx", "avx2", "fma"})

#: Features of processors that NUMBA_CPU_NAME may name without listing them.
_IMPLIED = {
    **dict.fromkeys(("haswell", "broadwell", "skylake", "znver1", "znver2", "znver3", "x86-64-v3"), _AVX2),
    **dict.fromkeys(("skylake-avx512", "x86-64-v4"), _AVX2.union(_AVX512)),
    "alderlake": _AVX2.union({"avxvnni"}),
    "cascadelake": _AVX2.union(_AVX512, {"avx512vnni"}),
    **dict.fromkeys(("icelake-server", "znver4"), _AVX2.union(_VBMI)),
    "sapphirerapids": _AVX2.union(_VBMI, {"amx-tile", "amx-int8"}),
}
