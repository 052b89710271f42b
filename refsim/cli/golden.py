"""Check the golden corpus, find a case in it, show what it covers, or renew it."""

from __future__ import annotations

import re

import click

from refsim.cli._golden_cases import coverage, list_cases, new, regen, show_case
from refsim.cli._golden_device import check, export
from refsim.cli._golden_verify import verify
from refsim.cli.kit.program import Named
from refsim.cli.kit.verb import write_example


class Subverbs(Named):
    """Lists its subverbs with the whole first sentence of each; click would cut it off."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Subverbs"):
            rows = [
                (name, re.split(r"\.(?:\s|$)", self.commands[name].help or "")[0])
                for name in sorted(self.commands)
            ]
            formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_example(f"{ctx.command_path} {verify.name} {verify.example}", formatter)


@click.group("golden", cls=Subverbs)
def command() -> None:
    """Check, list, count, renew or extend the golden corpus. Every subverb takes --json."""


for _verb in (list_cases, show_case, export, check, regen, new, verify, coverage):
    command.add_command(_verb)
