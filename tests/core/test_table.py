"""Tables and sentences in a width: nothing is cut off, lost without a word, or broken inside a word."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from refsim.core import table

COLUMNS = ("node", "operator", "what", "bytes")
ROWS = [
    ["1", "q8ta_add", "the zero point of b is taken from a", "262144"],
    ["12", "q8ta_conv2d_transposed", "same", "4096"],
]


def lines(width: int | None, drop: tuple[str, ...] = (), rows: list[list[str]] = ROWS) -> list[str]:
    return list(table.lines(COLUMNS, rows, width=width, drop=drop, right=("node", "bytes")))


def test_without_a_width_the_table_is_as_wide_as_its_content() -> None:
    assert lines(None) == [
        "node  operator                what                                  bytes",
        "   1  q8ta_add                the zero point of b is taken from a  262144",
        "  12  q8ta_conv2d_transposed  same                                   4096",
    ]
    assert lines(73) == lines(None) and len(lines(72)) == 4


def test_columns_go_in_the_order_that_the_table_gives() -> None:
    assert lines(50, drop=("what", "node")) == [
        "node  operator                 bytes",
        "   1  q8ta_add                262144",
        "  12  q8ta_conv2d_transposed    4096",
        "not shown: what; a width of 62 shows all",
    ]
    assert lines(30, drop=("what", "node"))[0] == "operator                 bytes"
    assert lines(30, drop=("what", "node"))[-2:] == ["not shown: node, what; a width", "  of 62 shows all"]


def test_a_table_that_cannot_fit_has_a_line_per_column_and_all_of_them() -> None:
    assert lines(24, drop=("what",)) == [
        "node      1",
        "operator  q8ta_add",
        "what      the zero point",
        "          of b is taken",
        "          from a",
        "bytes     262144",
        "",
        "node      12",
        "operator  q8ta_conv2d_transposed",
        "what      same",
        "bytes     4096",
        "a width of 36 shows a",
        "  table",
    ]
    assert "what" not in "\n".join(table.lines(("node", "what"), [["1" * 30, ""]], width=24))


def test_letters_of_two_columns_are_counted_as_two() -> None:
    found = list(table.lines(("a", "b"), [["\u6f22\u5b57", "x"], ["e\u0301", "y"]]))
    assert found == ["a     b", "\u6f22\u5b57  x", "e\u0301     y"]


def test_long_words_fold_where_paths_and_names_have_joints() -> None:
    assert table.fold("in /home/.cache/refsim/native-c43146de588f3249", 26) == [
        "in /home/.cache/refsim/", "native-c43146de588f3249",
    ]  # fmt: skip
    assert table.fold("125 files; /home/.cache/refsim/numba-c203f44357f33489", 26) == [
        "125 files; /home/.cache/", "refsim/", "numba-c203f44357f33489",
    ], "not behind its first slash"  # fmt: skip
    assert table.fold("quantized_decomposed.dequantize_per_tensor.default", 24) == [
        "quantized_decomposed.", "dequantize_per_tensor.", "default",
    ]  # fmt: skip
    assert table.fold("mixed_ops.dump.zip,1.25", 12) == ["mixed_ops.dump.zip,1.25"]


def test_a_sentence_goes_on_further_in() -> None:
    assert table.sentence("  1. border padded with 0", 14) == ["  1. border", "    padded", "    with 0"]
    assert table.sentence("  as it   is", 14) == ["  as it   is"]


def test_a_folded_command_can_be_pasted() -> None:
    line = "  again: refsim run 'a model.pte' -i in.npz --json"
    assert table.command(line, 30) == [
        "  again:",
        "    refsim run 'a model.pte' \\",
        "      -i in.npz --json",
    ]
    assert table.command(line, 80) == [line]
    assert table.command("  a line without any", 12) == ["  a line", "    without", "    any"]


words = st.text(st.sampled_from("ab1_/.,; \u6f22"), max_size=40)


@settings(derandomize=True, database=None, max_examples=100)
@given(st.lists(st.tuples(words, words, st.integers(0, 10**12).map(str)), max_size=4), st.integers(1, 90))
def test_every_word_is_there_or_its_column_is_named(rows: list[tuple[str, ...]], width: int) -> None:
    columns = ("name", "long text", "count")
    found = list(table.lines(columns, rows, width=width, drop=("name",), right=("count",)))
    text = "\n".join(found)
    squeezed = "".join(text.split())
    left_out = "not shown:" in text
    for row in rows:
        assert row[2] in text.split()
        for name, cell in zip(columns[:2], row[:2], strict=True):
            for word in cell.split():
                assert all(piece in squeezed for piece in table._pieces(word)) or (
                    left_out and name == "name"
                )
    # a line that is too wide has one part that does not fold
    widest = max((table._longest(cell) for row in rows for cell in row), default=0)
    assert all(table.length(line) <= max(width, widest + len("long text") + table.GAP, 30) for line in found)
