"""refsim shaders --case: patterns that fit no case, and runs in which nothing is left to run or to say."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from modules import build
from needed import needs_device

from refsim.exec.factory import executor_named
from refsim.golden.store import default_root
from refsim.modules import verification

UPSTREAM = default_root() / "upstream"
OWN = Path(__file__).parents[1] / "modules" / "own" / "right"


@pytest.fixture(scope="module")
def device() -> None:
    """A Vulkan device that runs modules."""
    with needs_device():
        executor_named(f"spv:{build.BINARIES}").close()


@pytest.mark.parametrize(
    ("pattern", "operator", "said"),
    [
        (
            "upstream/*_N2_*",
            "q8ta_relu",
            "it fits cases of q8ta_conv2d_general, q8ta_conv2d_im2col, q8ta_con",
        ),
        ("q8ta_ad/00*", "q8ta_add", "; did you mean q8ta_add?"),
        ("q8ta_ad/9999", "q8ta_add", "or upstream/041*; did you mean q8ta_add?"),
        ("q8ta_add/0001", "q8ta_relu", "it fits cases of q8ta_add"),
        ("nothing", "q8ta_relu", "such as q8ta_relu/00*"),
    ],
)
def test_what_is_said_of_a_pattern(pattern: str, operator: str, said: str) -> None:
    text = str(verification.no_case(pattern, [operator], UPSTREAM))
    assert text.startswith(f"--case: no such case of {operator}; got {pattern!r}, need ") and said in text
    examples = re.findall(r"such as (\S+?)(?: or (\S+?))?(?:;|$)", text)[0]
    held = verification.names(operator, UPSTREAM)
    for example in filter(None, examples):
        assert example != pattern and any(verification.fnmatchcase(name, example) for name in held)
    assert ("did you mean" in text) == said.endswith("?")


@pytest.mark.long
@pytest.mark.usefixtures("device")
def test_a_variant_without_a_case_is_not_right(refsim) -> None:
    done = refsim(f"shaders {build.BINARIES} q8ta_conv2d_pw --case", "upstream/*_N2_*")
    assert done.status == 0 and "right: 1 same; 1 case of 1 operator" in done.out
    assert "right: ;" not in done.out
    assert done.out.count("nothing ran: no case of q8ta_conv2d_pw that 'upstream/*_N2_*' fits") == 2
    content = refsim(f"shaders {build.BINARIES} q8ta_conv2d_pw --case", "upstream/*_N2_*", "--json").json
    assert [(row["cases"], row["same"]) for row in content["variants"]] == [(0, False)] * 2
    assert content["same"] is True and content["cases"] == 1


@pytest.mark.usefixtures("device")
def test_nothing_ran_at_all(refsim) -> None:
    """The folder's kernel takes other layouts, so that the only case of the pattern is skipped."""
    done = refsim(f"shaders {OWN} q8ta_conv2d_pw --case", "upstream/*_4W4C_4C", "--json")
    assert done.status == 2 and "no case ran" in done.err


@pytest.mark.long
@pytest.mark.usefixtures("device")
def test_wrong_cases_without_a_common_cause(refsim, tmp_path: Path) -> None:
    shutil.copytree(OWN, tmp_path / "own")
    table = tmp_path / "own" / "refsim.toml"
    table.write_text(table.read_text().replace('"o i/4 i%4"', '"o i"'))
    done = refsim(f"shaders {tmp_path}/own q8ta_conv2d_pw --count 3")
    assert done.status == 1 and re.search(r"^0 of \d+ +no known cause fits$", done.out, re.M)
