"""From a case to data: the same everywhere, legal, and of the style that was asked for."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from refsim.core.qmath import CANONICAL, NVIDIA
from refsim.core.rng import Rng
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target
from refsim.ops.base.traits import INTEGER_SUMS

WEIGHTED = OPS.of_family(*INTEGER_SUMS)


def digest(case: Case) -> str:
    bound = bind(case)
    sha = hashlib.sha256()
    for name, buffer in sorted(bound.inputs.items()):
        sha.update(name.encode() + buffer.raw.tobytes())
    for name, value in sorted(bound.call.consts.items()):
        sha.update(name.encode() + (b"" if value is None else value.tobytes()))
    return sha.hexdigest()


@pytest.mark.parametrize("name", OPS)
def test_a_case_always_has_the_same_data(name: str) -> None:
    first, second = (OPS[name].sample(Rng(17)) for _ in range(2))
    assert first == second
    assert digest(first) == digest(second)
    assert digest(replace(first, seed=first.seed + 1)) != digest(first)


@pytest.mark.parametrize("name", OPS)
def test_samples_are_legal_small_and_varied(name: str) -> None:
    """Every seed binds; among a few there are paddings, several layouts and shapes, and batches."""
    shapes, layouts = set(), set()
    for seed in range(120):
        bound = bind(OPS[name].sample(Rng(seed)))
        assert bound.call.out.nbytes <= 1 << 18
        shapes.add(bound.call.out.shape)
        layouts.add((*(d.layout.name for d in bound.call.descs.values()), bound.call.out.layout.name))
    assert len(shapes) > 40
    assert len(layouts) >= min(3, len(OPS[name].output.layouts) * len(OPS[name].args[0].layouts))


def test_constants_do_not_depend_on_the_target() -> None:
    case = WEIGHTED[0].sample(Rng(3))
    plain, other = bind(case, Target(CANONICAL)), bind(case, Target(NVIDIA))
    for name, value in plain.call.consts.items():
        assert np.array_equal(value, other.call.consts[name])
    assert plain.inputs == other.inputs
    assert other.call.target.profile is NVIDIA


def test_weight_sums_are_the_sums_of_the_weights() -> None:
    """The exporter's sums, which the kernels trust: over every axis but the output channel's."""
    for op in WEIGHTED:
        (axis,) = (arg.channels for arg in op.args if arg.name == "weight")
        for seed in range(20):
            consts = bind(op.sample(Rng(seed))).call.consts
            weight = np.moveaxis(consts["weight"].astype(int), axis, 0)
            assert np.array_equal(weight.reshape(len(weight), -1).sum(1), consts["weight_sums"])


def test_outputs_use_the_range() -> None:
    """Random constants are scaled so that outputs neither all saturate nor all collapse."""
    for op in WEIGHTED:
        inner = total = 0
        for seed in range(30):
            bound = bind(op.sample(Rng(seed)))
            values = bound.call.expected(bound.inputs).unpack()
            inner += int((np.abs(values.astype(int)) < 127).sum())
            total += values.size
        assert inner > total / 4, op.name
