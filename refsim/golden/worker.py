"""A process that checks cases for `refsim.golden.verify`: tasks in on stdin, results out on stdout, JSON lines.

A case that takes the process down takes nothing else with it: the parent starts another for the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

from refsim.core.errors import RefsimError
from refsim.golden.check import check_entry, check_stored, open_executors
from refsim.golden.store import Corpus, Entry


def main(root: str, names: list[str]) -> None:
    """Serve until stdin ends. Whatever else prints, prints to stderr."""
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)

    def emit(**line: Any) -> None:
        print(json.dumps(line), file=out, flush=True)

    corpus = Corpus(root)
    try:
        executors = open_executors(names)
    except RefsimError as error:
        emit(failed=str(error), status=error.exit_status)
        return
    emit(ready=True)
    entries: dict[str, dict[int, Entry]] = {}
    for text in sys.stdin:
        task = json.loads(text)
        op = task["op"]
        if op not in entries:
            entries = {op: {entry.number: entry for entry in corpus.entries(op)}}
        if task["kind"] == "bytes":
            for stored in corpus.stored(op):
                if stored.name in task["cases"]:
                    entry = entries[op].get(int(stored.name.rpartition("/")[2]))
                    emit(
                        case=stored.name,
                        results=[r.as_json() for r in check_stored(stored, entry, executors)],
                    )
            continue
        for name in task["cases"]:
            entry = entries[op][int(name.rpartition("/")[2])]
            emit(case=name, results=[r.as_json() for r in check_entry(entry, executors)])


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        main(sys.argv[1], sys.argv[2:])
