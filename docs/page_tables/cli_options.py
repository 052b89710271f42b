"""What docs/cli.md says of the options of each verb: what the command itself says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import click

from page_tables.markdown import markdown
from refsim.cli.kit.document import OPTION
from refsim.cli.kit.program import root
from refsim.cli.kit.schema import verbs_of

#: Pages that say more about an option.
MORE = {
    "--model-explorer": "devtools.md",
    "--node-data": "devtools.md",
    "--origin": "devtools.md",
    "--runtime": "runtimes.md",
    "--target": "device.md#targets",
}


def tables() -> dict[str, Callable[[], str]]:
    """By name: ``options_golden_verify`` for the subverb golden verify."""
    return {f"options_{name.replace(' ', '_')}": _table(name, verb) for name, verb in verbs_of(root)}


def _table(name: str, verb: click.Command) -> Callable[[], str]:
    return lambda: markdown(("option", "meaning"), _rows(name, verb))


def _rows(name: str, verb: click.Command) -> Iterator[tuple[str, str]]:
    ctx = click.Context(verb)
    for one in verb.params:
        if not isinstance(one, click.Option):
            continue
        text = (one.help or "").replace("|", "\\|").replace("*", "\\*")
        default = one.get_help_extra(ctx).get("default")
        text += f" [default: {default}]" if default else ""
        page = f"json.md#{name.replace(' ', '-')}" if OPTION in one.opts else MORE.get(one.opts[0])
        what = "lists the keys" if OPTION in one.opts else "says more"
        text += f" [{page.partition('#')[0]}]({page}) {what}." if page else ""
        names = ", ".join(f"`{option}`" for option in one.opts)
        yield names if one.is_flag else f"{names} {_value(one)}", text


def _value(option: click.Option) -> str:
    """What stands for the value of an option."""
    if isinstance(option.type, click.Choice):
        return " or ".join(f"`{one}`" for one in option.type.choices)
    numbers = isinstance(option.type, click.types.IntParamType | click.types.FloatParamType)
    return option.metavar or ("NUMBER" if numbers else option.type.name.upper())
