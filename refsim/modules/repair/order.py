"""Which edits are tried first: those of the kind that a named cause asks for.

The slice back from the stores to the output does not order them: all instructions of optimized modules are in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from refsim.modules.repair.edits import Edit

#: How many ranks earlier an edit is tried that fits the named cause.
FIRST = 1
#: (Names of causes, words of the edits that may mend them).
_FIT = (
    ("tie|truncation|round", r"round|floor|trunc|ceil|0\.5|Convert"),
    ("clamp|saturat|relu|bound", r"clamp|min|max|12[78]|Bitcast|Convert"),
    ("lane|nibble|halves|reversed", r"component|>>|<<|bitfield|operands| (4|8|16|24) in place"),
    ("unsigned|sign", r"signed|uint|UDiv|SDiv|>>|bitfield|dot product|Convert"),
    ("border|edge|rows|reduction|tail|batch|missing", r'"(<|<=|>|>=|==|!=|&&|\|\|)"|condition| 1 in place|[+-] 1'),
    ("zero point", r"zp|zero|\"[+-]\"|left out"),
    ("scale|multiply|bias|alpha", r"scale|bias|alpha|inv|\"[*/+-]\"|s \+ b|left out"),
    ("address|stride|dilation|padding", r'stride|pad|dil|\[\d+\]|"[*/%+-]"'),
    ("coordinate|group|distance|moved|weights", r'\.[xyzw]|\[\d+\]|"[*/%+-]"'),
    ("precision|16", r"Convert|Bitcast"),
)  # fmt: skip


def ordered(edits: Iterable[Edit], causes: Sequence[str]) -> list[Edit]:
    """The edits, the most plausible first. ``causes`` are names of what explains the wrong bytes."""
    fit = [words for names, words in _FIT if any(re.search(names, cause) for cause in causes)]
    named = re.compile("|".join(fit) or "(?!)")
    return sorted(edits, key=lambda edit: edit.rank - FIRST * (named.search(edit.said) is not None))
