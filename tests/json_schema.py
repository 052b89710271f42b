"""Whether what verbs print is as the JSON Schema says, and is JSON at all."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from refsim.cli.kit.program import root
from refsim.cli.kit.schema import Schema, whole

DESCRIBED: Schema = whole(root)


def read(text: str) -> dict[str, Any]:
    """The object of a text. AssertionError if it holds NaN or a key that the schema does not know, or lacks one."""
    content = json.loads(text, parse_constant=_no_json)
    errors = sorted(_validator().iter_errors(content), key=lambda error: list(error.path))
    assert not errors, "\n".join(f"{error.json_path}: {error.message[:300]}" for error in errors[:5])
    return dict(content)


def _no_json(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


@cache
def _validator() -> Draft202012Validator:
    Draft202012Validator.check_schema(DESCRIBED)
    schema = json.loads(json.dumps(DESCRIBED))
    head = dict.fromkeys(schema["properties"], True)
    for verb in schema["$defs"]["verbs"].values():
        for one in verb.get("anyOf", [verb]):
            if "properties" in one:
                one["properties"] = head | one["properties"]
    return Draft202012Validator(_closed(schema))


def _closed(schema: Any) -> Any:
    """Programs should ignore keys that they do not know; our tests must not."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(part) for key, part in schema.items()}
    if closed.get("type") == "object" and "properties" in closed and "$schema" not in closed:
        closed.setdefault("additionalProperties", False)
    return closed
