"""golden list and golden show: a case is found by what it is like, and each wrong case says what it is like."""

from __future__ import annotations

import pytest

from refsim.cli._golden_cases import ASKED
from refsim.core.layout import layout
from refsim.golden.named import open_case
from refsim.golden.rules import RULES, case

CONV = "q8ta_conv2d_dw"


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        (("--kernel", "3x3", "--stride", "2"), {"kernel_size": (3, 3), "stride": (2, 2)}),
        (("--stride", "2x1", "--dilation", "1"), {"stride": (2, 1), "dilation": (1, 1)}),
        (("--activation", "relu", "--where", "in_zp=-1"), {"activation": "relu", "in_zp": -1}),
        (("--where", "bias=true"), {"bias": True}),
    ],
)
def test_cases_are_listed_by_their_parameters(
    given: tuple[str, ...], fits: dict[str, object], refsim
) -> None:
    found = {row["case"] for row in refsim(f"golden list {CONV}", *given, "--json").json["cases"]}
    every = {f"{CONV}/{number:04}": case(CONV, number) for number in range(RULES[CONV].count)}
    assert found == {
        name for name, one in every.items() if fits.items() <= {**one.params, **one.features}.items()
    }
    assert found


def test_cases_are_listed_by_shape_layout_and_name(refsim) -> None:
    rows = refsim("golden list", "q8ta_add/00*", "-s", "*x8x*x*", "-l", "4C", "--json").json["cases"]
    assert rows and all(row["case"].startswith("q8ta_add/00") for row in rows)
    for row in rows:
        held = open_case(row["case"]).bound
        assert layout("4C") in {desc.layout for desc in held.call.tensors.values()}
        assert any(desc.shape[-3:-2] == (8,) for desc in held.call.descs.values())
        assert row["configuration"] == held.case.configuration


def test_a_long_list_is_cut(refsim) -> None:
    done = refsim("golden list --op q8ta_relu --limit 3")
    lines = [line for line in done.out.splitlines() if line.startswith("q8ta_relu/")]
    assert len(lines) == 3 and done.out.splitlines()[-1] == f"{RULES['q8ta_relu'].count} cases"
    refsim("golden list nonesuch").refused("golden list: no case fits; got nonesuch")
    refsim(f"golden list {CONV} --where x").refused("not NAME=VALUE")


def test_every_option_asks_for_a_parameter_of_some_operator() -> None:
    held = {name for op in RULES for name in case(op, 0).params}
    assert set(ASKED.values()) <= held


@pytest.mark.parametrize("verb", [("golden", "show"), ("inspect",)])
def test_a_case_is_shown(verb: tuple[str, ...], refsim) -> None:
    found = refsim(*verb, "q8ta_conv2d_pw/258", "--json").json
    one = case("q8ta_conv2d_pw", 258)
    assert found["call"]["configuration"] == one.configuration and found["call"]["data"]["seed"] == one.seed
    assert [row["name"] for row in found["call"]["tensors"]] == ["x", "out"]
    done = refsim(*verb, "q8ta_conv2d_pw/258")
    assert done.status == 0 and "run it: refsim replay q8ta_conv2d_pw/258" in done.out
    refsim(*verb, "q8ta_conv2d_pw/99999").refused("no such case")
