"""Who computes chunks: this process, processes of this machine, or a cluster of many machines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

from refsim.core import choices
from refsim.core.errors import MissingDependencyError, ParameterError
from refsim.core.extras import SWEEP_FIX
from refsim.sweep import pool
from refsim.sweep.run import Serve

LOCAL, NONE = "local", "none"


def server(scheduler: str | None, workers: int, note: Callable[[str], None]) -> Serve:
    """What computes chunks. ``note`` is told what the user should know meanwhile.

    MissingDependencyError if a scheduler is asked for and dask is not installed; ParameterError for no address.
    """
    near = choices.nearest(scheduler, (LOCAL, NONE)) if scheduler and ":" not in scheduler else None
    if near not in (None, scheduler):
        raise ParameterError(
            "sweep --scheduler",
            "unknown",
            got=scheduler,
            need=f"{LOCAL}, {NONE} or HOST:PORT{choices.asked(near)}",
        )
    if workers == 0:
        if scheduler not in (None, NONE):
            raise ParameterError("sweep --workers", "a scheduler needs some", got=0, need=">= 1")
        return pool.inside
    installed = find_spec("distributed") is not None
    if scheduler == NONE or (scheduler is None and not installed):
        return partial(pool.processes, workers=workers)
    if not installed:
        raise MissingDependencyError("sweep --scheduler", "dask.distributed is not installed", need=SWEEP_FIX)
    from refsim.sweep import cluster

    if scheduler in (None, LOCAL):
        return partial(cluster.local, workers=workers, note=note)
    return partial(cluster.remote, address=str(scheduler), note=note)
