"""The JSON Schema of what the verbs print with --json, made from the types that they return."""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum
from inspect import cleandoc
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import click

from refsim.cli.kit.document import SCHEMA, DocumentError
from refsim.core.plain import FLAT, keys
from refsim.core.status import BAD_INPUT, DIFFERENT, INTERRUPTED, NOT_LOADED, SAME, UNAVAILABLE

DIALECT = "https://json-schema.org/draft/2020-12/schema"
STATUSES = [SAME, DIFFERENT, BAD_INPUT, UNAVAILABLE, NOT_LOADED, INTERRUPTED]
_PLAIN = {str: "string", bool: "boolean", int: "integer", type(None): "null"}
#: A float; JSON has no number that is not finite.
_NUMBER = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}

Schema = dict[str, Any]


def whole(root: click.Group) -> Schema:
    """The schema of all verbs."""
    defs: Schema = {"number": _NUMBER}
    error = _type(DocumentError, defs)
    verbs = {name: _verb(command, defs) for name, command in verbs_of(root)}
    groups = {name.partition(" ")[0] for name in verbs}
    failed = {"required": ["error"]}
    return {
        "$schema": DIALECT,
        "title": "What refsim prints with --json",
        "description": "Keys may be added without a new number; a program should ignore those that it does not know.",
        "type": "object",
        "properties": {
            "verb": {
                "description": "The verb, with its subverb; null if the command line names none.",
                "enum": [*sorted({*verbs, *groups}), None],
            },
            "schema": {
                "description": "The number of this form; it grows when a key changes its meaning or goes away.",
                "const": SCHEMA,
            },
            "status": {"description": "The exit status.", "enum": STATUSES},
            "wrote": {
                "description": "Only if the command wrote files or folders: their paths.",
                **_type(list[str], defs),
            },
            "error": {
                "description": "Only if the command failed. Beside it stand the keys of the verb if it failed after "
                "its work, because too little was compared.",
                **error,
            },
        },
        "required": ["verb", "schema", "status"],
        "allOf": [
            {
                "if": {"properties": {"verb": {"const": name}}, "not": failed},
                "then": {"$ref": f"#/$defs/verbs/{name}"},
            }
            for name in verbs
        ],
        "$defs": {"verbs": verbs, **dict(sorted(defs.items()))},
    }


def verbs_of(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every verb, or subverb with the verb before it, and its command."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from verbs_of(command, f"{before}{name} ")
        elif command is not None:
            yield before + name, command


def _verb(command: click.Command, defs: Schema) -> Schema:
    found = [_object(kind, defs) for kind in results(command)]
    return found[0] if len(found) == 1 else {"anyOf": found}


def results(command: click.Command) -> list[type]:
    """The types of what a verb returns, one for each way to use it."""
    function = command.callback
    assert function is not None
    said = eval(function.__annotations__["return"], function.__globals__)
    ways = get_args(said) if get_origin(said) in (Union, types.UnionType) else [said]
    return [get_args(one)[0] if _is_many(one) else one for one in ways]


def _is_many(kind: Any) -> bool:
    """Whether it is an iterator of results: the verb goes on, and prints each."""
    return isinstance(get_origin(kind), type) and issubclass(get_origin(kind), Iterator)


def _object(kind: type, defs: Schema) -> Schema:
    found: Schema = {"description": cleandoc(kind.__doc__ or "").partition("\n\n")[0].replace("\n", " ")}
    properties: Schema = {}
    for key in keys(kind):
        if key.meaning == FLAT:
            properties |= _object(key.type, defs)["properties"]
        else:
            properties[key.name] = {"description": key.meaning, **_type(key.type, defs)}
    return {**found, "type": "object", "properties": properties, "required": list(properties)}


def _type(kind: Any, defs: Schema) -> Schema:
    """The schema of a type; objects go into ``defs``. TypeError for one that is no plain data."""
    if get_origin(kind) is Annotated:
        return _type(get_args(kind)[0], defs)
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if kind is float:
        return {"$ref": "#/$defs/number"}
    if kind is Any:
        return {}
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_type(one, defs) for one in inner]}
    if origin is Literal:
        return {"enum": list(inner)}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        values = int if issubclass(origin, Counter) else inner[1]
        return {"type": "object", "additionalProperties": _type(values, defs) or True}
    if isinstance(origin, type):
        items = [_type(one, defs) for one in dict.fromkeys(inner) if one is not Ellipsis]
        return {"type": "array", "items": items[0] if len(items) == 1 else {"anyOf": items}}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [one.value for one in kind]}
    if not keys(kind) and is_dataclass(kind):
        return {"type": "object"}
    if not keys(kind):
        raise TypeError(f"{kind} is no plain data")
    if kind.__name__ not in defs:
        defs[kind.__name__] = {}  # it may hold others of its kind
        defs[kind.__name__] = _object(kind, defs)
    return {"$ref": f"#/$defs/{kind.__name__}"}
