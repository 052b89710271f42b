"""The cases of the corpus, by rule: case i of an operator is the same on every machine.

The number first counts through the legal layouts of the operator. The rule in the operator's own file makes the rest of
the case; `refsim.ops.base.case_rule` says what all rules have in common. Behind these cases stand hard ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from refsim.core.rng import Rng
from refsim.ops.base.case import Case
from refsim.ops.base.case_rule import CaseRule, CaseSlot, Hard, made_case
from refsim.ops.base.registry import OPS

#: Operator -> how many cases, and the rule that makes one.
RULES: dict[str, CaseRule] = {name: op.cases for name, op in OPS.items()}
_TOLD = json.loads(Path(__file__).with_name("telling.json").read_text())
#: Operator -> the numbers of cases that showed a seeded bug (tests/mutants). Who takes only some cases takes these.
TELLING: dict[str, tuple[int, ...]] = {name: tuple(_TOLD.get(name, ())) for name in RULES}


def case_name(op: str, number: int) -> str:
    """What the corpus calls case ``number`` of an operator, or of its chains: ``q8ta_add/0001``."""
    return f"{op}/{number:04d}"


def case(name: str, number: int) -> Case:
    """Case ``number`` of an operator."""
    combinations = OPS[name].layouts
    found = RULES[name].hard_of(number)
    if found is not None:
        return _hard(name, number, *found)
    slot = CaseSlot(combinations[number % len(combinations)], number // len(combinations), _rng(name, number))
    return made_case(name, slot, RULES[name].make(slot))


def _rng(name: str, number: int) -> Rng:
    return Rng(crc32(name.encode()) << 20 | number)


def _hard(name: str, number: int, kind: Hard, index: int) -> Case:
    group = index // kind.alike
    rng = _rng(name, number - index % kind.alike)
    combinations = OPS[name].layouts
    slot = CaseSlot(combinations[(3 + 7 * group) % len(combinations)], index, rng, kind.style)
    return made_case(name, slot, kind.make(slot))


def cases(name: str) -> Iterator[Case]:
    """All cases of an operator, in order."""
    for number in range(RULES[name].count):
        yield case(name, number)
