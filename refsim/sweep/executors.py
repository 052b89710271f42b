"""The executors that a process of a sweep holds open, and those that its machine lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from refsim.core.errors import RefsimError
from refsim.exec.cpu import NativeExecutor
from refsim.exec.executor import YOURS, Executor
from refsim.exec.factory import executor_named
from refsim.ops.base.prepared import Prepared
from refsim.sweep.plan import SweepVariant


class Executors(dict[SweepVariant, Executor]):
    """The executor of each variant, opened when it is first asked for; the instruction set is that of this process.

    Threads of the native one are woken for any graph: random ones are too small to be worth it.

    Raises what opening an executor raises.
    """

    def __missing__(self, variant: SweepVariant) -> Executor:
        executor = executor_named(variant.executor, variant.threads)
        if isinstance(executor, NativeExecutor):
            executor.options = replace(executor.options, wake_always=True)
        self[variant] = executor
        return executor

    def close(self) -> None:
        """Close them; they are opened anew when they are asked for again."""
        for executor in self.values():
            executor.close()
        self.clear()


def available(variants: Sequence[SweepVariant]) -> dict[SweepVariant, RefsimError | None]:
    """Why this machine lacks a variant's executor; None for one that it has."""
    from refsim.exec.cpu import isa

    found: dict[SweepVariant, RefsimError | None] = {}
    for variant in variants:
        try:
            executor_named(variant.executor, variant.threads)
            if variant.isa:
                isa.environment(variant.isa)
            found[variant] = None
        except RefsimError as error:
            found[variant] = error
    return found


def refusal(executor: Executor, prepared: Prepared) -> str:
    """Why an executor does not take a call, or nothing. One that takes everything is not asked."""
    if executor.foreign:  # what refsim's kernels compute in the place of its own says nothing about it
        source = executor.source(prepared.call)
        return "" if source.whose == YOURS else source.why or "not its own kernels"
    if type(executor).refusal is not Executor.refusal:
        return executor.refusal(prepared.call) or ""
    if type(executor).supports is Executor.supports:
        return ""
    return next(filter(None, (executor.supports(step.launch) for step in prepared.dispatches)), "")
