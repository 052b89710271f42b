"""Damaged files of every kind give a typed error or a sound graph, quickly and in bounded memory."""

import random
import struct
import time
import tracemalloc
from pathlib import Path

import pytest

from refsim.core.errors import FormatError, GraphError, LimitError
from refsim.formats.pte.read import load, read_pte
from refsim.formats.vkgraph.read import read_blob

MODELS = Path(__file__).parents[1] / "data" / "models"
SEED = 20240607
#: what a word of a damaged file may say: nothing, absurd sizes, small lies
WORDS = (0, 1, 3, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF, 0x00010000)
#: a Python int in a tuple takes 36 bytes for the 4 of a file, an object some 250 for 8
MEMORY_FACTOR = 64


def delegate_of(name: str) -> bytes:
    pte = load(MODELS / f"{name}.pte")
    return bytes(pte.delegate_data(pte.plan().delegates[0]))


def read_all_pte(data: bytes) -> str:
    """Everything a caller can ask of a .pte; the outcome in a word."""
    try:
        pte = read_pte(data, "damaged")
        for plan in pte.program.plans:
            for _, blob in pte.blobs(plan):
                list(blob.constants)
    except (FormatError, LimitError, GraphError) as error:
        # GraphError: the key of a constant changed
        assert str(error).startswith("damaged: ")
        assert len(str(error)) < 500
        return type(error).__name__
    return "read"


def read_all_blob(data: bytes) -> str:
    try:
        read_blob(data, "damaged")
    except (FormatError, LimitError) as error:
        assert str(error).startswith("damaged: ")
        assert len(str(error)) < 500
        return type(error).__name__
    return "read"


PTE = (MODELS / "linear_head.pte").read_bytes()
#: program, then the first segment, which is the delegate; constants behind them hold no structure
PTE_STRUCTURE = struct.unpack_from("<Q", PTE, 24)[0] + len(delegate_of("linear_head"))
BLOB = delegate_of("mixed_ops")

CASES = [
    pytest.param(PTE, PTE_STRUCTURE, read_all_pte, id="pte"),
    pytest.param(BLOB, len(BLOB), read_all_blob, id="blob"),
]


@pytest.mark.parametrize(("data", "structure", "read"), CASES)
def test_truncation(data, structure, read):
    assert read(data) == "read"
    lengths = {*range(64), *range(64, structure, 37), *range(len(data) - 20, len(data))}
    outcomes = [read(data[:length]) for length in sorted(lengths)]
    # a blob ends with padding that no constant needs, so the last cuts are caught by its header alone
    assert set(outcomes) == {"FormatError"}


@pytest.mark.parametrize(("data", "structure", "read"), CASES)
def test_flipped_bytes(data, structure, read):
    draw = random.Random(SEED)
    outcomes = []
    for _ in range(1200):
        damaged = bytearray(data)
        for _ in range(draw.choice((1, 1, 1, 2, 8))):
            damaged[draw.randrange(structure)] ^= draw.randrange(1, 256)
        outcomes.append(read(bytes(damaged)))
    # both ways must occur, or the damage is not where the structure is
    assert {"read", "FormatError"} <= set(outcomes)


@pytest.mark.parametrize(("data", "structure", "read"), CASES)
def test_absurd_words(data, structure, read):
    draw = random.Random(SEED)
    outcomes = []
    for at in range(0, structure - 3, 4):
        damaged = bytearray(data)
        struct.pack_into("<I", damaged, at, draw.choice(WORDS))
        outcomes.append(read(bytes(damaged)))
    assert {"read", "FormatError", "LimitError"} <= set(outcomes)


@pytest.mark.parametrize(("data", "structure", "read"), CASES)
def test_random_bytes_behind_a_good_start(data, structure, read):
    draw = random.Random(SEED)
    for _ in range(300):
        keep = draw.randrange(structure)
        read(data[:keep] + draw.randbytes(len(data) - keep))


@pytest.mark.parametrize("at", [4, 5, 6, 7])
@pytest.mark.parametrize(("data", "structure", "read"), CASES)
def test_magic(data, structure, read, at):
    damaged = bytearray(data)
    damaged[at] ^= 0x20
    assert read(bytes(damaged)) == "FormatError"


@pytest.mark.parametrize(("data", "structure", "read"), CASES)
def test_memory_and_time_stay_bounded(data, structure, read):
    draw = random.Random(SEED + 1)
    worst_memory, worst_time = 0, 0.0
    tracemalloc.start()
    try:
        for _ in range(150):
            damaged = bytearray(data)
            struct.pack_into("<I", damaged, draw.randrange(structure - 3), draw.choice(WORDS))
            content = bytes(damaged)
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            start = time.process_time()
            read(content)
            worst_time = max(worst_time, time.process_time() - start)
            worst_memory = max(worst_memory, tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    assert worst_memory < MEMORY_FACTOR * structure + 2**20
    # of the processor, not of the clock: machines are shared. A hang takes far longer
    assert worst_time < 5
