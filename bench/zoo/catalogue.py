"""All models of the zoo by name."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from bench.zoo import model_lists
from bench.zoo.model import Model

MODELS: dict[str, Model] = {model.name: model for rows in model_lists.ALL for model in rows}


def choose(patterns: Sequence[str]) -> list[Model]:
    """The models whose name or family matches one of these globs, in the order of the globs; all of them without any.

    ValueError for a pattern that matches none.
    """
    for pattern in patterns:
        if not any(_matches(model, pattern) for model in MODELS.values()):
            families = ", ".join(dict.fromkeys(model.family for model in MODELS.values()))
            raise ValueError(f"no model matches {pattern!r}; families are {families}")
    found = [model for pattern in patterns or ["*"] for model in MODELS.values() if _matches(model, pattern)]
    return list({model.name: model for model in found}.values())


def _matches(model: Model, pattern: str) -> bool:
    return fnmatchcase(model.name, pattern) or fnmatchcase(model.family, pattern)
