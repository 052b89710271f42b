"""Makes the files of tests/data/devtools with ExecuTorch: python -m tests.interop.devtools_files [FOLDER].

Names of files in stack traces are made relative, so that nothing in them depends on the machine. Archives are deflated.
"""

from __future__ import annotations

import io
import linecache
import logging
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import torch
from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from executorch.exir import to_edge_transform_and_lower

from tests.lowering.quantize import quantize

FOLDER = Path(__file__).parents[1] / "data" / "devtools"
_PACKAGES = re.compile(rb'[^" ]*/(site-packages/)')


def network() -> torch.nn.Module:
    """The network of net.py, whose code calls itself ``net.py`` wherever it is run."""
    text = (FOLDER / "net.py").read_text()
    linecache.cache["net.py"] = (len(text), None, text.splitlines(True), "net.py")
    names: dict[str, Any] = {"__name__": "net"}
    exec(compile(text, "net.py", "exec"), names)  # our own file
    torch.manual_seed(1)
    made = names["Net"]()
    assert isinstance(made, torch.nn.Module)
    return made


def make(folder: Path) -> None:
    x = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(2))
    program = quantize(network(), [x])
    made = io.BytesIO()
    torch.export.save(program, made)
    (folder / "net.pt2").write_bytes(_portable(made.getvalue()))
    logging.disable(logging.WARNING)
    edge = to_edge_transform_and_lower(program, partitioner=[VulkanPartitioner()], generate_etrecord=True)
    lowered = edge.to_executorch()
    logging.disable(logging.NOTSET)
    (folder / "net.pte").write_bytes(lowered.buffer)
    record = lowered.get_etrecord()
    record.update_representative_inputs([[x]])
    made = io.BytesIO()
    record.save(made)
    (folder / "net.etrecord").write_bytes(_portable(made.getvalue()))


def _portable(archive: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(made, "w") as new:
        for info in old.infolist():
            row = zipfile.ZipInfo(info.filename)
            # torch reads stored members only; refsim and ExecuTorch read both
            row.compress_type = (
                zipfile.ZIP_DEFLATED if "ETRECORD_V0" in old.namelist() else zipfile.ZIP_STORED
            )
            new.writestr(row, _PACKAGES.sub(rb"\1", old.read(info)))
    return made.getvalue()


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
