"""How much of their time steps that are no matrix products could not do without: python -m bench.shares.

On one thread, by route, summed over two networks of 224 x 224. No step takes less time than `np.copyto` takes to move
as many bytes, from and to memory of that size. A depthwise convolution interleaves its inputs, multiplies, and makes
bytes of sums, and additions look bytes up: these instructions alone, with operands in registers, take the time that
such a step takes at least. Repacks have a table of their own (`python -m bench.layouts`).
"""

from __future__ import annotations

import ctypes
import re
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import cache

import numpy as np

from bench.networks import MODELS
from bench.threads import _plan, _steps
from refsim.cli.kit.text import print_table
from refsim.exec.cpu import NativeExecutor, compiled
from refsim.exec.cpu.args import ArgLayout
from refsim.exec.cpu.depthwise.kernel import fours, interleave
from refsim.exec.cpu.dot import dpbusd, madd_pairs
from refsim.exec.cpu.elementwise.lut_kernel import LUT, OF_PAIRS, lookup
from refsim.exec.cpu.epilogue import RANGE, Requant, shared_fields
from refsim.exec.cpu.ir import F32, I8, I16, I32, I64, PTR, ModuleText, Value, vec
from refsim.exec.cpu.isa import cpu
from refsim.exec.cpu.narrow import VECTORS
from refsim.exec.cpu.step import PlanStep
from refsim.exec.cpu.table import TABLE_BYTES, VECTOR_BYTES

ROUNDS, LOOPS = 15, 1 << 14
_ARGS, _TABLES = ArgLayout("inv", "low", "high", "zp", "then"), ArgLayout("luts")


def depthwise_loop(module: ModuleText, name: str, *, lanes: int, dots: int, quads: int, packs: bool) -> None:
    """out = bytes of two pixels of 4 vectors of sums, each of so many products; ``quads``: pairs of columns that become
    4 vectors of operands."""
    with module.function(name, (PTR, PTR, I64, PTR)) as fn:
        args, at, count, out = fn.params
        requant = Requant(fn, _ARGS.read(fn, args), lanes, RANGE)
        words, octets = vec(I32, lanes), vec(I8, 4 * lanes)
        weight = [fn.load(at + 4 * lanes * v, words) for v in range(VECTORS)]
        scale, bias = (fn.load(at + 4 * lanes * (4 + v), vec(F32, lanes)) for v in range(2))

        def product(total: Value, a: Value, b: Value) -> Value:
            if cpu().isa.dpbusd:
                return dpbusd(fn, total, a, b)
            pairs = vec(I16, 2 * lanes)
            return total + madd_pairs(fn, a.bits(pairs), b.bits(pairs))

        def once(i: Value, held: Value) -> Value:
            data = [(i.trunc(I32).splat(lanes) + v).bits(octets) for v in range(VECTORS)]
            for _ in range(quads):
                first, second = (x ^ -128 for x in data[:2])
                pairs = [interleave(first, second, half) for half in range(2)]
                data = [x.bits(octets) for x in fours((data[2], data[3]), (pairs[0], pairs[1]))]
            for pixel in range(2):
                reals = []
                for v in range(VECTORS):
                    total = data[v].bits(words) + pixel
                    for d in range(dots):
                        total = product(total, data[(v + d) % VECTORS].bits(words), weight[v])
                    reals.append(requant.real(total, (scale, bias, bias)))
                held = held ^ requant.narrowed(reals, packs, False).bits(words)
            return held

        (held,) = fn.loop(count, once, [weight[0]])
        fn.store(held, out)


@cache
def seconds_of_depthwise(dots: int, quads: int) -> float:
    """Of two pixels of 4 vectors of channels."""
    isa = cpu().isa
    entry = compiled.address(depthwise_loop, lanes=isa.lanes, dots=dots, quads=quads, packs=isa.packs)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(entry)
    args = _ARGS.pack(**shared_fields(np.float32(0.5), 3, relu=False), then=0)
    memory, out = np.ones(8 * isa.lanes, np.float32), np.zeros(isa.lanes, np.int32)
    return least(lambda: run(args.ctypes.data, memory.ctypes.data, LOOPS, out.ctypes.data)) / LOOPS


def lookup_loop(module: ModuleText, name: str, *, op: str) -> None:
    """out = bytes looked up again and again, 64 at a time."""
    with module.function(name, (PTR, I64, PTR)) as fn:
        args, count, out = fn.params
        look, kind = lookup(fn, _TABLES.read(fn, args), op), vec(I8, VECTOR_BYTES)

        def once(_: Value, x: Value, held: Value) -> list[Value]:
            return [x + 1, held ^ look(x, *([x] if op != LUT else []))]

        _, held = fn.loop(count, once, [fn.const(0, kind)] * 2)
        fn.store(held, out)


@cache
def seconds_of_lookups(op: str) -> float:
    """Of 64 bytes."""
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(
        compiled.address(lookup_loop, op=op)
    )
    tables, out = np.zeros(8 * TABLE_BYTES, np.int8), np.zeros(VECTOR_BYTES, np.int8)
    args = _TABLES.pack(luts=tables.ctypes.data)
    return least(lambda: run(args.ctypes.data, LOOPS, out.ctypes.data)) / LOOPS


@cache
def seconds_of_moves(nbytes: int) -> float:
    """To read and write so many bytes together, by `np.copyto`."""
    source, target = (np.ones(max(1, nbytes // 2), np.uint8) for _ in range(2))
    return least(lambda: np.copyto(target, source))


def least(run: Callable[[], object]) -> float:
    run()
    samples = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(8):
            run()
        samples.append((time.perf_counter() - begin) / 8)
    return min(samples)


def limit(step: PlanStep, moved: int, out: int) -> float | None:
    """Seconds that a step takes at least, which moves so many bytes and gives so many; None for matrix products."""
    if step.route in ("amx", "gemm", "gemm8", "gemv") or step.route.startswith("winograd"):
        return None
    needed = seconds_of_moves(moved)
    if step.route == "depthwise":
        assert step.choice is not None
        conv = step.choice.context.conv
        dots = conv.kernel[0] * -(-conv.kernel[1] // (4 if cpu().isa.dpbusd else 2))
        vectors = out / (2 * VECTORS * cpu().isa.lanes)
        needed = max(needed, vectors * seconds_of_depthwise(dots, conv.stride[0] * conv.stride[1]))
    found = re.search("op([a-z_]+)_lanes", step.jobs[0].variant)
    if step.route == "lut" and found and (found[1] == LUT or found[1] in OF_PAIRS):
        needed = max(needed, out / VECTOR_BYTES * seconds_of_lookups(found[1]))
    return needed


def main() -> int:
    found: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for name in ("whole ResNet-50 224", "whole MobileNetV2 224"):
        model, executor = MODELS[name](), NativeExecutor(1)
        inputs = model.random_inputs(3)
        rows = [_steps(model, inputs, executor) for _ in range(ROUNDS)]
        ((_, graph),) = model.graphs.items()
        descs = executor.session(graph).descs
        for (_, step), seconds in zip(_plan(model, executor), zip(*rows, strict=True), strict=True):
            sizes = [descs[value].nbytes for value in (*step.reads, *step.writes)]
            least_of = limit(step, sum(sizes), sizes[-1])
            if least_of is not None:
                kind = f"{step.route} {step.nodes[0].name if len(step.nodes) == 1 else step.nodes[-1].name}"
                row = found[step.route if step.route in ("depthwise", "pool", "lut") else kind]
                row[0] += 1
                row[1] += statistics.median(seconds)
                row[2] += least_of
    print_table(
        ["route", "steps", "us", "at least us", "share"],
        [
            [kind, f"{count:.0f}", f"{took * 1e6:.1f}", f"{limit_of * 1e6:.1f}", f"{limit_of / took:.0%}"]
            for kind, (count, took, limit_of) in found.items()
        ],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
