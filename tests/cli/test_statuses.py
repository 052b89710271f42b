"""The way from a mistake to an exit status, and to a line that says what was probably meant."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from refsim.core.errors import MOST_IN_LINE, FormatError

MODELS = Path(__file__).parents[1] / "data" / "models"
MIXED, MIXED_IO = str(MODELS / "mixed_ops.pte"), str(MODELS / "mixed_ops.io.npz")
DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["rnu", MIXED], "run"),
        (["golden", "verfy"], "verify"),
        (["run", MIXED, "--exeutor", "cpu"], "--executor"),
        (["run", MIXED, "-i", MIXED_IO, "-x", "cpu:emulate"], "cpu:emulated"),
        (["run", MIXED, "-i", MIXED_IO, "--profile", "nvdia"], "nvidia"),
        (["run", MIXED, "-i", MIXED_IO, "--dump", "delegate0_v300", "OUT"], "delegate0_v30"),
        (["run", MIXED, "-i", MIXED_IO, "--dump", "q8ta_rellu", "OUT"], "q8ta_relu"),
        (["extract", MIXED, "-n", "delegate0_v300", "--random", "0", "-o", "OUT"], "delegate0_v30"),
        (["expose", MIXED, "--value", "delegate0_v300", "-o", "OUT"], "delegate0_v30"),
        (["locate", "-l", "4w4cc", "-s", "1,2,3,4", "--byte", "0"], "4W4C"),
        (["golden", "verify", "--isa", "avx22"], "avx2"),
        (["golden", "verify", "q8ta_ad"], "q8ta_add"),
        (["golden", "regen", "q8ta_ad", "--dry-run"], "q8ta_add"),
        (["golden", "export", "q8ta_ad", "--pte", "OUT"], "q8ta_add"),
        (["replay", "q8ta_ad/0001"], "q8ta_add/0001"),
        (["sweep", "q8ta_ad"], "q8ta_add"),
        (["demo", "mixed_op"], "mixed_ops"),
        (["inspect", MIXED, "--plan", "--route", "q8ta_ad=x"], "q8ta_add"),
    ],
)  # fmt: skip
def test_what_is_nearly_right_is_asked_back(arguments, meant: str, tmp_path: Path, refsim) -> None:
    done = refsim(*(str(tmp_path / "out") if word == "OUT" else word for word in arguments))
    done.refused(f"did you mean {meant}?")
    assert len(done.err) <= MOST_IN_LINE + 1 and not list(tmp_path.iterdir())


def test_a_list_of_choices_is_short(refsim) -> None:
    done = refsim("sweep", "nonesuch")
    done.refused(
        "no such operator (refsim sweep --help lists all); got nonesuch, need choose_qparams_affine, "
    )
    assert re.search(r", \.\.\. and \d+ more\n", done.err) and len(done.err) <= MOST_IN_LINE + 1


def test_no_line_is_longer_than_300_characters(refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    from refsim.cli import devices

    for error in (FormatError("f" * 900, "w" * 900, got="g" * 900, need="n" * 900), MemoryError("m" * 900)):

        def fail(error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(devices, "devices", fail)
        done = refsim("devices")
        assert done.status == 2 and len(done.err) <= MOST_IN_LINE + 1
    assert len(refsim("locate", "--" + "x" * 900).err) <= MOST_IN_LINE + 1


@pytest.mark.parametrize(
    "arguments",
    [("run", MIXED, "-i", MIXED_IO, "-x", "gpu"), ("golden", "verify", "q8ta_relu/1", "-x", "gpu")],
    ids=" ".join,
)
def test_a_missing_package_has_the_status_of_a_missing_device(
    arguments: tuple[str, ...], tmp_path: Path, refsim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever process finds out."""
    (tmp_path / "kp.py").write_text("raise ImportError('not in this test')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "kp", raising=False)
    done = refsim(*arguments)
    assert (done.status, done.out, done.err.count("\n")) == (3, "", 1)


def test_one_page_has_the_table() -> None:
    """What a number means is in one place of the code, and in one of the documentation."""
    from refsim.core import status

    rows = re.findall(r"^\| (\d+)(?:, (\d+))? \|", (DOCS / "cli.md").read_text().partition("\n## ")[0], re.M)
    listed = {int(number) for row in rows for number in row if number}
    assert listed == {number for number in vars(status).values() if isinstance(number, int)}
