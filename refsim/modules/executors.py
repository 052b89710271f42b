"""The executor that runs the modules in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from refsim.exec.factory import backend
from refsim.formats import kernels

if TYPE_CHECKING:
    from refsim.exec.isolated import IsolatedExecutor


def of(
    folder: str,
    index: int = 0,
    variant: str = "",
    images: bool = False,
    environment: Mapping[str, str] | None = None,
) -> IsolatedExecutor:
    """The executor of the modules in a folder, whose device opens while the caller goes on (`refsim_gpu.modules`).

    ``environment`` is that of the process in which SPIR-V runs, beside this one's.
    """
    if kernels.is_wgsl(kernels.rows_of(folder)[1]):
        begun: IsolatedExecutor = backend("wgsl").begun(folder, str(index))
        return begun
    spv = backend("spv")
    found: IsolatedExecutor = spv.begun(folder, spv.Options(index, variant, images), environment=environment)
    return found
