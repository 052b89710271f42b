"""Print the JSON Schema of what the verbs print with --json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import click

from refsim.cli.kit.verb import verb
from refsim.core import choices
from refsim.core.errors import ParameterError
from refsim.core.result import Result, Text, Verbatim


@dataclass(frozen=True)
class PrintedSchema(Result):
    """The schema of all verbs, or of one."""

    json_schema: Annotated[Mapping[str, Any], "The schema."]

    def text(self) -> Text:
        yield Verbatim(json.dumps(self.json_schema, indent=2))


@verb("schema", "run")
@click.argument("verb", nargs=-1)
def command(verb: tuple[str, ...]) -> PrintedSchema:
    """Print the JSON Schema of all verbs, or of the keys of one VERB; docs/json.md explains the keys."""
    from refsim.cli.kit.program import root  # every verb is loaded
    from refsim.cli.kit.schema import whole

    found = whole(root)
    if verb:
        name, known = " ".join(verb), found["$defs"]["verbs"]
        if name not in known:
            raise ParameterError("schema", "no such verb", got=name, need=choices.need(name, known))
        found = {**known[name], "$defs": found["$defs"]}
    return PrintedSchema(found)
