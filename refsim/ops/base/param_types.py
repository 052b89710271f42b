"""The types that an operator's parameters may have, and parameters made from named values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from refsim.core import choices
from refsim.core.errors import ParameterError


def _is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _are_ints(value: Any) -> bool:
    return isinstance(value, tuple | list) and all(map(_is_int, value))


#: Annotation of a field of `Params` -> whether a value is one, and how an error calls it.
PARAM_TYPES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "int": (_is_int, "an integer"),
    "int | None": (lambda value: value is None or _is_int(value), "an integer or none"),
    "float": (lambda value: _is_int(value) or isinstance(value, float | np.floating), "a number"),
    "float | None": (
        lambda value: value is None or _is_int(value) or isinstance(value, float | np.floating),
        "a number or none",
    ),
    "bool": (lambda value: isinstance(value, bool | np.bool_), "true or false"),
    "str": (lambda value: isinstance(value, str), "a string"),
    "tuple[int, int]": (lambda value: _are_ints(value) and len(value) == 2, "two integers"),
    "tuple[int, ...]": (_are_ints, "integers"),
}


def make_params(where: str, params: type, values: Mapping[str, Any]) -> Any:
    """A dataclass of parameters from named values; ParameterError for one that is unknown, missing or of another type.

    A whole number for a float becomes one: files write either. ``where`` begins the message of an error.
    """
    known = {f.name: f for f in fields(params)}
    lacking = [name for name, row in known.items() if row.default is MISSING and name not in values]
    if lacking:
        raise ParameterError(where, "a parameter is missing", need=", ".join(lacking))
    found = dict(values)
    for name, value in values.items():
        if name not in known:
            raise ParameterError(where, "unknown parameter", got=name, need=choices.need(name, sorted(known)))
        fits, need = PARAM_TYPES[str(known[name].type)]
        if not fits(value):
            raise ParameterError(where, f"{name} has the wrong type", got=repr(value)[:80], need=need)
        if "float" in str(known[name].type) and _is_int(value):
            try:
                found[name] = float(value)
            except OverflowError as error:
                raise ParameterError(where, f"{name} is out of range", got=repr(value)[:80]) from error
    return params(**found)
