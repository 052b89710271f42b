"""The console blocks of the documentation: run their commands, and compare or renew their output.

python docs/console.py          says which blocks no longer show what their commands print
python docs/console.py --write  writes what they print now

A block is fenced as ``console``. A line that begins with ``$ refsim`` is a command; the lines up to the next command
are its output. A line ``...`` stands for any number of lines. Times differ from run to run and are not compared.
What a command reads in out/ is made first, by a script or by the earlier command of the page that writes it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
ELLIPSIS = "..."
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
#: A file or folder that a command writes.
_WRITTEN = re.compile(r"(?:-o|--output|--html) (out/[\w./-]+)")
_TIME = re.compile(r"\d+\.\d{3}\b")


@dataclass(frozen=True)
class Example:
    """One command and the output that a page shows for it."""

    page: Path
    command: str
    shown: tuple[str, ...]

    def printed(self) -> tuple[str, ...]:
        """What the command prints now; stderr comes last, as on a terminal that shows both."""
        arguments = shlex.split(self.command)
        if arguments[0] != "refsim":
            raise ValueError(f"{self.page.name}: not a refsim command: {self.command}")
        for name in re.findall(r"--actual out/debugging/(\w+)", self.command):
            _seed("seeded_bugs.py", name)
        for name in re.findall(r"out/shaders/(\w+)", self.command):
            _seed("seeded_shaders.py", name)
        if re.search(r"out/first-hour/(phone|fixed)\.npz", self.command):
            _seed("seeded_bugs.py", "phone")
        written = _WRITTEN.findall(self.command)
        for earlier in examples(self.page):
            if earlier.command == self.command:
                break
            if any(
                path in self.command and path not in written for path in _WRITTEN.findall(earlier.command)
            ):
                _once(earlier)
        for path in written:
            shutil.rmtree(ROOT / path, ignore_errors=True)  # where a verb wants a new folder
        command = [sys.executable, "-m", "refsim.cli", *arguments[1:]]
        # the pages show tables in full, whatever the terminal is that this runs in
        wide = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=wide)
        return tuple((done.stdout + done.stderr).splitlines())

    def holds(self, printed: tuple[str, ...]) -> bool:
        """Whether the page still shows what the command prints."""
        pattern = "".join(
            r"(?:.*\n)*?" if line == ELLIPSIS else re.escape(_comparable(line)) + r"\n" for line in self.shown
        )
        return re.fullmatch(pattern, "".join(_comparable(line) + "\n" for line in printed)) is not None


@cache
def _seed(script: str, name: str) -> None:
    """Make the dumps that docs/debugging.md examines, and the modules of docs/shaders.md."""
    subprocess.run([sys.executable, f"docs/{script}", name], cwd=ROOT, check=True)


@cache
def _once(example: Example) -> None:
    """Run a command for what it writes."""
    example.printed()


def _comparable(line: str) -> str:
    """Without times, and with single spaces: a longer time makes its column wider."""
    return " ".join(_TIME.sub("TIME", line).split())


def examples(page: Path) -> Iterator[Example]:
    """Every command of a page."""
    for block in _BLOCK.finditer(page.read_text()):
        for part in re.split(r"^\$ ", block[1], flags=re.M)[1:]:
            command, *shown = part.rstrip("\n").split("\n")
            while shown and not shown[-1]:
                shown.pop()
            yield Example(page, command, tuple(shown))


def rewritten(example: Example, text: str, printed: tuple[str, ...]) -> str:
    """The page with fresh output. Around a line ``...`` it shows as many lines as before."""
    old = "\n".join((f"$ {example.command}", *example.shown))
    fresh = printed
    if ELLIPSIS in example.shown:
        at = example.shown.index(ELLIPSIS)
        after = len(example.shown) - at - 1
        fresh = (*printed[:at], ELLIPSIS, *(printed[-after:] if after else ()))
    return text.replace(old, "\n".join((f"$ {example.command}", *fresh)))


def main() -> int:
    stale = 0
    for page in PAGES:
        for example in examples(page):
            printed = example.printed()
            if "--write" in sys.argv[1:]:
                page.write_text(rewritten(example, page.read_text(), printed))
            elif not example.holds(printed):
                stale += 1
                print(f"{page.name}: {example.command}: prints something else now")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
