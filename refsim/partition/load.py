"""Read a .pt2 file."""

from __future__ import annotations

import io
import os
import sys
import warnings
from importlib.util import find_spec
from typing import Any

from refsim.core.errors import FormatError, MissingDependencyError, RefsimError
from refsim.core.extras import TORCH_FIX
from refsim.formats.file import held, read_file

ZIP_MAGIC = b"PK\x03\x04"


def need_torch(where: str) -> None:
    """MissingDependencyError unless torch is installed."""
    if find_spec("torch") is None:
        raise MissingDependencyError(where, "torch is not installed", need=TORCH_FIX)


def load(path: str | os.PathLike[str], trust: bool = False) -> Any:
    """The `torch.export.ExportedProgram` of a .pt2 file; FormatError for anything that torch cannot read.

    A file that needs more than data (`refsim.partition.archive`) is refused with the reason, unless you ``trust`` it:
    loading it may then run whatever it holds.
    """
    name = os.fsdecode(path)
    data = read_file(path, suffix=".pt2")
    if bytes(data[:4]) != ZIP_MAGIC:
        raise FormatError(name, "not a .pt2 file", got=held(data), need="what torch.export.save writes")
    need_torch("lower")
    import torch

    from refsim.partition.archive import checked, tensors_only

    register_quantized_operators()

    def read() -> Any:
        if trust:
            return torch.export.load(name)
        with tensors_only():
            return torch.export.load(io.BytesIO(checked(data, name)))

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return read()
            except Exception:
                if not register_torchao():
                    raise
                return read()  # a program of torchao's operators or tensors
    except RefsimError:
        raise
    except Exception as error:  # torch raises all kinds of errors here
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise FormatError(
            name, "torch cannot read it", got=reason, need="what torch.export.save writes"
        ) from error


def register_torchao() -> bool:
    """Make torch know torchao's operators and tensors, where it is installed and was not imported before."""
    if "torchao" in sys.modules or find_spec("torchao") is None:
        return False
    import torchao.quantization  # noqa: F401

    return True


def register_quantized_operators() -> None:
    """Make torch know quantized_decomposed: whichever package has it registers it when it is imported."""
    if find_spec("torch.ao.quantization.fx._decomposed") is not None:
        pass
    else:
        import torchao.quantization.pt2e  # noqa: F401
