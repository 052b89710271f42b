"""bench.house counts code lines, long functions and class names of made-up files."""

from __future__ import annotations

from pathlib import Path

from bench.house import LONG, class_names, code_lines, long_functions


def test_comments_docstrings_and_blank_lines_are_not_code() -> None:
    text = '"""Page.\n\nMore.\n"""\n\n# y\nx = """a\n\nb"""  # one string\n\ndef f():\n    """Says."""\n    return x\n'
    assert code_lines(text) == ['x = """a', "", 'b"""  # one string', "def f():", "    return x"]


def test_long_functions_and_shared_class_names(tmp_path: Path) -> None:
    body = "    x = 1\n"
    (tmp_path / "a.py").write_text(f"class Row: ...\nclass A: ...\ndef f():\n{body * LONG}")
    (tmp_path / "b.py").write_text(f"class Row: ...\ndef g():\n{body * (LONG - 1)}")
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    assert list(long_functions(tmp_path, files)) == [f"a.py:3 f ({LONG + 1})"]
    assert class_names(files) == {"Row": files}
