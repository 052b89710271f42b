"""Whole files on WGSL kernels of our own: what ExecuTorch's WebGPU runtime recorded for its calls and models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from exec.test_webgpu import DATA, OWN, RECORDED, arrays, bits, model
from needed import needs_device

from modules.wgsl_kernels import INDEX, RIGHT
from refsim.core.errors import DeviceError, MissingDependencyError
from refsim.exec import factory
from refsim.exec.executor import Executor
from refsim.exec.factory import executor_named
from refsim.exec.model import load
from refsim.formats import kernels
from refsim.formats.profiles import profile
from refsim.graph.interpreter import Event, Observer


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with needs_device(), executor_named(f"wgsl:{RIGHT}@{INDEX}") as found:
        yield found


ROWS = kernels.read(RIGHT / kernels.NAME)


def on_kernels(case: str) -> bool:
    """Whether all operators of a case but casts and float ones have a kernel in the folder."""
    return all(node.is_float or node.operator in ROWS for node in model(case).graphs[0].nodes)


@pytest.mark.few(24)
@pytest.mark.parametrize("case", [name for name in RECORDED if on_kernels(name) and not name.startswith(OWN)])
def test_a_recorded_file_has_the_recorded_bits(executor: Executor, case: str) -> None:
    own = profile(executor.device_info().numerics)
    expected = arrays(case, "out") if own.name == "lavapipe" else model(case, own).run(arrays(case, "in"))
    assert bits(model(case).run(arrays(case, "in"), executor)) == bits(expected)


@pytest.mark.few(3)
@pytest.mark.parametrize("case", ["wg_mobile", "wg_mobile.alpha", "x_add", "x_maxpool", "x_res"])
def test_an_observer_sees_every_value_and_who_computed_it(executor: Executor, case: str) -> None:
    """Watched or not, a run gives the same; kernels and the host take turns."""
    held, inputs = model(case, profile(executor.device_info().numerics)), arrays(case, "in")
    mine: dict[int, bytes] = {}
    by: Counter[bool] = Counter()

    def tell(event: Event) -> None:
        mine.update({value: _bytes(array) for value, array in event.outputs.items()})
        by[not event.on_host] += len(event.nodes)

    watched = held.run(inputs, executor, Observer(tell))
    assert bits(watched) == bits(held.run(inputs, executor))
    theirs: dict[int, bytes] = {}
    held.run(inputs, "cpu", lambda event: theirs.update({v: _bytes(a) for v, a in event.outputs.items()}))
    assert mine == theirs
    assert by[True] >= 3


def _bytes(held: object) -> bytes:
    return np.asarray(getattr(held, "raw", held)).tobytes()


@pytest.mark.parametrize("case", ["wg_mobile", "wg_mobile.alpha", "x_add", "x_res"])
def test_a_whole_graph_is_one_command_buffer(executor: Executor, case: str) -> None:
    """Float operators between the kernels stay on the device, too."""
    steps: list[int] = []

    def tell(event: Event) -> None:
        steps.append(len(event.nodes))

    held = model(case, profile(executor.device_info().numerics))
    outs = held.run(arrays(case, "in"), executor, Observer(tell, lambda *_: False))
    assert steps == [len(held.graphs[0].nodes)]
    assert bits(outs) == bits(held.run(arrays(case, "in"), "cpu"))


def test_a_smaller_shape_runs_on_kernels_of_the_bound(executor: Executor) -> None:
    """Three operators that the runtime does not resize: each reads zeros behind its smaller input."""
    held = load(DATA / "dynamic" / "batch_conv.pte", model("x_add").graphs[0].target)
    x = np.random.default_rng(0).uniform(-1, 1, (2, 8, 8, 8)).astype(np.float32)
    (out,) = held.run([x], executor)
    assert out.shape == (4, 8, 8, 8) and bits([out]) == bits(held.run([x], "cpu"))


@pytest.mark.long
def test_a_device_is_chosen_by_its_name(executor: Executor) -> None:
    name = executor.device_info().name
    with executor_named(f"wgsl:{RIGHT}@{name[:4].lower()}") as other:
        assert other.device_info().name == name
    with pytest.raises(DeviceError, match="no such device"):
        executor_named(f"wgsl:{RIGHT}@voodoo")


def test_without_the_package_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wgsl = factory.backend("wgsl")
    monkeypatch.setitem(__import__("sys").modules, "wgpu", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'refsim\[webgpu\]'"):
        wgsl.names()
