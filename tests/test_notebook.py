"""What a notebook shows of refsim's values, and what a model takes that a notebook has at hand."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from graph.delegates import Builder

import refsim
from refsim.core.errors import ParameterError, RawBufferError, ShapeError
from refsim.core.html import ACROSS, ROWS
from refsim.formats.literals import Double

MODELS = Path(__file__).parent / "data" / "models"
MOST = 200


class Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.titles: list[str] = []
        self.frames = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.titles += [title for name, title in attrs if name == "title" and title]
        self.frames += tag == "iframe"


class Tensor:
    """As torch's: an array behind a way to it."""

    def __init__(self, array: np.ndarray, dtype: str = "torch.float32") -> None:
        self.array, self.dtype, self.shape = array, dtype, array.shape

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        return self.array

    def numpy(self) -> np.ndarray:
        if self.dtype == "torch.bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        if self.dtype == "meta":
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        return self.array


@pytest.fixture(scope="module")
def model() -> refsim.Model:
    return refsim.load(MODELS / "linear_head.pte")


@pytest.fixture(scope="module")
def buffers() -> tuple[refsim.PackedBuffer, refsim.PackedBuffer]:
    array = np.arange(6 * 9, dtype=np.int8).reshape(1, 6, 3, 3)
    expected, actual = (refsim.PackedBuffer.pack(array, "4W4C") for _ in range(2))
    actual.raw[5] ^= 1
    return expected, actual


def test_what_is_large_says_what_it_is_in_one_line(model, buffers) -> None:
    graph = next(iter(model.graphs.values()))
    for one in (model, graph, buffers[0], refsim.diff(*buffers)):
        text = repr(one)
        assert text.startswith(f"{type(one).__name__}(") and len(text) < MOST + len(model.path)
        assert "\n" not in text and " at 0x" not in text
    assert str(model.path) in repr(model) and f"{len(graph.nodes)} operators" in repr(graph)


def test_a_buffer_is_drawn(buffers) -> None:
    held = Cells()
    held.feed(buffers[0]._repr_html_())
    assert len(held.titles) == min(buffers[0].desc.nbytes, ROWS * ACROSS)
    desc = buffers[0].desc
    for number, title in enumerate(held.titles):
        at = [int(one) for one in re.findall(r"\d+", title.partition(": ")[2])]
        assert title.startswith(f"byte {number}: ")
        if at:
            assert desc.shape > tuple(at) and buffers[0].unpack()[tuple(at)] == buffers[0].data[number]
    floats = refsim.PackedBuffer.pack(np.zeros((40, 30), np.float32), "W")
    assert "... and 944 more" in floats._repr_html_()


def test_a_report_is_drawn(buffers) -> None:
    held = Cells()
    held.feed(refsim.diff(*buffers)._repr_html_())
    assert held.frames == 1


@pytest.mark.parametrize("wrapped", [lambda x: x, Tensor, lambda x: [Tensor(x)], lambda x: (x,)])
def test_one_array_or_a_tensor_is_an_input(wrapped, model) -> None:
    (array,) = model.random_inputs(0)
    assert model.run(wrapped(array))[0].tobytes() == model.run([array])[0].tobytes()


@pytest.mark.parametrize(
    ("given", "got", "need"),
    [
        (lambda x: x.astype(np.float64), "float64", "float32"),
        (lambda x: [x.tolist()], "list", "np.float32"),
        (lambda x: Tensor(x, "torch.bfloat16"), "torch.bfloat16", "np.float32"),
        (lambda x: {"in0": x}, "in0", "a list in this order: in0"),
        (lambda x: [x, None], "NoneType", "no such input"),
        (lambda x: [Tensor(x, "meta")], "meta", "np.float32"),
        (lambda x: 3.0, "float", "a list of arrays"),
        (lambda x: "in.npz", "str", "a list of arrays"),
    ],
)
def test_what_is_refused_says_what_helps(given, got: str, need: str, model) -> None:
    (array,) = model.random_inputs(0)
    with pytest.raises(ShapeError) as caught:
        model.run(given(array))
    assert got in str(caught.value.got) and need in str(caught.value.need)


def test_a_second_array_is_no_executor(model) -> None:
    (array,) = model.random_inputs(0)
    for run in (model.run, model.submit, model.prepare):
        with pytest.raises(ParameterError) as caught:
            run(*([array] if run != model.prepare else []), array)
        assert "one list" in str(caught.value.need)


def test_a_tensor_is_packed_and_compared(buffers) -> None:
    expected, actual = buffers
    raw = Tensor(actual.raw, "torch.uint8")
    assert refsim.diff(expected, raw).differing == 1
    values = Tensor(expected.unpack(), "torch.int8")
    assert refsim.PackedBuffer.pack(values, "4W4C").raw.tobytes() == expected.raw.tobytes()
    with pytest.raises(RawBufferError):
        refsim.PackedBuffer.pack(expected.unpack().tolist(), "4W4C")


def test_one_array_is_not_several_inputs(tmp_path: Path) -> None:
    b, shape = Builder(), (1, 8, 4, 6)
    x, y = b.activation(shape), b.activation(shape)
    one, other = (b.quantize(given, shape, "4W4C", 0.05, 3) for given in (x, y))
    scales = (*b.quantization(0.05, 3), *b.quantization(0.05, 3), *b.quantization(0.1, -2))
    rest = (b.add(Double(1.0)), b.activation(shape, "4W4C"))
    total = b.call("et_vk.q8ta_add.default", one, other, *scales, *rest)
    path = tmp_path / "add.blob"
    path.write_bytes(b.blob((x, y), b.dequantize(total, shape, 0.1, -2)))
    several = refsim.load(path)
    with pytest.raises(ShapeError) as caught:
        several.run(several.random_inputs(0)[0])
    assert caught.value.need == "[in0, in1]"
