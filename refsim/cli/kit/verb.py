"""What a verb is: a command with an example, which its help ends with and errors about what is missing show."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import click

from refsim.cli.kit import written
from refsim.cli.kit.document import OPTION, Document
from refsim.cli.kit.text import print_json_line, show
from refsim.core import table
from refsim.core.plain import plain
from refsim.core.result import Result

PROGRAM = "refsim"
#: The verbs by what a reader came for, in the order of the help.
GROUPS = {
    "Run and look": ("demo", "run", "inspect", "locate", "pack", "unpack"),
    "Compare and find": ("compare", "diff", "bisect", "replay", "extract", "repeat"),
    "Your device": ("doctor", "devices", "probe", "expose", "collect", "triage", "etdump"),
    "Your kernels": ("shaders", "golden", "sweep"),
    "Models": ("lower", "check", "reduce", "mend"),
    "Maintain": ("mutate", "schema"),
}
#: What joins other people's tools, as entry points name it. Nothing else of refsim knows the room refsim.devtools.
TOOLS = {
    "etdump": "refsim.devtools.etdump:command",
    "origins": "refsim.devtools.origins:read_origins",
    "node data": "refsim.devtools.model_explorer:write_node_data",
    "graph": "refsim.devtools.model_explorer:write_graph",
    "page": "refsim.devtools.graph_page:page",
}
#: Those of them that are verbs.
VERBS = ("etdump",)


def tool(name: str) -> Any:
    """A function or verb that joins other people's tools, loaded as an installed package's entry point is."""
    from importlib.metadata import EntryPoint  # slow to load, and most verbs use no such tool

    return EntryPoint(name, TOOLS[name], "refsim.devtools").load()


class Lacking(click.UsageError):
    """A command line that lacks one of several arguments, or has too many of them: its line shows the example."""


AS_JSON = "as_json"


class Verb(click.Command):
    """A command. ``example``: what may follow its name; empty where the name alone will do."""

    def __init__(self, *arguments: Any, example: str = "", **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.example = example
        help_text = "Print one JSON object instead of text."
        click.option(OPTION, AS_JSON, is_flag=True, help=help_text)(self)

    def invoke(self, ctx: click.Context) -> Any:
        as_json = ctx.params.pop(AS_JSON)
        document = ctx.find_object(Document)
        assert document is not None
        found = super().invoke(ctx)
        if isinstance(found, Result):
            if as_json:
                document.content = plain(found)
            else:
                show(found.text())
            return found.status
        step = partial(next, found)
        while True:  # a verb that goes on: each result as it comes, and the exit status in the end
            try:
                one = step()
            except StopIteration as end:
                return end.value
            step = partial(next, found)
            try:
                if as_json:
                    print_json_line(document.verb or "", one.status, plain(one))
                else:
                    show(one.text())
            except KeyboardInterrupt as stop:  # the verb says what that means
                step = partial(found.throw, stop)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(args)
        if not ctx.resilient_parsing:
            self._check_values(self.make_parser(ctx).parse_args(list(args))[0])
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            written.check(self, self.make_parser(ctx).parse_args(words)[0])
        return rest

    def _check_values(self, held: Mapping[str, Any]) -> None:
        """UsageError if an option of several values was given fewer, so that it took the next option for one."""
        names = {name for one in self.params if isinstance(one, click.Option) for name in one.opts}
        for one in self.params:
            if one.nargs < 2 or not isinstance(found := held.get(one.name or ""), (tuple, list)):
                continue
            for value in (value for values in (found if one.multiple else [found]) for value in values):
                if value in names:
                    what = f"Option {one.opts[0]!r} requires {one.nargs} arguments"
                    raise click.UsageError(f"{what}, got the option {value} for one")

    def call(self, ctx: click.Context) -> str:
        """The example as a whole command."""
        return f"{ctx.command_path} {self.example}".rstrip()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_example(self.call(ctx), formatter)


def write_example(call: str, formatter: click.HelpFormatter) -> None:
    """The end of a help text: a whole command."""
    formatter.write_paragraph()
    for line in table.command(f"Example: {call}", formatter.width, PROGRAM):
        formatter.write(f"{line}\n")


def verb(name: str, example: str = "") -> Callable[[Callable[..., Any]], Verb]:
    """A decorator that makes a verb, or a subverb, of a function."""
    return click.command(name, cls=Verb, example=example)


def again(without: Mapping[str, bool], *more: str) -> str:
    """The command line as a whole command. ``without``: names of options to leave out, and whether they take a value.

    ``more`` words stand at its end.
    """
    document = click.get_current_context().find_object(Document)
    left, words = list(document.given if document is not None else ()), [PROGRAM]
    while left:
        word = left.pop(0)
        if word.partition("=")[0] not in without:
            words.append(word)
        elif without[word.partition("=")[0]] and "=" not in word and left:
            left.pop(0)
    return shlex.join([*words, *more])


def drawing(seed: int) -> str:
    """The command line with inputs that are drawn from this seed."""
    return again({"--input": True, "-i": True, "--random": True}, "--random", str(seed))
