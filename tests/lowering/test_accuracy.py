"""run --float: what each operator loses is what NumPy says of dumped bytes and of the modules' own outputs in torch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from bench.zoo.networks.classic import Discriminator
from bench.zoo.networks.super_resolution import ESPCN, FSRCNN
from refsim.cli import main
from refsim.core.buffer import PackedBuffer
from refsim.exec.factory import executor_named
from refsim.exec.model import load
from refsim.partition.accuracy import Accuracy, accuracy
from refsim.partition.container import write
from refsim.partition.lower import lower

from .quantize import quantize


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(4, 16, 3, padding=1), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.head((self.second(x) + x).mean((2, 3)))


def depthwise() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(4, 8, 1), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU(), nn.Conv2d(8, 12, 1)
    )


def upscaled() -> nn.Module:
    return nn.Sequential(
        nn.ConvTranspose2d(4, 8, 2, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1), nn.PixelShuffle(2)
    )


SHAPE = (1, 4, 8, 8)
#: The network, and the modules whose outputs the values of its operators are, in their order.
NETWORKS = {
    "residual": (Residual, ["first", "second", "head"], "conv2d|linear"),
    "depthwise": (depthwise, ["0", "2", "3"], "conv2d"),
    "upscaled": (upscaled, ["1", "2", "3"], "conv2d|shuffle"),
}
#: The same of the zoo, with the shape of the input.
ZOO = {
    "discriminator": (Discriminator, ["body.0", "body.3", "body.5"], "conv2d", (1, 3, 32, 32)),
    "espcn": (ESPCN, ["a", "b", "c"], "conv2d", (1, 3, 12, 12)),
    "fsrcnn": (FSRCNN, [f"body.{n}" for n in range(0, 10, 2)] + ["up"], "conv2d", (1, 3, 12, 12)),
}


@pytest.mark.long
@pytest.mark.parametrize("name", [*NETWORKS, *ZOO])
def test_errors_are_those_of_dumped_bytes(name: str, tmp_path: Path, capsys, monkeypatch) -> None:
    make, modules, pattern, shape = ZOO[name] if name in ZOO else (*NETWORKS[name], SHAPE)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(1)
    network, x = make().eval(), torch.randn(shape)
    torch.export.save(quantize(network, (x,)), "q.pt2")
    torch.export.save(torch.export.export(network, (x,)), "float.pt2")
    x = x * 1.5  # beyond what was calibrated
    right: dict[str, np.ndarray] = {}
    for at in modules:
        network.get_submodule(at).register_forward_hook(
            lambda module, given, out, at=at: right.update({at: out.detach().double().numpy()})  # type: ignore[misc]
        )
    out = network(x).detach().numpy()
    np.savez("in.npz", in0=x.numpy())
    assert main(["lower", "q.pt2", "-o", "q.pte"]) == 0
    capsys.readouterr()
    words = ["run", "q.pte", "-i", "in.npz", "--float", "float.pt2"]
    assert main([*words, "--dump", pattern, "dump", "-o", "out.npz", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["accuracy"]
    assert main(words) == 0 and "what gains most in float first" in capsys.readouterr().out
    assert main([*words, "--html", "page.html", "--node-data", "shares.json"]) == 0
    shares = json.loads(Path("shares.json").read_text())["program"]["results"]
    rows = {row["value"]: row for row in found["operators"]}
    assert {value: one["value"] for value, one in shares.items()} == {
        value: f"{100 * row['share']:.1f}% of the loss" for value, row in rows.items()
    }
    assert all(f"width: {100 * row['share']:.1f}%" in Path("page.html").read_text() for row in rows.values())
    dumped = [json.loads(path.read_text()) for path in Path("dump").glob("*.json")]
    dumped.sort(key=lambda info: (info["value"].partition("_")[0], info["node"]))
    assert not found["missing"] and len(dumped) == len(modules)
    for info, at in zip(dumped, modules, strict=True):
        raw = Path("dump", f"{info['value']}.bin").read_bytes()
        ints = PackedBuffer.from_raw(raw, info["shape"], info["layout"]).unpack().astype(np.float64)
        scale = info.get("scale") or 1 / info["inv_scale"]
        real = ((ints - info["zero_point"]) * scale).reshape(right[at].shape)
        error, row = np.abs(real - right[at]), rows[info["value"]]
        assert row["sqnr"] == pytest.approx(
            10 * np.log10((right[at] ** 2).sum() / (error**2).sum()), rel=1e-3
        )
        assert row["largest"] == pytest.approx(error.max() / scale, rel=1e-3)
        assert row["mean"] == pytest.approx(error.mean() / scale, rel=1e-3)
    whole = np.load("out.npz")["out0"].astype(np.float64)
    assert found["outputs"][0] == pytest.approx(
        10 * np.log10((out**2).sum() / ((whole - out) ** 2).sum()), rel=1e-3
    )
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1.0)
    assert any(row["saturated"] > 0 for row in rows.values())


def test_the_layer_that_was_made_bad_comes_first(tmp_path: Path) -> None:
    """One weight of a layer is so large that the rest of its row are rounded to nothing."""
    torch.manual_seed(2)
    network, x = depthwise().eval(), torch.randn(1, 4, 8, 8)
    with torch.no_grad():
        network[3].weight[:, 0] *= 400
        network[1].weight[0] *= 1e-2
    path = tmp_path / "m.pte"
    path.write_bytes(write(lower(quantize(network, (x,)))))
    found = accuracy(load(path), [x.numpy()], torch.export.export(network, (x,)), executor_named("cpu"))
    assert accuracy(load(path), [x.numpy()], network, executor_named("cpu")).losses == found.losses
    assert found.losses[0].place == "convolution_2" and found.losses[0].own == min(
        row.own for row in found.losses
    )


@pytest.mark.long
@pytest.mark.parametrize("name", [*NETWORKS, "espcn", "fsrcnn"])
def test_a_layer_that_stays_float_gains_what_is_said(name: str, tmp_path: Path) -> None:
    """Each of the first three is lowered in float, with weights whose first channel hides the others."""
    torch.manual_seed(0)
    make, shape = (ZOO[name][0], ZOO[name][3]) if name in ZOO else (NETWORKS[name][0], (2, 4, 8, 8))
    network, x = make().eval(), torch.randn(shape)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter[:, 0] *= 60
    program, exact = quantize(network, (x,)), torch.export.export(network, (x,))

    def measured(*kept: str) -> Accuracy:
        path = tmp_path / "m.pte"
        path.write_bytes(write(lower(program, kept=kept, exact=exact)))
        return accuracy(load(path), [x.numpy()], exact, executor_named("cpu"))

    before = measured()
    rows = [row for row in before.losses if row.gain is not None][:3]
    assert rows[0].gain is not None and rows[0].gain > 0.5
    for row in rows:
        after = measured(row.place)
        assert after.outputs[0] - before.outputs[0] == pytest.approx(row.gain, rel=0.05, abs=0.02), row
        operators = [[loss.operator for loss in one.losses].count(row.operator) for one in (before, after)]
        assert operators[1] == operators[0] - 1


def test_what_cannot_stay_float_is_refused(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    network, x = Residual().eval(), torch.randn(1, 4, 8, 8)
    torch.export.save(quantize(network, (x,)), "q.pt2")
    torch.export.save(torch.export.export(network, (x,)), "float.pt2")
    torch.export.save(torch.export.export(Residual().eval(), (x,)), "other.pt2")
    kept = ("lower", "q.pt2", "--keep-float", "convolution_1", "--float")
    assert main([*kept, "float.pt2", "-o", "k.pte", "--json"]) == 0 and Path("k.pte").is_file()
    fused = [row for one in json.loads(capsys.readouterr().out)["delegates"] for row in one["fused"]]
    assert fused and not any("convolution_1" in row["replaced"] for row in fused)
    for words in ([*kept, "other.pt2"], [*kept, "float.pt2", "--keep-float", "add"], [*kept[:4]]):
        assert main([*words, "-o", "none.pte"]) == 2 and not Path("none.pte").exists()
