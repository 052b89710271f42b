"""Print the JSON Schema of what the verbs print with --json."""

from __future__ import annotations

import json
from functools import partial

import click

from refsim.cli.kit.document import SCHEMA_FILE
from refsim.cli.kit.verb import Result, verb
from refsim.core import choices
from refsim.core.errors import ParameterError


@verb("schema", "run")
@click.argument("verb", nargs=-1)
def command(verb: tuple[str, ...]) -> Result:
    """Print the JSON Schema of all verbs, or of the keys of one VERB; docs/json.md explains the keys."""
    text = SCHEMA_FILE.read_text("utf-8")
    if verb:
        whole, name = json.loads(text), " ".join(verb)
        known = whole["$defs"]["verbs"]
        if name not in known:
            raise ParameterError("schema", "no such verb", got=name, need=choices.need(name, known))
        text = json.dumps({**known[name], "$defs": whole["$defs"]}, indent=2) + "\n"
    content = {"file": str(SCHEMA_FILE), "json_schema": json.loads(text)}
    return Result(content, partial(click.echo, text, nl=False))
