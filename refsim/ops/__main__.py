"""Add an operator: ``python -m refsim.ops new NAME`` makes its files, ``check NAME`` says what is still missing.

Both need a checkout of the sources, because they write and read shaders, golden data and docs beside the package.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from refsim.core import atomic_write
from refsim.core.errors import ParameterError, RefsimError
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import OpSpec

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")

#: What a new file's docstring says instead of the other operator's.
HEAD = '''"""{name}: TODO what it computes, in a sentence.

    TODO the formula, rounding included

Source: TODO where its facts come from. Begun as a copy of {like}.
"""'''


def source_of(name: str) -> Path:
    return ROOT / "refsim" / "ops" / f"{name}.py"


def shader_of(name: str) -> Path:
    return ROOT / "shaders" / f"{name}.comp"


def new_files(name: str, like: OpSpec) -> dict[Path, str]:
    """Path -> content of the files of a new operator that begins as a copy of another.

    ParameterError for a name that is taken or that no module can have, and where there is no checkout.
    """
    if not NAME.fullmatch(name):
        raise ParameterError(
            "operator", "this is no name", got=repr(name), need="lower case words joined by _"
        )
    if not (ROOT / "shaders").is_dir():
        raise ParameterError(
            "operator", "needs a checkout of the sources", got=str(ROOT), need="a folder shaders/"
        )
    word = re.compile(rf"\b{like.name}\b")
    source = word.sub(name, source_of(like.name).read_text())
    source = re.sub(
        r'\A""".*?"""', lambda _: HEAD.format(name=name, like=like.name), source, count=1, flags=re.S
    )
    # nothing serializes the new operator yet, and two operators cannot have one serialized name
    source = re.sub(r'(\bserialized=)"[^"]*"', r'\1""', source)
    files = {source_of(name): source}
    if shader_of(like.name).is_file():
        files[shader_of(name)] = word.sub(name, shader_of(like.name).read_text())
    for path in files:
        if path.exists():
            raise ParameterError(
                "operator", "there is such a file", got=str(path.relative_to(ROOT)), need="a new name"
            )
    return files


@dataclass(frozen=True)
class Item:
    """One line of the checklist: what must be there, whether it is, and what to do about it."""

    what: str
    done: bool
    todo: str
    optional: bool = False


def checklist(name: str, tests: bool = True) -> Iterator[Item]:
    """What an operator consists of, in the order in which one writes it. UnknownOperatorError if there is none."""
    op = OPS[name]
    written = "TODO" not in source_of(name).read_text()
    yield Item("meaning and source are written", written, f"the docstring of refsim/ops/{name}.py")
    if tests:
        yield Item(
            "define, emulated kernel and cases agree",
            _passes("tests/ops", "tests/core/test_launch.py", "-k", name),
            f"python -m pytest tests/ops tests/core/test_launch.py -k {name}",
        )
    if op.kernel is not None:  # a composite runs the shaders of its parts
        words = ROOT / "shaders" / "include" / "push" / f"{name}.glsl"
        built = ROOT / "shaders" / "spirv" / f"{name}.spv"
        yield Item("shader", shader_of(name).is_file(), f"write shaders/{name}.comp")
        yield Item("its push and specialization words", words.is_file(), "python -m refsim_gpu.build_push")
        yield Item("its SPIR-V", built.is_file(), "python -m refsim_gpu.build_shaders")
    digests = ROOT / "golden" / "digests" / f"{name}.jsonl"
    yield Item("golden cases", digests.is_file(), f"refsim golden new {name}")
    page = (ROOT / "docs" / "numerics.md").read_text()
    # the table there is of padding, which a float buffer does not have
    int8_out = op.output.layouts[0].packed_int8
    todo = "python docs/tables.py --write" if int8_out else "a formula and a sentence by hand"
    yield Item(
        "row in docs/numerics.md" if int8_out else "named in docs/numerics.md", f"`{name}`" in page, todo
    )
    pattern = "`serialized` in its OpSpec, and a pattern in refsim/partition/patterns"
    yield Item("graphs can hold it", bool(op.serialized), pattern, optional=True)


def _passes(*arguments: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0


def show(items: Iterator[Item]) -> bool:
    """Print the list as it is worked out; whether all that must be there is there."""
    complete = True
    for item in items:
        complete &= item.done or item.optional
        todo = "" if item.done else f": {'optional, ' if item.optional else ''}{item.todo}"
        click.echo(f"[{'x' if item.done else ' '}] {item.what}{todo}")
    return complete


@click.group(help=__doc__)
def main() -> None: ...


@main.command()
@click.argument("name")
@click.option("--like", default="q8ta_relu", show_default=True, help="The operator to begin from.")
def new(name: str, like: str) -> None:
    """Make the files of operator NAME, a working copy of another one under the new name."""
    files = new_files(name, OPS[like])
    for path, content in files.items():
        atomic_write.write(path, content.encode())
        click.echo(f"wrote {path.relative_to(ROOT)}")
    click.echo(f"now: write what it means, then: python -m refsim.ops check {name}")


@main.command()
@click.argument("name")
@click.option("--tests/--no-tests", default=True, help="Run the operator's tests too.  [default: tests]")
def check(name: str, tests: bool) -> None:
    """Say what operator NAME still lacks. Exit status 1 while something is missing."""
    if not show(checklist(name, tests)):
        raise SystemExit(1)


if __name__ == "__main__":
    try:
        main(prog_name="python -m refsim.ops")
    except RefsimError as error:
        click.echo(f"refsim.ops: {error}", err=True)
        raise SystemExit(error.exit_status) from None
