"""Run the cells of the notebooks in docs/, and compare or renew their outputs.

python docs/notebooks.py          says which notebooks no longer show what their cells give
python docs/notebooks.py --write  writes what they give now

Cells are run as they stand, without Jupyter: Python, and lines ``!refsim ...``. An output is what a cell prints, and
the value of its last line: as SVG if it can be drawn, else its ``repr``.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: A verb without the lines that it prints where it takes long, as on a busy machine.
VERB = """
import sys
from refsim.cli import main
from refsim.cli.kit import progress
progress.FIRST_LINE = 1e6
sys.exit(main())
"""
NOTEBOOKS = tuple(sorted((ROOT / "docs").glob("*.ipynb")))


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with fresh outputs; the working directory is the root of the checkout, and stays so."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    with _chdir(ROOT):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                count += 1
                cell = {
                    **cell,
                    "execution_count": count,
                    "outputs": _outputs("".join(cell["source"]), names, count),
                }
            cells.append(cell)
    return {**notebook, "cells": cells}


@contextlib.contextmanager
def _chdir(path: Path) -> Any:
    """contextlib.chdir, which Python 3.10 lacks."""
    before = Path.cwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


def _outputs(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    printed = io.StringIO()
    value = None
    if source.startswith("!"):
        printed.write("".join(map(_command, source.splitlines())))
    else:
        tree = ast.parse(source)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, "<cell>", "exec"), names)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    found: list[dict[str, Any]] = []
    if printed.getvalue():
        found.append(
            {"name": "stdout", "output_type": "stream", "text": printed.getvalue().splitlines(keepends=True)}
        )
    if value is not None:
        drawn = getattr(value, "_repr_svg_", None)
        data = {"image/svg+xml": drawn().splitlines(keepends=True)} if drawn else {}
        data["text/plain"] = ["a picture"] if drawn else repr(value).splitlines(keepends=True)
        found.append(
            {"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"}
        )
    return found


def _command(line: str) -> str:
    """What a line ``!refsim ...`` prints."""
    name, *arguments = shlex.split(line.removeprefix("!"))
    if name != "refsim":
        raise ValueError(f"not a refsim command: {line}")
    wide = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-c", VERB, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=wide)
    return done.stdout + done.stderr


def text(notebook: dict[str, Any]) -> str:
    """A notebook as its file holds it."""
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    stale = 0
    for path in NOTEBOOKS:
        fresh = text(executed(json.loads(path.read_text(encoding="utf-8"))))
        if "--write" in sys.argv[1:]:
            path.write_text(fresh, encoding="utf-8")
        elif fresh != path.read_text(encoding="utf-8"):
            stale += 1
            print(f"{path.name}: its cells give something else now; fix: python docs/notebooks.py --write")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
