"""What docs/json.md says: the keys of the objects that verbs print with --json."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from page_tables.markdown import markdown
from refsim.cli.kit.document import SCHEMA_FILE

#: Definitions that are no objects: their type in words.
_PLAIN = {
    "count": "integer", "number": "number", "value": "value", "shape": "list of integers", "layout": "layout",
    "rivals": "two causes", "dump_value": "sidecar",
}  # fmt: skip


def json_verbs() -> str:
    """A section for each verb, with its keys."""
    return _sections(json.loads(SCHEMA_FILE.read_text())["$defs"]["verbs"])


def json_objects() -> str:
    """A section for each object that verbs share, or that stands in lists."""
    held = json.loads(SCHEMA_FILE.read_text())["$defs"]
    return _sections({name: one for name, one in held.items() if "properties" in one})


def _sections(objects: dict[str, Any]) -> str:
    parts = []
    for name, one in objects.items():
        table = markdown(("key", "type", "meaning"), _keys(one))
        parts.append(f"### {name}\n\n{one['description']}\n\n{table}")
    return "\n" + "\n".join(parts)


def _keys(one: dict[str, Any], within: str = "") -> Iterable[tuple[str, str, str]]:
    """Every key of an object; those of objects without a name of their own stand below it."""
    for key, row in one["properties"].items():
        optional = "" if key in one.get("required", ()) else " (not always)"
        yield f"`{within}{key}`{optional}", _type(row), row["description"]
        inner, path = row, f"{within}{key}"
        while "properties" not in inner and (below := _below(inner)) is not None:
            inner, mark = below
            path += mark
        if "properties" in inner:
            yield from _keys(inner, f"{path}.")


def _below(row: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
    """What a list, a map or a value that may be null holds."""
    if isinstance(row.get("items"), dict):
        return row["items"], "[]"
    if isinstance(row.get("additionalProperties"), dict):
        return row["additionalProperties"], "[NAME]"
    some = [each for each in row.get("anyOf", ()) if each.get("type") != "null"]
    return (some[0], "") if len(some) == 1 else None


def _type(row: dict[str, Any]) -> str:
    """The type in words, with links to the objects."""
    if "$ref" in row:
        name = row["$ref"].rpartition("/")[2]
        return _PLAIN.get(name) or f"[{name}](#{name})"
    if "anyOf" in row:
        return " or ".join(map(_type, row["anyOf"]))
    if "const" in row:
        return f"`{row['const']}`"
    if "enum" in row:
        return ", ".join(f"`{word}`" for word in row["enum"])
    if row.get("type") == "array":
        return f"list of {_type(row['items'])}"
    if row.get("type") == "object" and isinstance(row.get("additionalProperties"), dict):
        return f"by name: {_type(row['additionalProperties'])}"
    kind = row["type"]
    return kind if isinstance(kind, str) else " or ".join(kind)
