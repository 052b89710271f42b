"""The whole vocabulary of conditions, and what one says of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from refsim.check.conditions import CONDITIONS, Answer
from refsim.check.sizes import SIZES
from refsim.check.subject import Call
from refsim.core.errors import ParameterError

WORDS: Mapping[str, Callable[..., Answer]] = CONDITIONS | SIZES


def answer(call: Call, condition: Mapping[str, Any]) -> Answer:
    """What a condition of a description, ``{"rank": {"arg": "0", "most": 4}}``, says of a call."""
    ((name, arguments),) = condition.items()
    if name == "not":
        found = answer(call, arguments)
        return None if found is None else not found
    try:
        return WORDS[name](call, **arguments)
    except (KeyError, TypeError) as error:
        raise ParameterError("runtime", "a condition that there is not", got=str(condition)) from error
