"""Which operators of torch a file may name: functions of tensors, and nothing that opens files or skips checks."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from refsim import aten
from refsim.aten import bridge
from refsim.aten.allowed import ALLOWED, PLACE, is_allowed
from refsim.core.errors import UnknownOperatorError

REFUSED = (
    "aten::from_file", "aten.from_file.default", "aten::from_file.out", "aten::segment_reduce", "aten::set_",
    "aten::resize_", "aten::_reshape_alias", "aten::randn", "aten::bernoulli", "aten::lstm.input", "aten::gcd",
    "aten::empty_strided", "aten::relu_", "aten::_pin_memory", "prims::device_put", "inductor::_alloc_from_pool",
    "quantized::conv2d_unpack", "aten::no_such_operator",
)  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_file_may_not_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "find_spec", lambda _: object())  # as where torch is installed
    with pytest.raises(
        UnknownOperatorError, match=f"node 3: not among the operators .* got {name}, need .*{PLACE}"
    ):
        aten.find(name, "node 3")


def test_the_place_exists_and_names_stand_once() -> None:
    assert (Path(__file__).parents[2] / PLACE).is_file()
    text = (Path(__file__).parents[2] / PLACE).read_text().split('"""', 2)[2]
    for names in ALLOWED.values():
        assert all(text.split().count(name) == 1 for name in names if name not in ("is", "for"))
    assert is_allowed("aten", "erfinv") and not is_allowed("prims", "erfinv")


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_what_torch_runs_is_known_to_it_and_writes_nowhere() -> None:
    import torch

    (result,) = aten.find("aten::logaddexp", "x").run([np.zeros(2, np.float32)] * 2, "x")
    assert result == pytest.approx(np.log(np.float32(2)))
    for name in sorted(ALLOWED["aten"]):
        packet = getattr(torch.ops.aten, name)
        overloads = [getattr(packet, overload)._schema for overload in packet.overloads()]
        tensors = [schema for schema in overloads if str(schema.arguments[0].type).startswith("Tensor")]
        for schema in tensors:
            written = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
            assert all(a in {o.name for o in schema.arguments if o.is_out} for a in written), schema


# --- without torch ---


def test_running_a_model_without_torch(tmp_path) -> None:
    """The bundled models need no torch: it is made impossible to import."""
    models = Path(__file__).parents[1] / "data" / "models"
    (tmp_path / "torch.py").write_text("raise ImportError('not here')\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import numpy as np, refsim\n"
        f"io = np.load({str(models / 'mixed_ops.io.npz')!r})\n"
        f"out = refsim.load({str(models / 'mixed_ops.pte')!r}).run([io['in0']])\n"
        "assert out[0].tobytes() == io['upstream_out0'].tobytes()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_inspecting_a_model_that_needs_torch_does_not_import_it(tmp_path) -> None:
    """Only a run of such a node does."""
    from refsim.formats.vkgraph.schema import OperatorCall, VkGraph, VkTensor
    from refsim.formats.vkgraph.write import write_blob

    tensor = VkTensor(5, (4,), memory_layout=0)
    graph = VkGraph("", (OperatorCall(0, "aten.erfc.default", (0, 1)),), (tensor, tensor), (0,), (1,))
    (tmp_path / "delegate.bin").write_bytes(write_blob(graph, b""))
    (tmp_path / "torch.py").write_text("raise ImportError('not here')\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import numpy as np, refsim\n"
        "from refsim.cli import main\n"
        f"path = {str(tmp_path / 'delegate.bin')!r}\n"
        "assert main(['inspect', path]) == 0 and 'torch' not in sys.modules\n"
        "try:\n    refsim.load(path).run([np.zeros(4, np.float32)])\n"
        "except refsim.RefsimError as error:\n    assert 'torch refuses the arguments: not here' in str(error)\n"
        "else:\n    raise SystemExit('ran')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
