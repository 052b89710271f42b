"""The job that copies an input: all of its words and none beyond, a task for each share."""

from __future__ import annotations

import planned
import pytest

from refsim.exec.cpu import isa
from refsim.exec.cpu.elementwise import kernel, prepack


@pytest.mark.parametrize("words", [1, 4, prepack.WORDS_PER_TASK, prepack.WORDS_PER_TASK + 1])
def test_every_word_is_copied_once(words: int) -> None:
    row = next(row for row in isa.ISAS if row.name == "avx2")
    with planned.processor("avx2") as names:
        job = prepack.copied(4 * words, "input 0", "value", row)
    (block,) = names.blocks
    given = dict(zip(kernel.LINEAR.names, block.tolist(), strict=True))
    assert (given["words"], given["words_per_task"]) == (words, prepack.WORDS_PER_TASK)
    assert job.tasks == (1 if words <= prepack.WORDS_PER_TASK else 2) and not job.scratch
