"""One question to the Vulkan drivers, in a process of its own: a driver that crashes or hangs gives an error.

The child (``python -m refsim_gpu.query devices`` or ``probe N``) pickles its answer to stdout. For answers that are
wanted once; work that goes on has `refsim_gpu.worker`, which takes longer to start.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import Any

from refsim.core.errors import DeviceError, RefsimError

TIMEOUT_S = 120.0
COMMAND = (sys.executable, "-m", "refsim_gpu.query")


def devices() -> Any:
    from refsim_gpu import vulkan

    return vulkan.devices()


def probe(index: str) -> Any:
    from refsim_gpu import probe

    return probe.run(int(index))


QUESTIONS = {"devices": devices, "probe": probe}


def ask(question: str, *arguments: object, timeout_s: float = TIMEOUT_S) -> Any:
    """The answer; DeviceError if the child ended without one, else the RefsimError that it raised."""
    where = " ".join(map(str, (question, *arguments)))
    command = [*COMMAND, question, *map(str, arguments)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise DeviceError(where, "the driver did not answer", got=f"silence for {timeout_s:g} s") from error
    if done.returncode or not done.stdout:
        status = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        raise DeviceError(where, "the driver ended the process that asked it, without an answer", got=status)
    answer = pickle.loads(done.stdout)
    if isinstance(answer, RefsimError):
        raise answer
    return answer


def main(arguments: list[str]) -> int:
    """The child: whatever a driver prints goes to stderr, stdout is for the answer."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        answer = QUESTIONS[arguments[0]](*arguments[1:])
    except RefsimError as error:
        answer = error
    with answers:
        pickle.dump(answer, answers)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
