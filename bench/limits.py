"""What one core can do at most: loops of dot products in registers, of loads, and copies; for fractions of limits."""

from __future__ import annotations

import ctypes
import time

import numpy as np

from refsim.exec.cpu import compiled
from refsim.exec.cpu.dot import dpbusd, madd_pairs
from refsim.exec.cpu.ir import F32, I16, I32, I64, PTR, Module, Value, vec
from refsim.exec.cpu.isa import cpu

CHAINS = 12  # sums that do not wait for each other
READS = 8  # vectors that are loaded together
ROUNDS = 1 << 20


def dot_loop(module: Module, name: str, *, kind: str, lanes: int) -> None:
    """out = sums of ROUNDS steps of CHAINS dot products, whose operands stay in registers."""
    with module.function(name, (I64, PTR)) as fn:
        count, at = fn.params
        words = vec(I32, lanes)
        a, b = fn.load(at, words), fn.load(at + 4 * lanes, words)

        def step(i: Value, *totals: Value) -> list[Value]:
            if kind == "int8":
                return [dpbusd(fn, t, a, b) for t in totals]
            if kind == "fp32":
                x, y = a.bits(vec(F32, lanes)), b.bits(vec(F32, lanes))
                fma = f"llvm.fma.v{lanes}f32"
                return [fn.call(fma, x.type, x, y, t) for t in totals]
            # operands that change, or the products would be taken out of the loop
            wide, row = vec(I16, 2 * lanes), at + (i & 1) * (4 * lanes)
            seconds = [fn.load(row + 4 * lanes * k, wide) for k in range(len(totals))]
            return [t + madd_pairs(fn, a.bits(wide), s) for t, s in zip(totals, seconds, strict=True)]

        zero = vec(F32, lanes) if kind == "fp32" else words
        for number, total in enumerate(fn.loop(count, step, [fn.const(0, zero)] * CHAINS)):
            fn.store(total, at + 4 * lanes * (2 + number))


MACS = {"int8": 4, "int16": 2, "fp32": 1}


def macs_per_second(kind: str, samples: int = 7) -> float:
    """Products added in a second by one core: of bytes, of 16-bit integers, or of binary32."""
    lanes = cpu().isa.lanes
    run = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(
        compiled.address(dot_loop, kind=kind, lanes=lanes)
    )
    memory = np.zeros(lanes * (3 + CHAINS), np.int32)
    aligned = -(-memory.ctypes.data // 64) * 64
    best = float("inf")
    for _ in range(samples):
        begin = time.perf_counter()
        run(ROUNDS, aligned)
        best = min(best, time.perf_counter() - begin)
    return ROUNDS * CHAINS * lanes * MACS[kind] / best


def copy_per_second(nbytes: int, samples: int = 9) -> float:
    """Bytes that np.copyto copies in a second."""
    source, target = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    times = max(1, (32 << 20) // nbytes)
    best = float("inf")
    for _ in range(samples):
        begin = time.perf_counter()
        for _ in range(times):
            np.copyto(target, source)
        best = min(best, (time.perf_counter() - begin) / times)
    return nbytes / best


def read_loop(module: Module, name: str, *, lanes: int) -> None:
    """out = all vectors of some memory, combined: nothing but loads, as many at a time as there are chains."""
    with module.function(name, (PTR, I64, I64, PTR)) as fn:
        source, nbytes, times, out = fn.params
        step = 4 * lanes * READS

        def block(at: Value, *held: Value) -> list[Value]:
            return [h | fn.load(source + at + 4 * lanes * k, vec(I32, lanes)) for k, h in enumerate(held)]

        def once(_: Value, *held: Value) -> tuple[Value, ...]:
            return fn.loop(nbytes, block, held, step=step)

        totals = fn.loop(times, once, [fn.const(0, vec(I32, lanes))] * READS)
        for number, total in enumerate(totals):
            fn.store(total, out + 4 * lanes * number)


def read_per_second(nbytes: int, samples: int = 9) -> float:
    """Bytes that one core loads in a second from memory of that size, a multiple of `READS` vectors."""
    lanes = cpu().isa.lanes
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(
        compiled.address(read_loop, lanes=lanes)
    )
    source, out = np.ones(nbytes, np.uint8), np.zeros(READS * lanes, np.int32)
    times = max(1, (32 << 20) // nbytes)
    best = float("inf")
    for _ in range(samples):
        begin = time.perf_counter()
        run(source.ctypes.data, nbytes, times, out.ctypes.data)
        best = min(best, (time.perf_counter() - begin) / times)
    return nbytes / best


def limits() -> dict[str, float]:
    """GMAC/s of each kind that this processor has; GB/s copied and read in both larger caches and beyond."""
    kinds = [kind for kind in MACS if kind != "int8" or cpu().isa.dpbusd]
    found = {f"{kind} GMAC/s": macs_per_second(kind) / 1e9 for kind in kinds}
    sizes = {"L2": 256 << 10, "L3": 4 << 20, "DRAM": 128 << 20}
    for name, size in sizes.items():
        found[f"copy {name} GB/s"] = copy_per_second(size) / 1e9
        found[f"read {name} GB/s"] = read_per_second(size) / 1e9
    return found


if __name__ == "__main__":
    for name, value in limits().items():
        print(f"{name:16} {value:8.1f}")
