"""Call a function in a process of its own, within limits of time and memory.

Processes for torch are forked from one that has imported it and the packages of models, which takes longer than many
models do. A process that must not see torch starts anew.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Limits:
    """Of every stage of a model."""

    seconds: float = 480
    megabytes: int = 12_000


def call(limits: Limits, torch: bool, function: Callable[..., Row], *arguments: object) -> Row:
    """What a function returns; ``{"error": ...}`` if it raised, took too long or its process died.

    Without ``torch`` an import of it fails in the process, as where it is not installed. With it the process is forked
    from one that has imported `bench.zoo.preload`.
    """
    context = multiprocessing.get_context("forkserver" if torch else "spawn")
    if torch:
        context.set_forkserver_preload(["bench.zoo.preload"])
    answers, answer = context.Pipe(duplex=False)
    process = context.Process(
        target=_serve, args=(answer, limits.megabytes, torch, function, arguments), daemon=True
    )
    process.start()
    answer.close()
    try:
        if not answers.poll(limits.seconds):
            return {"error": f"Silent: no answer within {limits.seconds:g} s"}
        row: Row = answers.recv()
        return row
    except EOFError:
        process.join()
        return {"error": f"Ended: {_status(process.exitcode)}"}
    finally:
        process.kill()
        process.join()
        answers.close()


def _status(code: int | None) -> str:
    return f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"


def _serve(
    answer: Connection,
    megabytes: int,
    torch: bool,
    function: Callable[..., Row],
    arguments: tuple[object, ...],
) -> None:
    """In the process: set the limits, call, send what comes."""
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    sys.setrecursionlimit(10_000)
    gc.disable()  # it lives for one model; the collector takes a fifth of the time of torch.export
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    if not torch:
        sys.modules["torch"] = None  # type: ignore[assignment]  # find_spec gives None, an import fails
    try:
        answer.send(function(*arguments))
    except MemoryError:
        answer.send({"error": f"MemoryError: more than {megabytes} MB"})
    except Exception as error:
        answer.send({"error": told(error)})


def told(error: BaseException) -> str:
    """An exception as a line: its type, message and the place that raised it; of a chain, the first one."""
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    frame = traceback.extract_tb(error.__traceback__)[-1]
    message = " ".join(str(error).split())[:400]
    return f"{type(error).__name__}: {message} ({os.path.basename(frame.filename)}:{frame.lineno})"
