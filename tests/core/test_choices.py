"""What errors say of names that are not there."""

from __future__ import annotations

from refsim.core import choices

NAMES = ("cpu", "cpu:emulated", "gpu", "4W4C", "canonical")


def test_the_nearest_name_is_meant_in_any_case() -> None:
    assert [choices.nearest(name, NAMES) for name in ("cup", "4w4c", "Canonicle")] == [
        "cpu",
        "4W4C",
        "canonical",
    ]
    assert choices.nearest("bus", NAMES) is None and choices.meant("bus", NAMES) == ""
    assert (
        choices.need("cup", NAMES[:3], "or a file") == "cpu, cpu:emulated, gpu, or a file; did you mean cpu?"
    )


def test_of_numbered_names_the_nearest_number_is_meant() -> None:
    values = ("delegate0_v74", "delegate0_v76", "delegate0_v87", "delegate1_v75")
    assert choices.nearest("delegate0_v77", values) == "delegate0_v76"
    assert choices.nearest("delegate0_v75", values) == "delegate0_v74"
    assert choices.nearest("avx51", ("avx2", "avx512")) == "avx512"  # a letter is missing, not counted


def test_long_lists_are_cut_after_a_name_and_short_ones_are_not() -> None:
    many = [f"name{number}" for number in range(100)]
    text = choices.listed(many)
    assert text.startswith("name0, name1, ") and text.endswith(f", ... and {100 - text.count('name')} more")
    assert len(text) < choices.MOST_LISTED + 20 and choices.listed(many[:5]) == ", ".join(many[:5])
    assert choices.listed(["x" * 500]) == "x" * 500  # one name is no list
    assert choices.need("nam99", many).endswith("; did you mean name99?")  # of those that are not shown, too


def test_parts_are_cut_only_as_far_as_they_must() -> None:
    assert (
        choices.cut("short", 10) == "short"
        and choices.cut("a" * 50 + "b" * 50, 23) == "a" * 10 + "..." + "b" * 10
    )
    text = choices.need("nam7", [f"name{number}" for number in range(30)])
    shorter = choices.cut(text, 70)
    assert len(shorter) <= 70 and shorter.endswith("; did you mean name7?")
    shown = shorter.partition(", ...")[0].count("name")
    assert f", ... and {30 - shown} more;" in shorter  # also where the list was cut before
    held = choices.fitted(["a" * 20, "b" * 400, "c" * 100], 200)
    assert sum(map(len, held)) <= 200 and held[0] == "a" * 20 and held[2] == "c" * 100
    assert len(choices.fitted(["a" * 90] * 9, 10)) == 9  # something is left of each


def test_a_cut_list_says_how_many_more_there_are_and_how_to_see_them() -> None:
    assert choices.first("abc", 3) == "a, b, c" and choices.first("abc", 2) == "a, b, ... and 1 more"
    assert choices.first(range(9), 1, choices.IN_JSON) == "0, ... and 8 more (--json lists all)"
    assert choices.cut(choices.first(["name"] * 90, 60), 60) == "name, " * 7 + "... and 83 more"
