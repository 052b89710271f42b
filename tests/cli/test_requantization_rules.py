"""replay --rule: kernels of another library against their own rule; NumPy alone plays the kernel, in ncnn's layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exec.fours_kernels import fours

from refsim.bytediff.search.bench import Bench
from refsim.bytediff.search.candidate import Candidate
from refsim.bytediff.search.device import DeviceEdit
from refsim.bytediff.search.whole import predicted
from refsim.core.errors import ParameterError
from refsim.golden.named import open_case
from refsim.ops.base.binding import ruled
from refsim.ops.base.requantization import RULES, requantization

CASE = "q8ta_conv2d_pw/0258"
F = np.float32


def kernel(bug: str = "") -> np.ndarray:
    """A pointwise convolution as ncnn computes it: reciprocal scales, halves away from 0, clamped to [-127, 127]."""
    bound = open_case(CASE).bound
    p: Any = bound.call.params
    x, weight = bound.inputs["x"].unpack().astype(np.int64), bound.call.consts["weight"]
    scales, bias = bound.call.consts["weight_scales"], bound.call.consts["bias"]
    assert weight is not None and scales is not None
    taps = weight[:, : x.shape[1]].astype(np.int64)
    if bug == "last channel":
        taps[:, -1] = 0
    acc = np.einsum("nchw,oc->nohw", x - p.in_zp, taps)
    back = F(1) / ((F(1) / F(p.in_scale)) * (F(1) / scales))
    real = acc.astype(F) * back[:, None, None] + (F(0) if bias is None else bias[:, None, None])
    if p.activation == "relu":
        real = np.maximum(real, F(0))
    real = real * (F(1) / F(p.out_scale))
    whole = np.trunc(real) + np.where(np.abs(real - np.trunc(real)) >= F(0.5), np.copysign(F(1), real), F(0))
    return np.clip(whole, -127, 127).astype(np.int8)


def replay(refsim: Any, path: Path, values: np.ndarray, *more: str, search: int = 0) -> Any:
    fours(values).tofile(path)
    given = ("--actual", path, "--actual-layout", "NC4HW4", "--search", str(search))
    return refsim(f"replay {CASE}", *given, "--json", *more)


def test_a_right_kernel_is_right_by_its_own_rule(tmp_path: Path, refsim) -> None:
    assert replay(refsim, tmp_path / "a.bin", kernel(), "--rule", "ncnn").status == 0
    assert replay(refsim, tmp_path / "a.bin", kernel(), "--rule", RULES["ncnn"]).status == 0
    told = replay(refsim, tmp_path / "a.bin", kernel())
    assert told.status == 1 and any("--rule ncnn" in line for line in told.json["of_run"])
    assert replay(refsim, tmp_path / "a.bin", open_case(CASE).expected.unpack(), "--rule", "ncnn").status == 1


@pytest.mark.search(10)
def test_a_bug_is_named_under_that_rule(tmp_path: Path, refsim) -> None:
    """The last of nine channels is the last word of channels."""
    found = replay(refsim, tmp_path / "a.bin", kernel("last channel"), "--rule", "ncnn", search=10)
    assert found.status == 1 and found.json["report"]["layout"] == "NC4HW4"
    first, second = found.json["report"]["causes"][:2]
    assert first["exact"] and second["exact"] and second["name"] == "reduction too short"
    assert first["place"]["file"] == "refsim/ops/q8ta_conv2d_pw.py"


@pytest.mark.parametrize(
    "rule",
    [
        *RULES,
        "clamp(trunc(round_up(relu(acc * sw) * sx) / so + bias / so) + zp, -128, 127)",
        "clamp(clamp(round_even(acc * (sw * sx) / so), -1e999, 1e999) + zp, -128, 127)",
    ],
)
@pytest.mark.parametrize("case", [CASE, "q8ta_linear/0017", "q8ta_conv2d_dw/0035"])
def test_an_edited_kernel_starts_from_the_rule(case: str, rule: str) -> None:
    """Without an edit it gives what the definition gives under the rule, in plain Python and compiled."""
    bound = ruled(open_case(case).bound, rule)
    bench = Bench(bound.call, {name: buffer.words for name, buffer in bound.inputs.items()})
    right = bound.call.expected(bound.inputs).words
    for limit in (1 << 40, -1):
        made = predicted(bench, Candidate(0, device=DeviceEdit("", "")), (0,), right, limit)
        assert made is not None and np.array_equal(made, right)


@pytest.mark.parametrize(
    "case", [CASE, "q8ta_conv2d/0200", "q8ta_linear/0017", "q8ta_conv2d_transposed/0010"]
)
def test_the_rule_of_executorch_is_what_its_operators_mean(case: str) -> None:
    stored = open_case(case)
    bound = ruled(stored.bound, "executorch")
    assert bound.call.expected(bound.inputs) == stored.expected


@pytest.mark.parametrize(
    "text", ["ncn", "acc *", "acc.real", "__import__('os')", "clamp(acc)", "acc ** 2", "[acc]",
             "acc if zp else 1", "1" * 400, "-" * 290 + "acc"]
)  # fmt: skip
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ParameterError):
        requantization(text)


def test_a_rule_of_many_calls_is_no_larger_as_python() -> None:
    text = "relu(" * 45 + "acc" + ")" * 45
    assert len(requantization(text).as_python({})) < 5 * len(text)


def test_a_rule_that_gives_no_int8_and_an_operator_without_sums_are_refused() -> None:
    bound = ruled(open_case(CASE).bound, "acc * sx")
    with pytest.raises(ParameterError, match="gives no int8"):
        bound.call.expected(bound.inputs)
    with pytest.raises(ParameterError, match="no integer sums"):
        ruled(open_case("q8ta_add/0235").bound, "ncnn")


def test_the_page_shows_the_rules() -> None:
    page = (Path(__file__).parents[2] / "docs" / "own-kernels.md").read_text()
    assert all(f"| `{name}` | `{text}` |" in page for name, text in RULES.items())
