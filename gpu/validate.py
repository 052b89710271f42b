"""Run the tests that use a device under Vulkan's validation layer: `make validate`, or `python -m refsim_gpu.validate`.

The layer also checks synchronization. What it says, in whichever process, goes through a pipe to this one, which notes
the test that ran. Status 1 if there was a message or a test failed, 2 for a wrong use, 3 if there is no layer.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from refsim.core.counted import counted
from refsim_gpu import system

LAYER = "VK_LAYER_KHRONOS_validation"
ROOT = Path(__file__).resolve().parents[1]
SETTINGS = """khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
khronos_validation.report_flags = error,warn,perf
khronos_validation.log_filename = {pipe}
khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT
"""
MARK, END = "== ", "the end"
#: How a message begins; its objects follow in lines of their own.
BEGINS = re.compile(r"\S+\((ERROR|WARN|PERF|INFO)")
#: What a test file holds that opens a device, itself or through a command. Not those that need no such thing.
OPENS = re.compile(r"\"gpu\"|\bgpu:0|spv:|KomputeExecutor|kompute import|executors\(\)|modules\.opened")
NOT_THESE = ("test_validate.py", "test_errors.py", "test_process.py")


def files(root: Path = ROOT) -> list[Path]:
    """The test files that may open a device."""
    found = sorted((root / "tests").rglob("test_*.py"))
    return [
        p
        for p in found
        if p.name not in NOT_THESE and (p.parent.name == "gpu" or OPENS.search(p.read_text(encoding="utf-8")))
    ]


class Listener:
    """Collects what the layer says, by the test that runs; to pytest it is a plugin.

    A process of its own empties the pipe: while Vulkan waits for room in it, no thread of Python's runs.
    """

    def __init__(self, folder: Path) -> None:
        self._pipe, self._kept = folder / "messages", folder / "kept"
        self._settings = folder / "vk_layer_settings.txt"
        self._writes = -1
        self._expected: dict[str, tuple[str, ...]] = {}

    def pytest_runtest_setup(self, item: Any) -> None:
        mark = item.get_closest_marker("wrong_on_purpose")
        self._mark(item.nodeid)
        if mark is not None:
            self._expected[item.nodeid] = mark.args

    def _mark(self, name: str) -> None:
        os.write(self._writes, f"\n{MARK}{name}\n".encode())

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Vulkan instances that are made meanwhile, here or in child processes, are validated."""
        os.mkfifo(self._pipe)
        self._settings.write_text(SETTINGS.format(pipe=self._pipe))
        self._writes = os.open(self._pipe, os.O_RDWR)
        # the layer opens the pipe for each instance and leaves it open
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        before = {name: os.environ.get(name) for name in ("VK_INSTANCE_LAYERS", "VK_LAYER_SETTINGS_PATH")}
        with self._kept.open("wb") as kept, self._pipe.open("rb") as source:
            reader = subprocess.Popen(["cat"], stdin=source, stdout=kept)
            os.environ.update(VK_INSTANCE_LAYERS=LAYER, VK_LAYER_SETTINGS_PATH=str(self._settings))
            try:
                yield
            finally:
                for name, value in before.items():
                    os.environ.pop(name) if value is None else os.environ.update({name: value})
                self._mark(END)
                while f"\n{MARK}{END}\n".encode() not in self._kept.read_bytes()[-1000:]:
                    time.sleep(0.01)
                reader.terminate()
                reader.wait()
        os.close(self._writes)

    def heard(self) -> tuple[dict[str, list[str]], int]:
        """The messages by test, each with the lines that belong to it, and how many a test expects besides."""
        found: dict[str, list[str]] = defaultdict(list)
        expected, test, place = 0, "before the first test", list[str]()
        for line in self._kept.read_text(errors="replace").splitlines():
            if line.startswith(MARK):
                test = line.removeprefix(MARK)
            elif BEGINS.match(line):
                text, *_ = self._expected.get(test, (None,))
                right = text is not None and text in line
                expected += right
                place = found["" if right else test]
                place.append(line)
            elif line.strip() and found:
                place[-1] += "\n" + line
        found.pop("", None)
        return found, expected


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="refsim_gpu.validate", description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, help="test files (default: all that open a device)")
    parser.add_argument("--log", type=Path, help="write the messages here too")
    given, options = parser.parse_known_args(arguments)
    if not system.has_layer(LAYER):
        print(f"validate: no {LAYER} here; fix: apt-get install vulkan-validationlayers", file=sys.stderr)
        return 3
    import pytest

    with tempfile.TemporaryDirectory() as folder:
        listener = Listener(Path(folder))
        with listener.listening():
            tests = [str(path) for path in given.paths or files()]
            status = int(pytest.main(["-q", *options, *tests], plugins=[listener]))
        heard, expected = listener.heard()
    text = "".join(
        f"{test}\n" + "".join(f"{message}\n" for message in messages) for test, messages in heard.items()
    )
    if given.log is not None:
        given.log.write_text(text)
    print(text, end="")
    count = counted(sum(map(len, heard.values())), "message")
    print(
        f"validate: {count} of the validation layer's in {counted(len(heard), 'test')}, {expected} on purpose"
    )
    return 1 if heard or status else 0


if __name__ == "__main__":
    sys.exit(main())
