"""Who writes what in kernels of another build: every word has one writer within the launch."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from refsim.core.buffer import offsets
from refsim.golden.rules import case
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.module_call import Host, HostFeatures, dispatches, why_not, written
from refsim.ops.base.registry import OPS

WITH_ROWS = sorted(name for name, op in OPS.items() if op.upstream.module is not None)


@pytest.mark.parametrize("images", [False, True], ids=["buffers", "images"])
@pytest.mark.parametrize("op", WITH_ROWS)
def test_every_word_has_a_writer_in_the_launch(op: str, images: bool) -> None:
    host = Host(HostFeatures(float_images=images))
    for number in range(0, 8 * len(OPS[op].layouts), 7):
        call = bind(case(op, number)).call
        if max(len(desc.shape) for desc in call.tensors.values()) > 4 or why_not(call, host):
            continue
        last = dispatches(call, host)[-1]
        found = written(call, host)
        assert (found.shader, found.global_size, found.local) == (last.shader, last.global_size, last.local)
        assert found.items.shape == (3, call.out.words) and found.items.min() >= 0
        assert (found.items.max(axis=1) < np.array(found.global_size)).all(), (number, found.global_size)
        if not call.defects and not op.startswith("q8ta_conv2d"):
            reached = np.unique(found.items, axis=1).shape[1]
            assert reached == prod(found.global_size) or "fours" in OPS[op].upstream.module.global_size, (
                number
            )


def test_an_example_by_hand() -> None:
    """q8ta_add walks blocks of 4 channels and 4 columns; then come rows, then batches."""
    shape = (2, 6, 3, 9)
    params = dict(a_scale=1.0, a_zp=0, b_scale=1.0, b_zp=0, out_scale=1.0, out_zp=0)
    call = bind(Case("q8ta_add", params, {"a": (shape, "4C"), "b": (shape, "4C")}, "4C")).call
    found = written(call)
    assert found.global_size == (2 * 3 * 3 * 2, 1, 1) and found.local == (64, 1, 1)
    byte = offsets(call.out)[1, 4, 2, 5]
    c4, w4, h, n = 1, 1, 2, 1
    assert found.items[0, byte // 4] == c4 + 2 * (w4 + 3 * (h + 3 * n))
