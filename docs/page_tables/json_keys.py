"""What docs/json.md says: the keys of the objects that verbs print with --json."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from page_tables.markdown import markdown
from refsim.cli.kit.program import root
from refsim.cli.kit.schema import Schema, whole


def json_verbs() -> str:
    """A section for each verb, with its keys: one table for each way to use it."""
    return _sections(whole(root)["$defs"]["verbs"])


def json_objects() -> str:
    """A section for each object that verbs share, or that stands in lists."""
    return _sections({name: one for name, one in whole(root)["$defs"].items() if "properties" in one})


def _sections(objects: Schema) -> str:
    return "\n" + "\n".join("\n".join((f"### {name}\n", *_tables(one))) for name, one in objects.items())


def _tables(one: Schema) -> Iterator[str]:
    for way in one["anyOf"] if "properties" not in one else [one]:
        yield f"{way['description']}\n\n{markdown(('key', 'type', 'meaning'), _keys(way))}"


def _keys(one: Schema, within: str = "") -> Iterable[tuple[str, str, str]]:
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


def _below(row: Schema) -> tuple[Schema, str] | None:
    """What a list, a map or a value that may be null holds."""
    if isinstance(row.get("items"), dict):
        return row["items"], "[]"
    if isinstance(row.get("additionalProperties"), dict):
        return row["additionalProperties"], "[NAME]"
    some = [each for each in row.get("anyOf", ()) if each.get("type") != "null"]
    return (some[0], "") if len(some) == 1 else None


def _type(row: Schema) -> str:
    """The type in words, with links to the objects."""
    if "$ref" in row:
        name = row["$ref"].rpartition("/")[2]
        return _PLAIN.get(name) or f"[{name}](#{name.lower()})"
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
    kind = row.get("type", "anything")
    return kind if isinstance(kind, str) else " or ".join(kind)


#: Definitions that are no objects: their type in words.
_PLAIN = {
    "count": "integer", "number": "number", "value": "value", "shape": "list of integers", "layout": "layout",
    "rivals": "two causes", "dump_value": "sidecar",
}  # fmt: skip
