"""A kernel that writes outside of its buffer: that is reported, and what it wrote inside is compared all the same."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pytest
from examples import UNARY

from refsim.core.buffer import GUARD_WORDS, PackedBuffer
from refsim.core.errors import GuardError, RawBufferError
from refsim.exec.emulated import EmulatedExecutor
from refsim.golden.check import check_stored
from refsim.golden.named import open_case
from refsim.golden.store import Corpus, default_root
from refsim.ops.base.registry import OPS

CASE = f"{UNARY.name}/0003"


def two_dispatches() -> str:
    """A stored case of the first operator whose calls take two dispatches."""
    corpus = Corpus(default_root())
    for op in OPS:
        for name in corpus.stored_names(op)[:1]:
            if len(corpus.stored_case(name).bound.call.dispatches()) == 2:
                return name
    raise AssertionError


@pytest.fixture
def writing(miscomputed) -> Callable[..., None]:
    """Lets a kernel write a word outside of its output, and perhaps reverse its bytes."""

    def let(shader: str, at: int, reverse: bool = False) -> None:
        def spoil(out: PackedBuffer) -> None:
            if reverse:
                out.words.byteswap(inplace=True)
            out.memory[at] = 7
            out.check_guards(shader)

        miscomputed(shader, spoil)

    return let


@pytest.fixture
def broken(writing) -> None:
    writing(UNARY.name, -GUARD_WORDS + 2, reverse=True)


def test_replay_reports_both(broken, refsim) -> None:
    done = refsim(f"replay {CASE} -x cpu:emulated")
    assert done.status == 1
    assert "wrote behind the buffer" in done.out and "byte order: output bytes reversed" in done.out
    found = refsim(f"replay {CASE} -x cpu:emulated --json").json
    row = found["executors"]["cpu:emulated"]
    assert found["same"] is False and "wrote behind" in row["guard"] and row["report"]["causes"]


def test_golden_check_reports_both(broken) -> None:
    stored = open_case(CASE)
    _, result = check_stored(stored, None, {"cpu:emulated": EmulatedExecutor()})
    assert result.status == "error" and "wrote behind the buffer" in result.message
    assert result.differing > 0
    assert any(cause.name == "byte order" for cause in result.causes)


def test_compare_goes_on_and_reports_both(broken, refsim, mixed: str) -> None:
    done = refsim(f"compare {mixed} -x cpu,cpu:emulated")
    assert done.status == 1 and f"{UNARY.name}: wrote behind the buffer" in done.out
    assert "14 buffers on" in done.out and "byte order: output bytes reversed" in done.out
    content = refsim(f"compare {mixed} -x cpu,cpu:emulated --json").json
    assert content["same"] is False and len(content["guards"]) == 1 and content["first"]


def test_a_write_outside_alone_is_a_difference(refsim, mixed: str, writing) -> None:
    writing(UNARY.name, 0)
    done = refsim(f"compare {mixed} -x cpu,cpu:emulated --json")
    assert done.status == 1 and done.json["first"] is None and "wrote before" in done.json["guards"][0]
    done = refsim(f"replay {CASE} -x cpu:emulated --json")
    assert done.status == 1 and done.json["same"] is False


def test_the_second_dispatch_runs_though_the_first_wrote_outside(writing) -> None:
    stored = open_case(two_dispatches())
    first = stored.bound.call.dispatches()[0].launch.shader
    writing(first, -1)
    with pytest.raises(GuardError, match=f"{first}: wrote behind") as raised:
        EmulatedExecutor().run_call(stored.bound.call, stored.bound.inputs)
    assert raised.value.buffer == stored.expected


def test_the_error_travels_with_its_buffer() -> None:
    buffer = PackedBuffer.pack(np.ones((1, 4, 2, 2), np.int8), "4W4C")
    buffer.memory[0] = 1
    with pytest.raises(RawBufferError) as raised:
        buffer.check_guards("kernel")
    again = pickle.loads(pickle.dumps(raised.value))
    assert type(again) is GuardError and str(again) == str(raised.value) and again.buffer == buffer
