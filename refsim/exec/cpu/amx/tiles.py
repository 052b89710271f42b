"""Tile registers: the instructions of AMX, and the same instructions emulated, for processors without them.

A tile has up to 16 rows of up to 64 bytes. `Shapes` says how many of both, the same in every kernel: first the tiles of
sums, then those of A (pixels by bytes of K), then those of B (four bytes of K in a row, of 16 channels each).
"""

from __future__ import annotations

import ctypes
import platform
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache

import numpy as np

from refsim.exec.cpu.dot import madd_pairs
from refsim.exec.cpu.ir import I8, I16, I32, I64, PTR, VOID, Function, ModuleText, Value, vec
from refsim.exec.cpu.isa import Isa

#: Tile registers; the most rows of one, and the bytes of a row.
TILES, ROWS, ROW_BYTES = 8, 16, 64
TILE_BYTES = ROWS * ROW_BYTES
#: Columns of 32-bit sums in a tile.
COLUMNS = ROW_BYTES // 4


@dataclass(frozen=True)
class Shapes:
    """Tiles of a kernel: sums of ``a`` by ``b`` tiles; ``rows`` pixels to a tile of A, ``k_bytes`` of K in each.

    Of the tiles that there are more of, some take turns if registers are short: a x b + min(a, b) are always there.
    """

    a: int
    b: int
    rows: int = ROWS
    k_bytes: int = ROW_BYTES

    def sums(self, i: int, j: int) -> int:
        """The register of the sums of tiles i of A and j of B."""
        return i * self.b + j

    def _in_turn(self, number: int) -> int:
        first = self.a * self.b + min(self.a, self.b)
        return first + number % (TILES - first)

    def pixels(self, i: int) -> int:
        """The register of tile i of A."""
        return self._in_turn(i) if self.a > self.b else self.a * self.b + i

    def weights(self, j: int) -> int:
        """The register of tile j of B."""
        return self.a * self.b + j if self.a > self.b else self._in_turn(j)

    @property
    def config(self) -> np.ndarray:
        """What `ldtilecfg` loads: uint8 [64]."""
        block = np.zeros(64, np.uint8)
        block[0] = 1  # the palette
        row_bytes, rows = block[16:32].view(np.uint16), block[48:56]
        row_bytes[:], rows[:] = ROW_BYTES, self.rows
        row_bytes[[self.pixels(i) for i in range(self.a)]] = self.k_bytes
        rows[[self.weights(j) for j in range(self.b)]] = self.k_bytes // 4
        return block


@cache
def refused() -> str | None:
    """Why this process may not use tiles, or None: the kernel is asked once, for all threads."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "only Linux on x86-64 is asked for tiles"
    arch_prctl, request, tile_data = 158, 0x1023, 18
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(arch_prctl), ctypes.c_long(request), ctypes.c_long(tile_data)) == 0:
        return None
    return f"the operating system refuses tile registers (errno {ctypes.get_errno()})"


def lacking(isa: Isa) -> str | None:
    """Why no kernel for this processor may use tiles, or None."""
    return None if isa.tiles else f"{isa.name} has no tiles"


def why_not(isa: Isa) -> str | None:
    """Why kernels for this processor may not use tiles here, or None."""
    return lacking(isa) or refused()


class Tiles(ABC):
    """Emits the instructions. Registers are numbers; strides are bytes from a row to the next, and may be 0."""

    def __init__(self, fn: Function) -> None:
        self.fn = fn

    @abstractmethod
    def configure(self, config: Value) -> None:
        """Take the shapes that `Shapes.config` describes; all tiles become 0."""

    @abstractmethod
    def load(self, tile: int, at: Value, stride: Value) -> None: ...

    @abstractmethod
    def zero(self, tile: int) -> None: ...

    @abstractmethod
    def multiply(self, sums: int, a: int, b: int) -> None:
        """Add the products of signed bytes of two tiles."""

    @abstractmethod
    def store(self, tile: int, at: Value, stride: Value) -> None: ...

    @abstractmethod
    def release(self) -> None:
        """Give the registers back, so that the system need not save them."""


class Real(Tiles):
    """The processor's instructions."""

    def _do(self, name: str, *args: Value | int) -> None:
        fn = self.fn
        fn.call(f"llvm.x86.{name}", VOID, *(fn.const(x, I8) if isinstance(x, int) else x for x in args))

    def configure(self, config: Value) -> None:
        self._do("ldtilecfg", config)

    def load(self, tile: int, at: Value, stride: Value) -> None:
        self._do("tileloadd64", tile, at, stride)

    def zero(self, tile: int) -> None:
        self._do("tilezero", tile)

    def multiply(self, sums: int, a: int, b: int) -> None:
        self._do("tdpbssd", sums, a, b)

    def store(self, tile: int, at: Value, stride: Value) -> None:
        self._do("tilestored64", tile, at, stride)

    def release(self) -> None:
        self._do("tilerelease")


#: Scratch of emulated tiles: the registers, and the configuration behind them.
EMULATED_BYTES = TILES * TILE_BYTES + 64


class Emulated(Tiles):
    """The same by vectors, with registers in memory; the instructions are functions that start with a kernel's name."""

    def __init__(self, fn: Function, prefix: str, memory: Value) -> None:
        super().__init__(fn)
        self.prefix, self.memory = prefix, memory

    def _do(self, name: str, *args: Value | int) -> None:
        fn = self.fn
        given = (fn.i64(x) if isinstance(x, int) else x for x in args)
        # a function of the same module: declaring it would define it twice
        fn.line(f"call void @{self.prefix}_{name}({', '.join(map(str, (self.memory, *given)))})")

    def configure(self, config: Value) -> None:
        self._do("configure", config)

    def load(self, tile: int, at: Value, stride: Value) -> None:
        self._do("load", tile, at, stride)

    def zero(self, tile: int) -> None:
        self._do("zero", tile)

    def multiply(self, sums: int, a: int, b: int) -> None:
        self._do("multiply", sums, a, b)

    def store(self, tile: int, at: Value, stride: Value) -> None:
        self._do("store", tile, at, stride)

    def release(self) -> None:
        pass


def emulation(module: ModuleText, prefix: str) -> None:
    """Write the functions that `Emulated` calls. Each takes the registers' memory first."""

    def config_at(fn: Function, memory: Value, tile: Value) -> tuple[Value, Value]:
        """Rows of a tile, and bytes of a row."""
        config = memory + TILES * TILE_BYTES
        return fn.load(config + (tile + 48), I8).zext(I64), fn.load(config + (tile * 2 + 16), I16).zext(I64)

    row = vec(I8, ROW_BYTES)
    with module.function(f"{prefix}_configure", (PTR, PTR)) as fn:
        memory, config = fn.params
        fn.loop(TILES * TILE_BYTES, lambda i: fn.store(fn.const(0, row), memory + i), step=ROW_BYTES)
        fn.store(fn.load(config, row), memory + TILES * TILE_BYTES)

    def clear(fn: Function, to: Value) -> None:
        fn.loop(TILE_BYTES, lambda i: fn.store(fn.const(0, row), to + i), step=ROW_BYTES)

    with module.function(f"{prefix}_zero", (PTR, I64)) as fn:
        memory, tile = fn.params
        clear(fn, memory + tile * TILE_BYTES)

    with module.function(f"{prefix}_load", (PTR, I64, PTR, I64)) as fn:
        memory, tile, at, stride = fn.params
        to = memory + tile * TILE_BYTES
        clear(fn, to)
        rows, row_bytes = config_at(fn, memory, tile)

        def load_row(r: Value) -> None:
            def word(i: Value) -> None:
                fn.store(fn.load(at + (r * stride + i), I32), to + (r * ROW_BYTES + i))

            fn.loop(row_bytes, word, step=4)

        fn.loop(rows, load_row)

    with module.function(f"{prefix}_store", (PTR, I64, PTR, I64)) as fn:
        memory, tile, at, stride = fn.params
        rows, row_bytes = config_at(fn, memory, tile)

        def store_row(r: Value) -> None:
            def word(i: Value) -> None:
                from_ = memory + (tile * TILE_BYTES + r * ROW_BYTES + i)
                fn.store(fn.load(from_, I32), at + (r * stride + i))

            fn.loop(row_bytes, word, step=4)

        fn.loop(rows, store_row)

    with module.function(f"{prefix}_multiply", (PTR, I64, I64, I64)) as fn:
        memory, c, a, b = fn.params
        rows, _ = config_at(fn, memory, c)
        _, k_bytes = config_at(fn, memory, a)
        sums, left, right = (memory + tile * TILE_BYTES for tile in (c, a, b))

        def multiply_row(r: Value) -> None:
            place = sums + r * ROW_BYTES

            def step(k: Value, total: Value) -> list[Value]:
                k4 = fn.load(left + (r * ROW_BYTES + k), I32).splat(COLUMNS).bits(row).sext(I16)
                pairs = madd_pairs(fn, k4, fn.load(right + k * COLUMNS, row).sext(I16))
                halves = (pairs.shuffle(range(first, 2 * COLUMNS, 2)) for first in (0, 1))
                return [total + sum(halves, fn.const(0, vec(I32, COLUMNS)))]

            (total,) = fn.loop(k_bytes, step, [fn.load(place, vec(I32, COLUMNS))], step=4)
            fn.store(total, place)

        fn.loop(rows, multiply_row)
