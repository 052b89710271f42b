"""Every verb and subverb of the command line, for laws that hold of all."""

from __future__ import annotations

from collections.abc import Iterator

import click

from refsim.cli.kit import program
from refsim.cli.kit.verb import Verb


def commands(group: click.Command = program.root, before: str = "") -> Iterator[tuple[str, Verb]]:
    """Each with its whole name."""
    assert isinstance(group, click.Group)
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} ")
        else:
            assert isinstance(command, Verb), name
            yield before + name, command
