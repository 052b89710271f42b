"""What a test needs and may lack: it is skipped then, with the reason. REFSIM_GPU=require makes that a failure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from refsim.core.errors import DeviceError, MissingDependencyError


@contextmanager
def needs_device() -> Iterator[None]:
    """Skip where there is no device of the kind that the block opens."""
    try:
        yield
    except (DeviceError, MissingDependencyError) as error:
        if os.environ.get("REFSIM_GPU") == "require":
            raise
        pytest.skip(str(error))
