"""Networks as data: layers with shapes, from which the same int8 network is built for every engine.

Works are single layers, repeated: the time of a layer is the difference between a network of many and one of a single
repetition, divided by their number, so that neither calls nor the conversions at both ends count for anyone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod

CONV, LINEAR, ADD, MAXPOOL, MEAN, FLATTEN = "conv", "linear", "add", "maxpool", "mean", "flatten"


@dataclass(frozen=True)
class Layer:
    """``inputs`` are values: 0 is the network's input, i + 1 what layer i gives. ``out`` counts channels."""

    kind: str
    inputs: tuple[int, ...]
    out: int = 0
    kernel: int = 1
    stride: int = 1
    pad: int = 0
    groups: int = 1
    relu: bool = False


@dataclass(frozen=True)
class Net:
    """A network that takes float32 of ``shape``, computes in int8 and gives float32."""

    name: str
    shape: tuple[int, ...]
    layers: tuple[Layer, ...]

    def shapes(self) -> list[tuple[int, ...]]:
        """Of every value."""
        found = [self.shape]
        for layer in self.layers:
            x = found[layer.inputs[0]]
            if layer.kind in (CONV, MAXPOOL):
                size = [(s + 2 * layer.pad - layer.kernel) // layer.stride + 1 for s in x[2:]]
                found.append((x[0], layer.out or x[1], *size))
            elif layer.kind == LINEAR:
                found.append((*x[:-1], layer.out))
            elif layer.kind == MEAN:
                found.append((*x[:2], 1, 1))
            else:
                found.append((x[0], prod(x[1:])) if layer.kind == FLATTEN else x)
        return found

    @property
    def macs(self) -> int:
        """Products of all layers."""
        shapes, total = self.shapes(), 0
        for number, layer in enumerate(self.layers):
            x, out = shapes[layer.inputs[0]], shapes[number + 1]
            if layer.kind == CONV:
                total += prod(out) * x[1] // layer.groups * layer.kernel**2
            elif layer.kind == LINEAR:
                total += prod(out) * x[-1]
        return total


@dataclass(frozen=True)
class Bundled:
    """A model of tests/data/models: its .pte for us, its .pt2 for XNNPACK; the other engines have no file of it."""

    name: str

    @property
    def macs(self) -> int:
        return 0


class Builder:
    """Layers one after the other; each method gives the number of the new value."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.layers: list[Layer] = []

    def add(self, layer: Layer) -> int:
        self.layers.append(layer)
        return len(self.layers)

    def conv(
        self, x: int, out: int, kernel: int = 1, stride: int = 1, groups: int = 1, relu: bool = True
    ) -> int:
        """Padded so that stride 1 keeps the size."""
        return self.add(Layer(CONV, (x,), out, kernel, stride, (kernel - 1) // 2, groups, relu))

    def classify(self, x: int) -> None:
        """Average over the pixels and a linear layer of 1000 classes."""
        self.add(Layer(LINEAR, (self.add(Layer(FLATTEN, (self.add(Layer(MEAN, (x,))),))),), 1000))

    def net(self, name: str) -> Net:
        return Net(name, self.shape, tuple(self.layers))


# --- whole networks ----------------------------------------------------------------------------------------


def resnet50(size: int = 224) -> Net:
    """ResNet-50's layers."""
    b = Builder((1, 3, size, size))
    x = b.conv(0, 64, 7, 2)
    x = b.add(Layer(MAXPOOL, (x,), kernel=3, stride=2, pad=1))
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            short = b.conv(x, 4 * width, 1, stride, relu=False) if not block else x
            y = b.conv(b.conv(b.conv(x, width), width, 3, stride), 4 * width, relu=False)
            x = b.add(Layer(ADD, (y, short), relu=True))
    b.classify(x)
    return b.net("ResNet-50 shape")


def mobilenet_v2(size: int = 224, width: float = 1.0) -> Net:
    """MobileNetV2's layers; its clamps at 6 are plain relus here, which every engine joins to the layer before."""

    def channels(count: int) -> int:
        scaled = max(8, int(count * width + 4) // 8 * 8)
        return scaled + 8 if scaled < 0.9 * count * width else scaled

    b = Builder((1, 3, size, size))
    x, before = b.conv(0, channels(32), 3, 2), channels(32)
    rows = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for expand, count, repeats, first in rows:
        out = channels(count)
        for repeat in range(repeats):
            stride = first if not repeat else 1
            hidden = before * expand
            y = b.conv(x, hidden) if expand > 1 else x
            y = b.conv(b.conv(y, hidden, 3, stride, groups=hidden), out, relu=False)
            x = b.add(Layer(ADD, (x, y))) if stride == 1 and before == out else y
            before = out
    x = b.conv(x, max(1280, channels(1280)))
    b.classify(x)
    suffix = "" if (size, width) == (224, 1.0) else f" {width:g} {size}"
    return b.net(f"MobileNetV2{suffix} shape")


# --- single layers -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """``many`` holds ``repeats`` more of what is measured than ``one``.

    ``less`` names works whose time each repetition also contains, to be subtracted. ``targets``: peer -> the ratio
    that is wanted with one thread. ``reads``: it is bound by reading the weights, each of which is used once.
    """

    name: str
    one: Net | Bundled
    many: Net | None = None
    repeats: int = 1
    less: tuple[str, ...] = ()
    targets: Mapping[str, float] = field(default_factory=dict)
    reads: bool = False

    @property
    def macs(self) -> float:
        """Products of a repetition."""
        return (self.many.macs - self.one.macs) / self.repeats if self.many else self.one.macs


def _chain(name: str, shape: tuple[int, ...], layers: tuple[Layer, ...], repeats: int) -> tuple[Net, Net]:
    """The layers in a row, once and ``1 + repeats`` times."""

    def chained(count: int) -> Net:
        b, x = Builder(shape), 0
        for _ in range(count):
            for layer in layers:
                x = b.add(Layer(**{**vars(layer), "inputs": (x,)}))
        return b.net(f"{name} x{count}")

    return chained(1), chained(1 + repeats)


def _adds(shape: tuple[int, ...], repeats: int) -> tuple[Net, Net]:
    def added(count: int) -> Net:
        b, x, y = Builder(shape), 0, 0
        for _ in range(count):
            x, y = b.add(Layer(ADD, (x, y))), x
        return b.net(f"add x{count}")

    return added(1), added(1 + repeats)


def _stems(repeats: int) -> tuple[Net, Net]:
    """7x7 convolutions of the same image, added up."""

    def stems(count: int) -> Net:
        b = Builder((1, 3, 224, 224))
        x = b.conv(0, 64, 7, 2, relu=False)
        for _ in range(count - 1):
            x = b.add(Layer(ADD, (x, b.conv(0, 64, 7, 2, relu=False))))
        return b.net(f"7x7 x{count}")

    return stems(1), stems(1 + repeats)


#: Ratios wanted to XNNPACK and to ONNX Runtime U8S8 on a processor with a matrix unit (AMX).
WITH_TILES = {
    "3x3 64->64 56x56": (2.6, 1.8),
    "3x3 256->256 14x14": (2.6, 1.8),
    "1x1 256->1024->256 14x14": (2.2, 1.7),
    "GEMM 512^3": (3, 1.5),
    "gemv 2048->1000->2048": (1.3, 1.5),
    "ResNet-50 shape": (2.3, 1.8),
    "MobileNetV2 shape": (2.2, 2),
}

#: Those that have a .pt2.
BUNDLED = ("linear_head", "linear_head_gemv", "mixed_ops", "refine_seg")
XNN, U8S8 = "XNNPACK", "ONNX Runtime U8S8"
STEM_ADD = "add + requantize 803k"


def _square(out: int, kernel: int, groups: int = 1) -> Layer:
    return Layer(CONV, (0,), out, kernel, 1, kernel // 2, groups)


def works(tiles: bool = False) -> tuple[Work, ...]:
    """Everything that is measured, with the ratios wanted to XNNPACK and to ONNX Runtime U8S8.

    ``tiles``: the processor has a matrix unit.
    """
    found = _works()
    wanted = WITH_TILES if tiles else {}
    return tuple(
        replace(work, targets=dict(zip((XNN, U8S8), wanted[work.name], strict=True)))
        if work.name in wanted
        else work
        for work in found
    )


def _works() -> tuple[Work, ...]:

    def row(name: str, nets: tuple[Net, Net], xnn: float, ort: float, *less: str) -> Work:
        one, many = nets
        repeats = sum(layer.kind != ADD or not less for layer in many.layers)
        per_repeat = sum(layer.kind != ADD or not less for layer in one.layers)
        return Work(name, one, many, repeats // per_repeat - 1, less, {XNN: xnn, U8S8: ort})

    def chain(
        name: str, shape: tuple[int, ...], repeats: int, xnn: float, ort: float, *layers: Layer
    ) -> Work:
        return row(name, _chain(name, shape, layers, repeats), xnn, ort)

    def linear(out: int) -> Layer:
        return Layer(LINEAR, (0,), out)

    return (
        chain("3x3 64->64 56x56", (1, 64, 56, 56), 8, 4.5, 2.3, _square(64, 3)),
        chain("3x3 256->256 14x14", (1, 256, 14, 14), 8, 4.5, 2.3, _square(256, 3)),
        chain("1x1 256->1024->256 14x14", (1, 256, 14, 14), 8, 1.6, 0.9, _square(1024, 1), _square(256, 1)),
        chain("GEMM 512^3", (512, 512), 8, 1.6, 0.9, linear(512)),
        row("7x7 s2 3->64 224", _stems(4), 4, 1.4, STEM_ADD),
        chain("depthwise 3x3 144 56x56", (1, 144, 56, 56), 16, 2.5, 1.7, _square(144, 3, 144)),
        replace(
            chain("gemv 2048->1000->2048", (1, 2048), 4, 1.6, 1.35, linear(1000), linear(2048)), reads=True
        ),
        row(STEM_ADD, _adds((1, 64, 112, 112), 16), 1.1, 1.1),
        Work("ResNet-50 shape", resnet50(), targets={XNN: 2.1, U8S8: 1.1}),
        Work("MobileNetV2 shape", mobilenet_v2(), targets={XNN: 1.8, U8S8: 1.05}),
        Work("MobileNetV2 0.35 96 shape", mobilenet_v2(96, 0.35)),
        *(Work(f"bundled {name}", Bundled(name)) for name in BUNDLED),
    )
