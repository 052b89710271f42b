"""What was wrong with a command line, in one line: what it lacks, what was probably meant, or where that is listed."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

from refsim.cli.kit.document import OPTION
from refsim.cli.kit.verb import PROGRAM, Lacking, Verb
from refsim.core import choices
from refsim.core.counted import form

#: Before a command that can be pasted.
EXAMPLE = "; for example: "
#: Options that people try in place of an argument, by its name.
_TRIED = {
    "operators": ("--op", "--ops", "--operator", "--operators"),
    "cases": ("--op", "--ops", "--operator", "--operators", "--case", "--cases"),
}


def usage(error: click.ClickException, given: Sequence[str], root: click.Command) -> str:
    """The line for an error of click's. ``given``: the words of the command line, without the program ``root``."""
    ctx = (error.ctx if isinstance(error, click.UsageError) else None) or _context(given, root)
    if isinstance(error, click.MissingParameter):
        return f"Missing {', '.join(_missing(ctx, given)) or _name(error.param)}{_example(ctx)}"
    if isinstance(error, click.BadParameter) and error.param is not None:
        return _bad(error, error.param)
    if isinstance(error, click.NoSuchOption):
        if error.option_name == OPTION and isinstance(ctx.command, click.Group):
            return _behind(ctx)
        known = [name for one in ctx.command.get_params(ctx) for name in one.opts if name.startswith("-")]
        near = (
            _tried(ctx, error.option_name)
            or _elsewhere(ctx, error.option_name)
            or _shortened(error.option_name, known)
            or choices.meant(error.option_name, known)
            or f"; {ctx.command_path} --help lists all"
        )
        return f"No such option {error.option_name}{near}"
    text = error.format_message()
    if isinstance(error, Lacking):
        return text + _example(ctx)
    if text.startswith("Got unexpected extra argument"):
        return f"{text}; need {' '.join([ctx.command_path, *ctx.command.collect_usage_pieces(ctx)])}"
    if re.match("Option .* requires ", text):
        return text.rstrip(".") + _example_of(ctx, text.split("'")[1])
    return text


def _context(given: Sequence[str], root: click.Command) -> click.Context:
    """That of the verb or subverb, for errors that do not say it."""
    ctx = click.Context(root, info_name=PROGRAM)
    for word in given:
        command = ctx.command.get_command(ctx, word) if isinstance(ctx.command, click.Group) else None
        if command is None:
            break
        ctx = click.Context(command, ctx, word)
    return ctx


def _missing(ctx: click.Context, given: Sequence[str]) -> list[str]:
    """All required parameters that the command line lacks; click names one at a time."""
    words = list(given[len(ctx.command_path.split()) - 1 :])
    held, _, _ = ctx.command.make_parser(ctx).parse_args(words)
    return [
        _name(one)
        for one in ctx.command.get_params(ctx)
        if one.required
        and ((value := held.get(one.name)) is None or value == () or one.value_is_missing(value))
    ]


def _name(parameter: click.Parameter | None) -> str:
    """``FILE`` or ``--node``."""
    if parameter is None:
        return "something"
    if isinstance(parameter, click.Option):
        return parameter.opts[0]
    return parameter.metavar or (parameter.name or "").upper()


def _example(ctx: click.Context) -> str:
    command = ctx.command
    return f"{EXAMPLE}{command.call(ctx)}" if isinstance(command, Verb) and command.example else ""


def _example_of(ctx: click.Context, option: str) -> str:
    """The verb's example, with this option in it."""
    example = _example(ctx)
    one = next(
        (p for p in ctx.command.get_params(ctx) if isinstance(p, click.Option) and option in p.opts), None
    )
    if not example or one is None or not {*one.opts}.isdisjoint(example.split()):
        return example
    values = one.type.choices[:1] if isinstance(one.type, click.Choice) else ()
    return f"{example} {option} {next(iter(values), None) or one.metavar or one.type.name.upper()}"


def _shortened(option: str, known: Sequence[str]) -> str:
    """Asks for the only option that begins like this one."""
    longer = [name for name in known if name.startswith(option)]
    return choices.asked(longer[0]) if len(longer) == 1 else ""


def _elsewhere(ctx: click.Context, option: str) -> str:
    """Which verbs have an option that this one lacks; empty if none has it."""
    root = ctx.find_root().command
    assert isinstance(root, click.Group)
    verbs = {name: root.get_command(ctx, name) for name in root.list_commands(ctx)}
    held = [name for name, verb in verbs.items() if verb is not None and _has(verb, option)]
    return f"; {choices.listed(held)} {form(len(held), 'has', 'have')} it" if held else ""


def _has(verb: click.Command, option: str) -> bool:
    return any(option in one.opts for one in verb.params)


def _bad(error: click.BadParameter, parameter: click.Parameter) -> str:
    """A value that its option does not take: which it takes, and the one that was probably meant."""
    kind, text = parameter.type, error.format_message().rstrip(".")
    if isinstance(kind, click.Choice):
        given = re.match("'(.*?)' is not ", error.message)
        if given and len(kind.choices) == 1:
            only = f"'{given[1]}' is unknown, need {kind.choices[0]}, the only one"
            return text.replace(error.message.rstrip("."), only)
        return text + (choices.meant(given[1], kind.choices) if given else "")
    number = _number(kind)
    found = re.match(r"(.*?) is not (a valid|in the range)", error.message)
    return text.replace(error.message.rstrip("."), f"{found[1]} is no {number}") if number and found else text


def _tried(ctx: click.Context, option: str) -> str:
    """What an option that does not exist is: the name of an argument, which stands without one; empty if it is none."""
    for one in ctx.command.get_params(ctx):
        if isinstance(one, click.Argument) and option in _TRIED.get(one.name or "", ()):
            from refsim.ops.base.registry import OPS  # only this error needs it

            name = next(name for name in OPS if name.startswith("q8ta_"))
            return f": {_name(one)} stand without an option{_example(ctx)} {name}"
    return ""


def _number(kind: click.ParamType) -> str:
    """``whole number from 2 to 10000``; empty for another type."""
    words = (("whole number", "integer"), ("number", "float"))
    word = next((word for word, name in words if kind.name.startswith(name)), "")
    least, most = getattr(kind, "min", None), getattr(kind, "max", None)
    if not word or least is None:
        return word
    return f"{word} from {least} to {most}" if most is not None else f"{word} from {least} on"


def _behind(ctx: click.Context) -> str:
    """Where --json belongs, if it stood where a verb or a subverb was to be."""
    assert isinstance(ctx.command, click.Group)
    names = ctx.command.list_commands(ctx)
    word = "a verb" if ctx.parent is None else "a subverb"
    example = f"{ctx.command_path} {names[-1]} {OPTION}"
    return f"{OPTION} stands behind {word}, as in {example!r}; need {choices.listed(names)}"
