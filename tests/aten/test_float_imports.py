"""What importing refsim, and running a model without torch, costs."""

from __future__ import annotations

import subprocess
import sys

# --- what importing costs --------------------------------------------------------------------------------


def test_running_a_model_without_torch(tmp_path) -> None:
    """The bundled models need no torch: it is made impossible to import."""
    from pathlib import Path

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
