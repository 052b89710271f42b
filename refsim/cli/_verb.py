"""What a verb is: a command with an example, which its help ends with and errors about its command line show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from refsim.core import table

PROGRAM = "refsim"


class Verb(click.Command):
    """A command. ``example``: what may follow its name; empty where the name alone will do."""

    def __init__(self, *arguments: Any, example: str = "", **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.example = example

    def call(self, ctx: click.Context) -> str:
        """The example as a whole command."""
        return f"{ctx.command_path} {self.example}".rstrip()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.example:
            formatter.write_paragraph()
            for line in table.command(f"Example: {self.call(ctx)}", formatter.width, PROGRAM):
                formatter.write(f"{line}\n")


def verb(name: str, example: str = "") -> Callable[[Callable[..., Any]], Verb]:
    """A decorator that makes a verb, or a subverb, of a function."""
    return click.command(name, cls=Verb, example=example)
