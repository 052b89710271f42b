"""Delegates written by hand, value by value and call by call, as a blob; and what is said of their defects."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refsim
from refsim.cli import main
from refsim.formats.literals import Double, Int, IntList, Null, String
from refsim.formats.pte import read as pte
from refsim.formats.vkgraph.read import Blob, read_blob
from refsim.formats.vkgraph.schema import OperatorCall, VkGraph, VkTensor
from refsim.formats.vkgraph.write import pack_constants, write_blob
from refsim.graph.build import build
from refsim.graph.graph import Graph

UINT8, INT8, INT32, FLOAT32 = 1, 2, 3, 5
BUFFER = 0
#: Layouts as files number them: open, three of int8, the plain one, and none at all.
OPEN, TILES, ROWS, CHANNELS, WIDTH, DEFAULT = 9, 3, 4, 6, 0, 255
PACKED = {"4W": 5, "4C": 6, "4W4C": 3}
QUANTIZE, DEQUANTIZE = (
    f"quantized_decomposed.{name}_per_tensor.default" for name in ("quantize", "dequantize")
)


def blob_of(path: str) -> Blob:
    """The first delegate of a file under tests/data."""
    container = pte.load(Path(__file__).parents[1] / "data" / path)
    return next(iter(dict(container.blobs(container.plan())).values()))


def graph_of(data: bytes) -> Graph:
    return build(read_blob(data, "test"), "test")


def convolution(
    x: tuple[int, ...] = (1, 8, 128, 64),
    out: tuple[int, ...] = (1, 8, 64, 32),
    stride: int = 2,
    groups: int = 1,
) -> VkGraph:
    """A 1x1 convolution, as far as what chooses its layouts looks at it."""
    values = (
        VkTensor(INT8, x, memory_layout=OPEN),
        Double(0.1), Int(0), Null(), Null(), Null(), Double(0.1), Int(0), Null(),
        IntList((1, 1)), IntList((stride, stride)), IntList((0, 0)), IntList((1, 1)), Int(groups),
        String("none"), VkTensor(INT8, out, memory_layout=OPEN),
    )  # fmt: skip
    call = OperatorCall(0, "et_vk.q8ta_conv2d.default", tuple(range(16)))
    return VkGraph("", (call,), values, (0,), (15,))


class Builder:
    """A delegate, value by value and call by call."""

    def __init__(self) -> None:
        self.values: list[object] = []
        self.calls: list[OperatorCall] = []
        self.constants: list[bytes] = []

    def add(self, value: object) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def activation(self, shape: tuple[int, ...], layout: str | None = None) -> int:
        datatype = FLOAT32 if layout is None else INT8
        return self.add(VkTensor(datatype, shape, memory_layout=PACKED.get(layout or "", 0)))

    def constant(self, array: np.ndarray) -> int:
        self.constants.append(array.tobytes())
        codes = {np.dtype(np.uint8): UINT8, np.dtype(np.int8): INT8, np.dtype(np.int32): INT32}
        code = codes.get(array.dtype, FLOAT32)
        return self.add(VkTensor(code, array.shape, constant_id=len(self.constants) - 1, memory_layout=0))

    def call(self, name: str, *args: int) -> int:
        self.calls.append(OperatorCall(len(self.calls), name, args))
        return args[-1]

    def quantization(self, scale: float, zp: int) -> tuple[int, ...]:
        return (self.add(Double(scale)), self.add(Int(zp)))

    def quantize(self, x: int, shape: tuple[int, ...], layout: str, scale: float, zp: int) -> int:
        q = self.quantization(scale, zp)
        rest = (self.add(Int(-128)), self.add(Int(127)), self.add(Null()))
        return self.call(QUANTIZE, x, *q, *rest, self.activation(shape, layout))

    def dequantize(self, x: int, shape: tuple[int, ...], scale: float, zp: int) -> int:
        q = self.quantization(scale, zp)
        rest = (self.add(Int(-128)), self.add(Int(127)), self.add(Null()), self.add(Null()))
        return self.call(DEQUANTIZE, x, *q, *rest, self.activation(shape))

    def blob(self, inputs: tuple[int, ...], output: int) -> bytes:
        rows, raw = pack_constants(self.constants)
        graph = VkGraph("", tuple(self.calls), tuple(self.values), inputs, (output,), tuple(rows))
        return write_blob(graph, raw)


def bisected(
    path: Path,
    x: np.ndarray,
    wrong: Callable[[bytes], bytes],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> tuple[str, dict[str, Any]]:
    """What bisect prints of a device that wrote other bytes of the first operator with a defect, and its JSON."""
    np.savez(folder / "in.npz", in0=x)
    given, dumps = [str(path), "-i", str(folder / "in.npz")], folder / "dumps"
    assert main(["run", *given, "--dump", ".*", str(dumps)]) == 0
    (graph,) = refsim.load(path).graphs.values()
    nodes = [node for node in graph.nodes if node.upstream] or graph.nodes
    value = nodes[0].outputs[0]
    file = dumps / f"delegate0_v{value}.bin"
    file.write_bytes(wrong(file.read_bytes()))
    capsys.readouterr()
    assert main(["bisect", *given, "--actual", str(dumps)]) == 1
    printed = capsys.readouterr().out
    assert main(["bisect", *given, "--actual", str(dumps), "--json"]) == 1
    return printed, json.loads(capsys.readouterr().out)
