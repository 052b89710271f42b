"""One question to the Vulkan drivers, asked in a process of its own: a driver that crashes or hangs gives an error.

Use this for a single answer. For longer work use `refsim.exec.isolated`, which takes longer to start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from refsim.core.errors import DeviceError
from refsim.exec import process

TIMEOUT_S = 120.0


def devices() -> Any:
    from refsim_gpu import vulkan

    return vulkan.devices()


def probe(index: int) -> Any:
    from refsim_gpu import probe

    return probe.run(index)


QUESTIONS: dict[str, Callable[..., Any]] = {"devices": devices, "probe": probe}


def ask(question: str, *arguments: object, timeout_s: float = TIMEOUT_S) -> Any:
    """The answer; DeviceError if the child ended without one, else the RefsimError that it raised."""
    where = " ".join(map(str, (question, *arguments)))
    try:
        return process.call(QUESTIONS[question], *arguments, where=where, seconds=timeout_s)
    except process.Silent as error:
        raise DeviceError(where, "the driver did not answer", got=error.got) from error
    except process.Ended as error:
        what = "the driver ended the process that asked it, without an answer"
        raise DeviceError(where, what, got=error.got) from error
