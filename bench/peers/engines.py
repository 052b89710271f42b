"""The engines: each opens its file of a network and gives a function that runs it once on the input."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.peers.net import U8S8, XNN

REFSIM, MODEL, S8S8, FP32 = "refsim", "refsim model", "ONNX Runtime S8S8", "torch fp32"
Run = Callable[[], np.ndarray]
#: A work that is a row of layers has at most so many different ones.
LAYERS_IN_A_ROW = 2


def refsim(folder: Path, threads: int) -> Run:
    from refsim.exec.cpu import NativeExecutor
    from refsim.exec.model import load

    model, x = load(folder / "refsim.pte"), np.load(folder / "x.npy")
    shapes = {
        t.shape
        for g in model.graphs.values()
        for t in g.tensors.values()
        if t.data is not None and t.data.ndim > 1
    }
    # a row of equal layers is no network: let each have the memory that it would have alone in one
    alone = {"memory_limit": math.inf} if len(shapes) <= LAYERS_IN_A_ROW else {}
    executor = NativeExecutor(threads, **alone)
    return lambda: model.run([x], executor)[0]


def model(folder: Path, threads: int) -> Run:
    """The emulated kernels: what the bytes are held against."""
    from refsim.exec.model import load

    loaded, x = load(folder / "refsim.pte"), np.load(folder / "x.npy")
    return lambda: loaded.run([x], "cpu:emulated")[0]


def xnnpack(folder: Path, threads: int) -> Run:
    import torch
    from executorch.extension.pybindings import portable_lib

    portable_lib._unsafe_reset_threadpool(threads)
    if portable_lib._threadpool_get_thread_count() != threads:
        raise RuntimeError(
            f"XNNPACK has {portable_lib._threadpool_get_thread_count()} threads, need {threads}"
        )
    file = (folder / "xnnpack.pte").read_bytes()
    module = portable_lib._load_for_executorch_from_buffer(file)
    x = (torch.from_numpy(np.load(folder / "x.npy")),)

    def run(_file: bytes = file) -> np.ndarray:  # the module reads the bytes and does not own them
        return module.run_method("forward", x)[0].numpy()  # type: ignore[no-any-return]

    return run


def _onnxruntime(path: Path, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    given = {"x": np.load(path.parent / "x.npy")}
    return lambda: session.run(None, given)[0]  # type: ignore[no-any-return]


def u8s8(folder: Path, threads: int) -> Run:
    return _onnxruntime(folder / "u8s8.onnx", threads)


def s8s8(folder: Path, threads: int) -> Run:
    return _onnxruntime(folder / "s8s8.onnx", threads)


def fp32(folder: Path, threads: int) -> Run:
    import torch

    from bench.peers.build import Module

    torch.set_num_threads(threads)
    net = Module(pickle.loads((folder / "net.pickle").read_bytes()), quantized=False).eval()
    x = torch.from_numpy(np.load(folder / "x.npy"))
    if x.ndim == 4:
        x = x.contiguous(memory_format=torch.channels_last)

    def run() -> np.ndarray:
        with torch.inference_mode():
            return net(x).numpy()  # type: ignore[no-any-return]

    return run


ENGINES: dict[str, Callable[[Path, int], Run]] = {
    REFSIM: refsim,
    XNN: xnnpack,
    U8S8: u8s8,
    S8S8: s8s8,
    FP32: fp32,
    MODEL: model,
}

#: The file that an engine needs in a network's folder.
FILES = {
    REFSIM: "refsim.pte",
    MODEL: "refsim.pte",
    XNN: "xnnpack.pte",
    U8S8: "u8s8.onnx",
    S8S8: "s8s8.onnx",
    FP32: "net.pickle",
}
