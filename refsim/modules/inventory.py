"""The modules of a user's build beside the kernels that refsim knows: which are there, and which of them run."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Annotated

from refsim.core import choices
from refsim.core.errors import UnknownOperatorError
from refsim.core.meanings import ModuleName, OperatorName
from refsim.golden.rules import RULES, case
from refsim.ops.base.binding import bind
from refsim.ops.base.module_call import Host, ModuleCall, Shader
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call, OpSpec

#: Operator -> how a kernel of the user's own is called, in the place of `Upstream.module`.
Rows = Mapping[str, ModuleCall]
NONE: Rows = MappingProxyType({})
FOUND, MISSING, DAMAGED = "found", "missing", "damaged"
PACKS, OWN = "packs weights", "own"
#: How alike two names must be for one to be taken for a slip of the other.
_ALIKE = 0.8
#: Numbers of cases that show which kernels an operator with several may take.
_SAMPLED = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55)


@dataclass(frozen=True)
class ModuleRow:
    """One module that refsim can run. ``state``: found, missing, or damaged, with the reason in ``note``."""

    module: ModuleName
    operator: OperatorName
    variant: Annotated[str, "Base, fallback, unsigned, own, or packs weights."]
    state: Annotated[str, "found, missing or damaged."]
    note: Annotated[str, "Why it is damaged; else empty."] = ""


def known(own: Rows = NONE) -> Mapping[str, tuple[str, Shader | None]]:
    """Every module that refsim can run by name: its operator, and its row (None: it packs weights)."""
    if not own:
        return _upstream()
    return {module: (op, shader) for module, op, shader in pairs(own)}


def pairs(own: Rows) -> Iterator[tuple[str, str, Shader | None]]:
    """Every module and an operator that it computes; one of the user's own may compute several."""
    for module, (op, shader) in _upstream().items():
        if op not in own:
            yield module, op, shader
    for name, row in own.items():
        for shader in row.shaders:
            yield shader.name, name, shader


@cache
def _upstream() -> Mapping[str, tuple[str, Shader | None]]:
    found: dict[str, tuple[str, Shader | None]] = {}
    for name, op in OPS.items():
        if op.upstream.module is not None:
            for shader in op.upstream.module.shaders:
                found[shader.name] = (name, shader)
    for name, op in OPS.items():
        for packer, _ in _packers(op):
            found.setdefault(packer, (name, None))
    return found


def _packers(op: OpSpec) -> Iterator[tuple[str, bool]]:
    """The modules that pack an operator's weights, and whether they do so for kernels that take them as unsigned."""
    if op.upstream.module is None:
        return
    # an operator without modules of its own packs for those that it expands to
    unsigned = not op.upstream.module.shaders or any(shader.unsigned for shader in op.upstream.module.shaders)
    for packing in op.upstream.module.packing.values():
        for end, of_unsigned in (("", False), *([("_unsigned", True)] if unsigned else [])):
            for storage in ("texture2d", "buffer"):
                yield f"{packing.shader}{end}_{storage}", of_unsigned


def rows(there: Collection[str], damaged: Mapping[str, str], own: Rows = NONE) -> list[ModuleRow]:
    """The table of a folder that holds the modules ``there``, of which some are ``damaged`` (name -> why).

    A folder with kernels of its own is no build of upstream's: what it lacks of that is not named.
    """
    found = []
    for module, op, shader in pairs(own):
        if module not in there and (shader is None or (own and op not in own)):
            continue
        state = DAMAGED if module in damaged else FOUND if module in there else MISSING
        variant = PACKS if shader is None else OWN if op in own else shader.variant
        found.append(ModuleRow(module, op, variant, state, damaged.get(module, "")))
    order = list(OPS)
    return sorted(found, key=lambda row: (row.variant == PACKS, order.index(row.operator)))


def strangers(there: Collection[str], own: Rows = NONE) -> list[tuple[str, str]]:
    """(file, the name that it may be meant to have) of modules that no operator has; the others are not named."""
    names = known(own)
    absent = [name for name in names if name not in there]
    found = []
    for name in sorted(there):
        if name not in names:
            # q4 is no slip for q8: kernels that differ in a number are other kernels
            alike = [known_name for known_name in absent if _numbers(known_name) == _numbers(name)]
            found.append((name, choices.nearest(name, alike, _ALIKE) or ""))
    return found


def _numbers(name: str) -> list[str]:
    return re.findall(r"\d+", name)


@cache
def kernels(op: str) -> tuple[str, ...]:
    """The operators whose kernels compute an operator: itself, or those that it expands to."""
    if OPS[op].expand is None:
        return (op,)
    return tuple(dict.fromkeys(name for call in _sampled(op) for name in _leaves(call)))


def computing(op: str, own: Rows) -> tuple[str, ...]:
    """The same where an operator may have a kernel of the user's own, which computes it alone."""
    return (op,) if op in own else kernels(op)


@cache
def _sampled(op: str) -> tuple[Call, ...]:
    return tuple(bind(case(op, number)).call for number in _SAMPLED if number < RULES[op].count)


def _leaves(call: Call) -> Iterator[str]:
    if call.op.expand is None:
        yield call.op.name
    else:
        for part in call.op.expand(call):
            yield from _leaves(part.call)


def computed(there: Collection[str], own: Rows = NONE) -> list[str]:
    """The operators that the modules of a folder compute, at least in part; those with one kernel come first."""
    direct = {op for module, op, shader in pairs(own) if shader is not None and module in there}
    found = [
        name
        for name in OPS
        if name in direct or (direct >= set(kernels(name)) if own else direct & set(kernels(name)))
    ]
    return sorted(found, key=lambda name: OPS[name].expand is not None)


def operators() -> list[str]:
    """The operators that modules of upstream's names compute, by name."""
    return sorted(computed(known()))


def affected(modules: Set[str], operators: Collection[str], own: Rows = NONE) -> list[str]:
    """Those of the operators that a change of these modules can touch, in their order."""
    return [name for name in operators if not modules.isdisjoint(_of(name, own))]


def by_age(compiled: Mapping[str, int], operators: Sequence[str], own: Rows = NONE) -> list[str]:
    """The operators, those of newer modules first; ``compiled``: when each module was."""
    ages = {
        op: max((compiled[name] for name in _of(op, own) if name in compiled), default=0) for op in operators
    }
    return sorted(operators, key=lambda op: -ages[op])


def _of(op: str, own: Rows) -> set[str]:
    """The modules that compute an operator or pack its weights."""
    computed = {op, *computing(op, own)}
    found = {module for module, name, shader in pairs(own) if shader is not None and name in computed}
    return found | {packer for name in computed - own.keys() for packer, _ in _packers(OPS[name])}


def chosen(op: str, host: Host) -> tuple[str, ...]:
    """The modules that a host takes for an operator and its weights, for some of its calls."""
    found: dict[str, None] = {}
    rows = {name: replace(row, refuses=None) for name, row in host.rows.items()}
    for kernel in computing(op, host.rows):
        for call in _sampled(kernel):
            with suppress(UnknownOperatorError):
                shader = replace(host, rows=rows).choose(call)
                found[shader.name] = None
                packers = _packers(OPS[kernel]) if kernel not in host.rows else ()
                found |= {name: None for name, of in packers if of == shader.unsigned and host.has(name)}
    return tuple(found)
