"""Print the JSON Schema of what the verbs print with --json."""

from __future__ import annotations

import json

import click

from refsim.cli._document import SCHEMA_FILE
from refsim.cli._main import SAME
from refsim.cli._options import json_option
from refsim.cli._output import print_json
from refsim.cli._verb import verb


@verb("schema")
@json_option
def command(as_json: bool) -> int:
    """Print the JSON Schema of all verbs; docs/json.md explains the keys."""
    text = SCHEMA_FILE.read_text("utf-8")
    if as_json:
        print_json("schema", {"file": str(SCHEMA_FILE), "json_schema": json.loads(text)})
    else:
        click.echo(text, nl=False)
    return SAME
