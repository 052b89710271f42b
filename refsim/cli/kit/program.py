"""The group of all verbs, which are loaded one at a time, and the exit status for each kind of exception."""

from __future__ import annotations

import ast
import faulthandler
import importlib
import os
import pkgutil
import shlex
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

import refsim
from refsim.cli.kit import progress
from refsim.cli.kit.document import OPTION, Document, Made
from refsim.cli.kit.text import say
from refsim.cli.kit.usage import EXAMPLE, usage
from refsim.cli.kit.verb import GROUPS, PROGRAM, TOOLS, VERBS, tool
from refsim.core import choices, doing
from refsim.core.errors import MOST_IN_LINE, RefsimError
from refsim.core.escape import escaped
from refsim.core.no_clobber import free
from refsim.core.status import BAD_INPUT, DIFFERENT, INTERRUPTED, PIPE_CLOSED, SAME
from refsim.formats.file import closed

HERE = Path(__file__).parents[1]
PREFIX = "refsim: "


class Named(click.Group):
    """A group of commands that asks back where a name is nearly right."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name == "help":
            if args[1:] in ([], ["help"]):
                click.echo(ctx.get_help())
                ctx.exit()
            args = [*args[1:], "--help"]
            name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            names = self.list_commands(ctx)
            there = f": {choices.listed(names)}; {ctx.command_path} --help says what each does"
            near = _of_group(ctx, name) or choices.meant(name, [*names, "help"])
            ctx.fail(f"No such command {name!r}{near or there}")
        if (document := ctx.find_object(Document)) is not None:
            document.verb = f"{ctx.command_path} {name}".partition(" ")[2]
        return super().resolve_command(ctx, args)


def _of_group(ctx: click.Context, name: str) -> str:
    """Asks back where a verb stands one group away: ``verify`` is one of golden's, ``golden sweep`` is none."""
    top = ctx.find_root()
    assert isinstance(top.command, click.Group)
    verbs = {verb: top.command.get_command(top, verb) for verb in top.command.list_commands(top)}
    if ctx is not top:
        return choices.asked(f"{PROGRAM} {name}") if name in verbs else ""
    groups = {verb: group for verb, group in verbs.items() if isinstance(group, click.Group)}
    inside = [f"{verb} {one}" for verb, group in groups.items() for one in group.list_commands(ctx)]
    return next((choices.asked(f"{PROGRAM} {one}") for one in inside if one.endswith(f" {name}")), "")


@contextmanager
def _pipe_closed() -> Iterator[None]:
    """The status of a closed pipe, which click makes 1."""
    try:
        yield
    except BrokenPipeError:
        raise click.exceptions.Exit(PIPE_CLOSED) from None


class Verbs(Named):
    """Every public module of this package is a verb. Only the verb that is called gets imported."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        with _pipe_closed():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with _pipe_closed():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        found = [one.name for one in pkgutil.iter_modules([str(HERE)]) if not one.ispkg]
        return sorted([*(name for name in found if not name.startswith("_")), *VERBS])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        own = cmd_name not in VERBS
        command = importlib.import_module(f"refsim.cli.{cmd_name}").command if own else tool(cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.list_commands(ctx)))
        for heading, verbs in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), summary(name)) for name in verbs])


def summary(verb: str) -> str:
    """The first line of a verb's module, read without importing it."""
    name = TOOLS[verb].partition(":")[0] if verb in VERBS else f"refsim.cli.{verb}"
    path = HERE.parents[1].joinpath(*name.split(".")).with_suffix(".py")
    doc = ast.get_docstring(ast.parse(path.read_bytes())) or ""
    return doc.partition("\n")[0].removesuffix(".")


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(refsim.__version__, prog_name=PROGRAM)
def root() -> None:
    """A bit-exact reference simulator for the packed int8 (q8ta) kernels of ExecuTorch's Vulkan backend.

    Exit status: 0 the same, 1 different, 2 bad usage or bad input, 3 a device or a package is missing or was lost,
    4 a runtime will not load what lower made.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns its exit status and never raises."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:  # a crash in native code then says where it was, and at which node
        faulthandler.enable()
        doing.name_frames()
    words = given[: given.index("--")] if "--" in given else given
    document = Document(given=tuple(given), wanted=OPTION in words)
    try:
        status = _run(given, document)
        for line in [] if document.wanted else document.closing:
            say(line)
        document.print(status)
        sys.stdout.flush()
    except BrokenPipeError:
        # or Python complains once more when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    if status == DIFFERENT:
        say(rerun(given, document.made), err=True, command=True)
    return status


def _run(given: Sequence[str], document: Document) -> int:
    """The exit status; what went wrong is on stderr then, and in the document."""

    def complain(kind: str, line: str, status: int, error: BaseException | None = None) -> int:
        text = escaped(" ".join(line.split()))
        document.fail(kind, str(error) if isinstance(error, RefsimError) else text, error)
        say(choices.cut(PREFIX + text, MOST_IN_LINE), err=True, command=EXAMPLE in text)
        return status

    try:
        with progress.verb(given, quiet=document.wanted):
            status = root.main(args=list(given), prog_name=PROGRAM, standalone_mode=False, obj=document)
        return status if isinstance(status, int) else SAME
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "", err=True)
        document.fail("UsageError", "no arguments")
        return BAD_INPUT
    except click.ClickException as error:
        return complain("UsageError", usage(error, given, root), BAD_INPUT)
    except (RefsimError, PermissionError) as found:
        typed = found if isinstance(found, RefsimError) else closed(found)
        line = typed.line(MOST_IN_LINE - len(PREFIX))
        status = complain(type(typed).__name__, line, typed.exit_status, typed)
        for hint in typed.hints:
            say(f"try: {hint}", err=True, command=True)
        if hasattr(typed.__cause__, "last_lines"):  # another process died or was silent
            say(rerun(given, document.made), err=True, command=True)
        return status
    except MemoryError:
        return complain("MemoryError", "out of memory", BAD_INPUT)
    except (KeyboardInterrupt, click.Abort):
        return complain("Interrupted", "interrupted", INTERRUPTED)
    except BrokenPipeError:
        raise
    except Exception:
        traceback.print_exc()
        return complain(
            "Defect", "this is a defect of refsim, please report it with the lines above", BAD_INPUT
        )


def rerun(arguments: Sequence[str], made: Mapping[str, Made] = MappingProxyType({})) -> str:
    """The line that tells how to repeat the command. What it has ``made`` gets the next free name."""
    words = list(arguments)
    for path, option in made.items():
        if option.unless and option.unless in words:
            continue
        other = free(path, option.folder)
        for at, word in enumerate(words):
            if word == path and words[at - 1] in option.names:
                words[at] = other
            for name in option.names:  # in one word: --output=DIR, -oDIR
                if word == (f"{name}={path}" if name.startswith("--") else name + path):
                    words[at] = word.removesuffix(path) + other
    return escaped(f"rerun: {shlex.join([PROGRAM, *words])}")
