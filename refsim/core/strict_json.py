"""JSON without ``NaN`` and ``Infinity``, which are no JSON: such numbers are the strings of those names."""

from __future__ import annotations

import json
import math
from typing import Any


def dumps(content: Any, **options: Any) -> str:
    """As ``json.dumps``; numbers that are not finite become ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``."""
    try:
        return json.dumps(content, allow_nan=False, **options)
    except ValueError:
        return json.dumps(finite(content), allow_nan=False, **options)


def finite(content: Any) -> Any:
    """The content with strings for numbers that are not finite."""
    if isinstance(content, float) and not math.isfinite(content):
        return "NaN" if math.isnan(content) else "Infinity" if content > 0 else "-Infinity"
    if isinstance(content, dict):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    return content
