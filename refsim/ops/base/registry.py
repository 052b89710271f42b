"""The registry: every operator by its name, found by walking refsim/ops."""

from __future__ import annotations

import copyreg
import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping, Sequence

from refsim.core import choices
from refsim.core.errors import ParameterError, UnknownOperatorError
from refsim.ops.base.spec import KernelSpec, OpSpec
from refsim.ops.base.traits import Family


def _load() -> dict[str, OpSpec]:
    """Walk refsim.ops: every module there has one `OP`; packages hold what operators share. A duplicate name raises."""
    package = importlib.import_module("refsim.ops")
    found: dict[str, OpSpec] = {}
    for module in pkgutil.iter_modules(package.__path__):
        if module.ispkg or module.name.startswith("_"):
            continue
        op = importlib.import_module(f"refsim.ops.{module.name}").OP
        if op.name in found:
            raise RuntimeError(f"{op.name}: defined twice, again in {module.name}")
        found[op.name] = op
    return found


class _Registry(Mapping[str, OpSpec]):
    """All operators by name, loaded on first use."""

    def __init__(self) -> None:
        self._ops: dict[str, OpSpec] | None = None

    @property
    def _loaded(self) -> dict[str, OpSpec]:
        if self._ops is None:
            self._ops = _load()
        return self._ops

    def __getitem__(self, name: str) -> OpSpec:
        if name not in self._loaded:
            raise UnknownOperatorError(
                "operator", "unknown", got=repr(name), need=choices.need(name, self._loaded)
            )
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded)

    def __len__(self) -> int:
        return len(self._loaded)

    def __contains__(self, name: object) -> bool:
        return name in self._loaded

    def serialized(self, name: str) -> OpSpec | None:
        """The operator with this name in serialized graphs (``et_vk.q8ta_add.default``), or None."""
        return next(
            (op for op in self._loaded.values() if name and name in (op.serialized, *op.aliases)), None
        )

    def of_family(self, *families: Family) -> tuple[OpSpec, ...]:
        """The operators of these families."""
        return tuple(op for op in self._loaded.values() if op.family in families)


OPS = _Registry()
#: Where a user finds all names, for errors whose list of them is cut short.
LISTED = "refsim sweep --help lists all"


def check_names(where: str, given: Iterable[str], known: Sequence[str]) -> None:
    """ParameterError for the first of these operators that is not among the ``known`` ones."""
    for name in given:
        if name not in known:
            need = choices.need(name, known)
            raise ParameterError(where, f"no such operator ({LISTED})", got=name, need=need)


def op_named(name: str) -> OpSpec:
    """The operator of that name; UnknownOperatorError if there is none."""
    return OPS[name]


def kernel_of(shader: str) -> KernelSpec:
    """The kernel of a launch, by the name of its shader; UnknownOperatorError if there is none."""
    found = OPS[shader].kernel
    if found is None:
        raise UnknownOperatorError(
            shader, "has no kernel of its own", need="the operators that it consists of"
        )
    return found


# functions do not travel between processes; the other one has its own
copyreg.pickle(OpSpec, lambda op: (op_named, (op.name,)))
