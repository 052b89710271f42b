"""The executors that a process of a sweep holds open, and those that its machine lacks."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from refsim.core.errors import RefsimError
from refsim.exec.executor import Executor
from refsim.exec.factory import executor_named
from refsim.sweep.plan import Variant


class Executors(dict[Variant, Executor]):
    """The executor of each variant, opened when it is first asked for; the instruction set is that of this process.

    Raises what opening an executor raises.
    """

    def __missing__(self, variant: Variant) -> Executor:
        self[variant] = executor_named(variant.executor, variant.threads)
        return self[variant]

    def close(self) -> None:
        """Close those that can be closed; they are opened anew when they are asked for again."""
        for executor in self.values():
            with contextlib.suppress(AttributeError):
                executor.close()  # type: ignore[attr-defined]
        self.clear()


def available(variants: Sequence[Variant]) -> dict[Variant, RefsimError | None]:
    """Why this machine lacks a variant's executor; None for one that it has."""
    from refsim.exec.cpu import isa

    found: dict[Variant, RefsimError | None] = {}
    for variant in variants:
        try:
            executor_named(variant.executor, variant.threads)
            if variant.isa:
                isa.environment(variant.isa)
            found[variant] = None
        except RefsimError as error:
            found[variant] = error
    return found
