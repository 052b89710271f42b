"""Runs in a mutated copy: reads cases, runs them on one executor, writes what came out."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from refsim.case import bind
from refsim.errors import RefsimError
from refsim.executor import executor_named
from refsim.golden.casefile import read_folder
from refsim.golden.store import parse


def main(folder: str, executor: str, mode: str) -> None:
    """Each ``N`` in ``folder`` is a case; ``N.out`` becomes its raw output, ``N.error`` what stopped it.

    ``mode`` ``drawn`` binds the case's line instead of reading its files; ``after`` reads results once the next case
    has run too.
    """
    runner = executor_named(executor)
    held = None
    for path in sorted(p for p in Path(folder).iterdir() if p.is_dir()):
        try:
            if mode == "drawn":
                info = json.loads((path / "line.json").read_text())
                bound = bind(parse(info["op"], info["line"], str(path)).case)
            else:
                bound = read_folder(path).bound
            out = runner.run_call(bound.call, bound.inputs)
        except RefsimError as error:
            path.with_suffix(".error").write_text(f"{type(error).__name__}: {error}")
            continue
        if mode == "after":
            if held is not None:
                _write(*held)
            held = (path, out.raw)
        else:
            _write(path, out.raw)
    if held is not None:
        _write(*held)


def _write(path: Path, raw: np.ndarray) -> None:
    path.with_suffix(".out").write_bytes(raw.tobytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
