"""Operators and kernels that the runtime does not have."""

from __future__ import annotations

from collections.abc import Iterator

from refsim.check.finding import Level, Place
from refsim.check.rule import Hit, Rule
from refsim.check.runtime import Runtime
from refsim.check.subject import Call, Method
from refsim.formats.pte.read import VULKAN_ID
from refsim.formats.pte.schema import DelegateCall


def _absent(method: Method, runtime: Runtime) -> Iterator[Call]:
    return (call for call in method.calls if call.name not in runtime.operators)


def missing(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for call in _absent(method, runtime):
        if call.name not in runtime.claimed:
            yield Hit(call.place(), {"operator": call.name})


def claimed(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for call in _absent(method, runtime):
        if call.name in runtime.claimed:
            yield Hit(call.place(), {"operator": call.name})


def missing_kernel(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for number, name in method.kernels:
        if runtime.library_of(name) is None:
            yield Hit(method.place(number, name), {"kernel": name})


def other_library(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for number, name in method.kernels:
        library = runtime.library_of(name)
        if library is not None and library not in runtime.standard:
            yield Hit(method.place(number, name), {"kernel": name, "library": library})


def other_backend(method: Method, runtime: Runtime) -> Iterator[Hit]:
    entries = method.plan.delegates if method.plan is not None else ()
    for number, instruction in method.instructions:
        if isinstance(instruction, DelegateCall):
            backend = entries[instruction.delegate_index].id
            if backend != VULKAN_ID:
                place = Place(method.name, instruction.delegate_index)
                yield Hit(place, {"backend": backend, "instruction": number})


_ABSENT = (
    Rule(
        "missing-operator",
        Level.ERROR,
        "the runtime has no operator {operator}",
        "loading aborts with: Missing operator: {operator}",
        "keep the operator out of the delegate (VulkanPartitioner's operator_blocklist), or use a runtime that has it",
        missing,
    ),
    Rule(
        "claimed-operator",
        Level.ERROR,
        "the exporter puts {operator} into delegates, but the runtime has no such operator",
        "loading aborts with: Missing operator: {operator}",
        "block it at export (VulkanPartitioner's operator_blocklist), so that a kernel outside of the delegate runs it",
        claimed,
    ),
)
#: What stands outside of delegates, of whichever backend.
KERNELS = (
    Rule(
        "missing-kernel",
        Level.ERROR,
        "no library of the release has the kernel {kernel}",
        "loading the method stops: the operator is missing",
        "link a library that registers the kernel, or decompose the operator before export",
        missing_kernel,
    ),
    Rule(
        "kernel-library",
        Level.NOTE,
        "the kernel {kernel} is only in the library {library}",
        "an app that does not link this library cannot load the method",
        "link the library {library}",
        other_library,
    ),
    Rule(
        "other-backend",
        Level.NOTE,
        "the delegate belongs to {backend} and is not checked",
        "the method loads only if this backend is linked, too",
        "link {backend}",
        other_backend,
    ),
)
RULES = (*_ABSENT, *KERNELS)
