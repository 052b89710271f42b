"""Print the JSON Schema of what the verbs print with --json."""

from __future__ import annotations

import json

import click

from refsim.cli._document import SCHEMA_FILE
from refsim.cli._main import SAME
from refsim.cli._options import json_option
from refsim.cli._output import print_json
from refsim.cli._verb import verb
from refsim.core import choices
from refsim.core.errors import ParameterError


@verb("schema", "run")
@click.argument("verb", nargs=-1)
@json_option
def command(verb: tuple[str, ...], as_json: bool) -> int:
    """Print the JSON Schema of all verbs, or of the keys of one VERB; docs/json.md explains the keys."""
    text = SCHEMA_FILE.read_text("utf-8")
    if verb:
        whole, name = json.loads(text), " ".join(verb)
        known = whole["$defs"]["verbs"]
        if name not in known:
            raise ParameterError("schema", "no such verb", got=name, need=choices.need(name, known))
        text = json.dumps({**known[name], "$defs": whole["$defs"]}, indent=2) + "\n"
    if as_json:
        print_json("schema", {"file": str(SCHEMA_FILE), "json_schema": json.loads(text)})
    else:
        click.echo(text, nl=False)
    return SAME
