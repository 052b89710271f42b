"""What a failed comparison of tests says is what one needs to find the mistake."""

from __future__ import annotations

import told

from refsim.core.buffer import PackedBuffer
from refsim.ops.base.binding import bind
from refsim.ops.base.registry import OPS

BOUND = bind(OPS["q8ta_add"].bench)
EXPECTED = BOUND.call.expected(BOUND.inputs)


def _moved() -> PackedBuffer:
    """A buffer whose words all lie one place further."""
    actual = PackedBuffer(EXPECTED.desc)
    actual.words[:] = [*EXPECTED.words[1:], EXPECTED.words[0]]
    return actual


def test_buffers_say_how_many_bytes_and_why() -> None:
    said = told.buffers(EXPECTED, _moved(), BOUND)
    assert f"of {EXPECTED.raw.size} bytes differ" in said and "predicts every" in said


def test_an_assertion_on_buffers_says_it() -> None:
    try:
        assert _moved() == EXPECTED
    except AssertionError as error:
        assert "bytes differ" in str(error)
    else:
        raise AssertionError("they are not equal")


def test_choices_say_which_number_of_which_operator_and_which_file_chose_it() -> None:
    written = ["q8ta_add 1x4 to 1x4: linear", "  linear: 4 tasks, block_h=5"]
    found = [written[0], "  linear: 3 tasks, block_h=7"]
    assert told.choices(written, written, lambda *_: "x.py") == ""
    assert told.choices(written, found, lambda whose, *_: f"{whose[:8]}.py") == (
        "1 of 2 lines differ, first of q8ta_add 1x4 to 1x4: linear: "
        "3 was 4, block_h=7 was block_h=5; chosen in q8ta_add.py"
    )
    assert "1 lines are missing" in told.choices(written, found[:1], lambda *_: "x.py")
    assert (
        told.choice([1], [1], "x.py") == ""
        and told.choice([1], [2], "x.py") == "[1] instead of [2]; chosen in x.py"
    )
    assert "'nothing' is written" in told.choices(written[:1], found, lambda *_: "x.py")
