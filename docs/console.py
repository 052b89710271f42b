"""The console blocks of the documentation: run their commands, and compare or renew their output.

python docs/console.py          says which blocks no longer show what their commands print
python docs/console.py --write  writes what they print now
python docs/console.py PAGE...  looks only at these, such as README.md

A block is fenced as ``console``. A line that begins with ``$ refsim`` is a command; the lines up to the next command
are its output. A line ``...`` stands for any number of lines. Times and the numbers of refsim's own source lines differ
from run to run or from change to change, and are not compared. What a command reads in out/ is made first, by a script
or by the earlier command of the page that writes it.
Output is as on a terminal of 80 columns. All commands run in this process, one after another: what one of them loads
or compiles serves the next.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
WIDTH = 80
#: Milliseconds between which every time has three decimals, and fits the columns of the pages.
LEAST_TIME, MOST_TIME = 0.001, 99.999
ELLIPSIS = "..."
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
#: A file or folder that a command writes.
_WRITTEN = re.compile(r"(?:-o|--output|--html) (out/[\w./-]+)")
_TIME = re.compile(r"\d+\.\d{3}\b")
#: A line of refsim's own sources, which moves with each change of the file above it.
_SOURCE_LINE = re.compile(r"(?<=\.py:)\d+|(?<=\.comp:)\d+|(?<=\.glsl:)\d+")


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
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        from refsim.cli import main

        out, err = io.StringIO(), io.StringIO()
        with _here(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(arguments[1:])
        return tuple((out.getvalue() + err.getvalue()).splitlines())

    def holds(self, printed: tuple[str, ...]) -> bool:
        """Whether the page still shows what the command prints."""
        pattern = "".join(
            r"(?:.*\n)*?" if line == ELLIPSIS else re.escape(comparable(line)) + r"\n" for line in self.shown
        )
        return re.fullmatch(pattern, "".join(comparable(line) + "\n" for line in printed)) is not None


@contextlib.contextmanager
def _here() -> Iterator[None]:
    """In the root of the checkout, with `WIDTH` columns, and with output that is the same on any machine.

    On a busy one a time may be so long that a table would leave out one column more. On a quick one it may be so short
    that it gets more decimals.
    """
    from refsim.cli.kit import progress, text

    number = text._number
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv("COLUMNS", str(WIDTH))
        patch.setattr(progress, "FIRST_LINE", 1e6)
        patch.setattr(
            text,
            "_number",
            lambda value: number(min(max(value, LEAST_TIME), MOST_TIME) if value > 0 else value),
        )
        yield


@cache
def _seed(script: str, name: str) -> None:
    """Make the dumps that docs/debugging.md examines, and the modules of docs/shaders.md."""
    subprocess.run([sys.executable, f"docs/{script}", name], cwd=ROOT, check=True)


@cache
def _once(example: Example) -> None:
    """Run a command for what it writes."""
    example.printed()


def comparable(line: str) -> str:
    """Without times and lines of sources, and with single spaces: a longer time makes its column wider."""
    return " ".join(_SOURCE_LINE.sub("LINE", _TIME.sub("TIME", line)).split())


def examples(page: Path) -> Iterator[Example]:
    """Every command of a page."""
    for block in _BLOCK.finditer(page.read_text()):
        for part in re.split(r"^\$ ", block[1], flags=re.M)[1:]:
            command, *shown = part.rstrip("\n").split("\n")
            while shown and not shown[-1]:
                shown.pop()
            yield Example(page, command, tuple(shown))


def rewritten(example: Example, text: str, printed: tuple[str, ...]) -> str:
    """The page with fresh output. Beside ``...`` it ends and goes on where lines begin with the same two words."""
    old = "\n".join((f"$ {example.command}", *example.shown))
    fresh: list[str] = []
    at, parts = 0, _parts(example.shown)
    for number, lines in enumerate(parts):
        if number:
            fresh.append(ELLIPSIS)
            at = _like(lines[0], printed, at) if lines else len(printed)
        end = len(printed)
        if number < len(parts) - 1:
            last = at + len(lines) - 1
            found = _like(lines[-1], printed, last) if lines else at - 1
            end = (found if found < len(printed) else last) + 1
        fresh += printed[at:end]
        at = end
    return text.replace(old, "\n".join((f"$ {example.command}", *fresh)))


def _parts(shown: tuple[str, ...]) -> list[list[str]]:
    """The lines before, between and after lines ``...``."""
    parts: list[list[str]] = [[]]
    for line in shown:
        if line == ELLIPSIS:
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def _like(line: str, printed: tuple[str, ...], start: int) -> int:
    """The first line from ``start`` on that begins as this one, or the end."""
    found = (i for i in range(start, len(printed)) if printed[i].split()[:2] == line.split()[:2])
    return next(found, len(printed))


def main() -> int:
    stale = 0
    named = [Path(name).name for name in sys.argv[1:] if name != "--write"]
    if unknown := set(named) - {page.name for page in PAGES}:
        sys.exit(f"no page has the name {', '.join(sorted(unknown))}")
    for page in [page for page in PAGES if page.name in named or not named]:
        for example in examples(page):
            printed = example.printed()
            if example.holds(printed):
                continue
            if "--write" in sys.argv[1:]:
                page.write_text(rewritten(example, page.read_text(), printed))
            else:
                stale += 1
                print(f"{page.name}: {example.command}: prints something else now")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
