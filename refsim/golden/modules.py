"""The modules of a user's build beside the kernels that refsim knows: which are there, and which of them run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

from refsim.core.errors import UnknownOperatorError
from refsim.golden.rules import RULES, case
from refsim.ops.base.binding import bind
from refsim.ops.base.host.choice import Host
from refsim.ops.base.module_call import Available, Features, Shader
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call, OpSpec

FOUND, MISSING, DAMAGED = "found", "missing", "damaged"
PACKS = "packs weights"
#: How alike two names must be for one to be taken for a slip of the other.
_ALIKE = 0.8
#: Numbers of cases that show which kernels an operator with several may take.
_SAMPLED = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55)


@dataclass(frozen=True)
class Row:
    """One module that refsim can run. ``state``: found, missing, or damaged, with the reason in ``note``."""

    module: str
    operator: str
    variant: str
    state: str
    note: str = ""


@cache
def known() -> Mapping[str, tuple[str, Shader | None]]:
    """Every module that refsim can run by name: its operator, and its row (None: it packs weights)."""
    found: dict[str, tuple[str, Shader | None]] = {}
    for name, op in OPS.items():
        if op.module is not None:
            for shader in op.module.shaders:
                found[shader.name] = (name, shader)
    for name, op in OPS.items():
        for packer in _packers(op):
            found.setdefault(packer, (name, None))
    return found


def _packers(op: OpSpec) -> Iterator[str]:
    if op.module is None:
        return
    # an operator without modules of its own packs for those that it expands to
    unsigned = not op.module.shaders or any(shader.unsigned for shader in op.module.shaders)
    for packing in op.module.packing.values():
        for stem in (packing.shader, *([f"{packing.shader}_unsigned"] if unsigned else [])):
            yield from (f"{stem}_{storage}" for storage in ("texture2d", "buffer"))


def rows(there: Collection[str], damaged: Mapping[str, str]) -> list[Row]:
    """The table of a folder that holds the modules ``there``, of which some are ``damaged`` (name -> why)."""
    found = []
    for module, (op, shader) in known().items():
        if shader is None and module not in there:
            continue
        state = DAMAGED if module in damaged else FOUND if module in there else MISSING
        found.append(
            Row(module, op, PACKS if shader is None else shader.variant, state, damaged.get(module, ""))
        )
    order = list(OPS)
    return sorted(found, key=lambda row: (row.variant == PACKS, order.index(row.operator)))


def strangers(there: Collection[str]) -> list[tuple[str, str]]:
    """(file, the name that it may be meant to have) of modules that no operator has; the others are not named."""
    absent = [name for name in known() if name not in there]
    found = []
    for name in sorted(there):
        if name not in known():
            meant = get_close_matches(name, absent, 1, _ALIKE)
            found.append((name, meant[0] if meant else ""))
    return found


@cache
def kernels(op: str) -> tuple[str, ...]:
    """The operators whose kernels compute an operator: itself, or those that it expands to."""
    if OPS[op].expand is None:
        return (op,)
    calls = (bind(case(op, number)).call for number in _SAMPLED if number < RULES[op].count)
    return tuple(dict.fromkeys(name for call in calls for name in _leaves(call)))


def _leaves(call: Call) -> Iterator[str]:
    if call.op.expand is None:
        yield call.op.name
    else:
        for part in call.op.expand(call):
            yield from _leaves(part.call)


def computed(there: Collection[str]) -> list[str]:
    """The operators that the modules of a folder compute, at least in part; those with one kernel come first."""
    own = {op for module, (op, shader) in known().items() if shader is not None and module in there}
    found = [name for name in OPS if own & set(kernels(name))]
    return sorted(found, key=lambda name: OPS[name].expand is not None)


def affected(modules: Collection[str], operators: Collection[str]) -> list[str]:
    """Those of the operators that a change of these modules can touch, in their order."""
    touched = {known()[module][0] for module in modules if module in known()}
    packers = {module for module in modules if module in known() and known()[module][1] is None}
    return [
        name
        for name in operators
        if touched & set(kernels(name)) or packers & {p for k in kernels(name) for p in _packers(OPS[k])}
    ]


def chosen(op: str, features: Features, available: Available) -> tuple[str, ...]:
    """The modules of a folder that a device of these features takes for an operator."""
    found: dict[str, None] = {}
    for kernel in kernels(op):
        for number in _SAMPLED:
            call = bind(case(kernel, number)).call
            with suppress(UnknownOperatorError):
                found[Host(features, available).choose(call).name] = None
    return tuple(found)
