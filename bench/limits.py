"""What one core can do at most: loops of dot products, of tiles, of loads, and copies; for fractions of limits."""

from __future__ import annotations

import ctypes
import time

import numpy as np

from refsim.exec.cpu import compiled
from refsim.exec.cpu.amx import tiles
from refsim.exec.cpu.dot import dpbusd, madd_pairs
from refsim.exec.cpu.ir import F32, I16, I32, I64, PTR, ModuleText, Value, vec
from refsim.exec.cpu.isa import cpu

CHAINS = 12  # sums that do not wait for each other
READS = 8  # vectors that are loaded together
ROUNDS = 1 << 20


def dot_loop(module: ModuleText, name: str, *, kind: str, lanes: int) -> None:
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


#: Bytes of K in the loop of tiles: both operands stay in the first cache. Rows lie a line of memory further apart.
TILE_K, TILE_STEPS = 1024, 1 << 12


def tile_loop(module: ModuleText, name: str) -> None:
    """out = sums of products of two by two tiles; operands are loaded for each step over K, as in a kernel."""
    with module.function(name, (PTR, PTR, PTR)) as fn:
        config, at, out = fn.params
        unit, shapes = tiles.Real(fn), tiles.Shapes(2, 2)
        stride, whole = fn.i64(TILE_K + tiles.ROW_BYTES), fn.i64(tiles.ROW_BYTES)
        weights = at + 2 * tiles.ROWS * (TILE_K + tiles.ROW_BYTES)
        unit.configure(config)

        def chunk(k: Value) -> None:
            for j in range(2):
                unit.load(shapes.weights(j), weights + (k * 32 + j * tiles.TILE_BYTES), whole)
                for i in range(2):
                    if j == 0:
                        unit.load(
                            shapes.pixels(i), at + k + i * tiles.ROWS * (TILE_K + tiles.ROW_BYTES), stride
                        )
                    unit.multiply(shapes.sums(i, j), shapes.pixels(i), shapes.weights(j))

        def whole_k(_: Value) -> None:
            fn.loop(TILE_K, chunk, step=tiles.ROW_BYTES)

        fn.loop(TILE_STEPS * tiles.ROW_BYTES // TILE_K, whole_k)
        unit.store(shapes.sums(0, 0), out, whole)
        unit.release()


def tile_macs_per_second(samples: int = 15) -> float:
    """Products added in a second by one core's matrix unit, loads of tiles included."""
    assert tiles.why_not(cpu().isa) is None
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(compiled.address(tile_loop))
    size = (2 * tiles.ROWS + 32) * (TILE_K + tiles.ROW_BYTES)
    memory, config = np.zeros(size + 64 + tiles.TILE_BYTES, np.uint8), tiles.Shapes(2, 2).config
    aligned = -(-memory.ctypes.data // 64) * 64
    best = float("inf")
    for _ in range(samples):
        begin = time.perf_counter()
        run(config.ctypes.data, aligned, aligned + size)
        best = min(best, time.perf_counter() - begin)
    return TILE_STEPS * 4 * tiles.TILE_BYTES * tiles.ROWS / best


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


def read_loop(module: ModuleText, name: str, *, lanes: int) -> None:
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
    if tiles.why_not(cpu().isa) is None:
        found["tdpbssd GMAC/s"] = tile_macs_per_second() / 1e9
    sizes = {"L2": 256 << 10, "L3": 4 << 20, "DRAM": 128 << 20}
    for name, size in sizes.items():
        found[f"copy {name} GB/s"] = copy_per_second(size) / 1e9
        found[f"read {name} GB/s"] = read_per_second(size) / 1e9
    return found


if __name__ == "__main__":
    for name, value in limits().items():
        print(f"{name:16} {value:8.1f}")
