"""How many bytes one value may take that a file asks for. Checked before memory is taken and before anything is drawn.

The limit is 1 GiB. The environment variable REFSIM_MAX_BYTES sets another one: a number of bytes, or a number with K, M
or G; 4 KiB are always allowed. Whole files may be `FILE` times as large, and all activations of a delegate together
`TOTAL` times. A delegate may declare more, to be looked at and checked; it is refused when it is run.
"""

from __future__ import annotations

import os
import re

from refsim.core.counted import counted
from refsim.core.errors import LimitError, ParameterError

VARIABLE = "REFSIM_MAX_BYTES"
DEFAULT = 1 << 30
#: What is always allowed; so small calls need not look at the environment.
LEAST = 1 << 12
FILE, TOTAL = 4, 8
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30}


def most_bytes() -> int:
    """The limit. ParameterError if the environment variable is no number of bytes."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return DEFAULT
    found = re.fullmatch(r"([0-9]{1,18})([KMG]?)", text.upper())
    if found is None or not int(found[1]):
        raise ParameterError(VARIABLE, "not a number of bytes", got=repr(text), need="such as 4G")
    return int(found[1]) << _UNITS[found[2]]


def check(where: str, nbytes: int, factor: int = 1) -> None:
    """LimitError if ``nbytes`` exceeds the limit, or ``factor`` times the limit."""
    if nbytes <= LEAST:
        return
    most = most_bytes() * factor
    if nbytes > most:
        raise LimitError(
            where,
            "takes more memory than files may ask for",
            got=counted(nbytes, "byte"),
            need=f"<= {most}; {VARIABLE} sets another limit",
        )
