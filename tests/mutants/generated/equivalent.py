"""Changes that change nothing anyone could notice, each with the reason. A change is known by its id."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

LIST = Path(__file__).with_name("equivalent.json")


@cache
def known() -> Mapping[str, str]:
    """Id -> reason."""
    found: dict[str, str] = json.loads(LIST.read_text())
    return found


def reason(id: str) -> str:
    """Why a change is equivalent; "" if it is not known to be."""
    return known().get(id, "")
