"""Edits of what the host does: the words that it launches a kernel with, and the constants that it lays out.

A function of the host is edited as a kernel is. What it then gives is a launch with other words or fewer work items, or
a buffer with other words; edits that give the same are tried once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np

from refsim.bytediff.search import launched
from refsim.bytediff.search.bench import Step
from refsim.bytediff.search.device import DeviceEdit, words_of
from refsim.bytediff.search.loaded import BYTES, NIBBLES, buffers, misplaced
from refsim.bytediff.search.schema import KernelEdit, KernelSchema
from refsim.bytediff.search.weights import NIBBLES_WRONG
from refsim.bytediff.search.words import class_of, place_of
from refsim.core.launch import Launch

#: Kinds of edits that say how a kernel computes, not what a host prepares.
_OF_KERNELS = (
    "type",
    "fused",
    "total",
    "relu",
    "unsigned",
    "lanes",
    "scaled bias",
    "order",
    "clamped twice",
    "squared",
)
#: A function of the host takes no more steps of loops.
MOST_STEPS = 100_000
#: Larger constants are not laid out otherwise: a wrong host may take many times the room, and each edit takes its time.
MOST_WORDS = 1 << 18


def edits(steps: list[Step]) -> Iterator[DeviceEdit]:
    """The edits of the functions that prepare each dispatch of a call."""
    for number, step in enumerate(steps):
        yield from _launches(number, step)
        yield from _constants(number, step)


@cache
def schema_of(function: FunctionType) -> KernelSchema | None:
    """The edits of a function of the host, and of what it calls; None of one that is made by another."""
    return None if function.__closure__ else KernelSchema(function, (), host=True)


def _made(function: Any, *given: Any) -> Iterator[tuple[KernelEdit, Any]]:
    """What a function gives with each of its edits, if it gives anything."""
    if (schema := schema_of(function)) is None:
        return
    for edit in schema.edits:
        if edit.made.kind in _OF_KERNELS:
            continue
        schema.select(edit)
        schema.left[0] = MOST_STEPS
        try:
            made = schema.run(*given)
        except Exception:  # whatever stops a wrong host: it launches nothing
            continue
        finally:
            schema.select(None)
        yield edit, made


def _launches(number: int, step: Step) -> Iterator[DeviceEdit]:
    right, row = step.launch, step.kernel
    classes, seen = _classes(step), set[Any]()
    for edit, made in _made(row.launch, step.call):
        if (
            not isinstance(made, Launch)
            or len(made.push) != len(right.push)
            or len(made.spec) != len(right.spec)
        ):
            continue
        push, spec = (
            {name: new for name, old, new in zip(names, held, given, strict=True) if old != new}
            for names, held, given in (
                (row.push.names, right.push, made.push), (row.spec.names, right.spec, made.spec),
            )
        )  # fmt: skip
        # a shader that has its own workgroup and tile knows nothing of them but the grid
        covered = replace(right, grid=made.grid).reached
        x, y, z = (max(0, min(size)) for size in zip(made.reached, covered, right.reached, strict=True))
        fewer = (x, y, z) != right.reached
        key = (tuple(push.items()), tuple(spec.items()), x, y, z)
        if key in seen or not (push or spec or fewer):
            continue
        seen.add(key)
        told = [classes[name] for name in (*push, *spec) if name in classes]
        name = told[0] if told else "last tile missing" if fewer and not (push or spec) else class_of(edit)
        place = place_of(edit)
        yield DeviceEdit(
            name, place.edit, push, spec, only=number, reached=(z, y, x) if fewer else None, place=place
        )


def _classes(step: Step) -> dict[str, str]:
    """Of each word of a launch what a wrong one is called, but of those of a layout, which change together."""
    found: dict[str, str] = {}
    for edit in launched.edits([step], None):
        names = {*edit.push, *edit.spec}
        if edit.name != launched.ANOTHER_TENSORS and len(names) <= 2:
            found.update(dict.fromkeys(names - found.keys(), edit.name))
    return found


def _constants(number: int, step: Step) -> Iterator[DeviceEdit]:
    call = step.call
    for each in (each for each in buffers(step) if each.constant):
        right, seen = call.words(each.arg.name), set[bytes]()
        if right.size > MOST_WORDS:
            continue
        found = {BYTES: "weights in another order", NIBBLES: NIBBLES_WRONG}.get(each.holds) or misplaced(
            each.name
        )
        for edit, made in _made(call.op.prepack, call, each.arg.name, call.consts[each.arg.name]):
            if not isinstance(made, np.ndarray) or made.dtype.itemsize != 4 or np.array_equal(made, right):
                continue
            words = np.ascontiguousarray(made).view(np.int32).reshape(-1)
            if (key := words.tobytes()) not in seen:
                seen.add(key)
                place = place_of(edit)
                yield DeviceEdit(
                    found, place.edit, read={each.name: words_of(words)}, only=number, place=place
                )
