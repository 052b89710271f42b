"""The generated tables of docs/numerics.md, check.md, cli.md, modules.md, json.md and others: rules, options, keys...

python docs/tables.py          says whether a table is out of date
python docs/tables.py --write  writes the tables again

A table stands between ``<!-- table: NAME -->`` and ``<!-- end -->``; `page_tables` makes them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT / "docs") not in sys.path:  # a test loads this file by its path
    sys.path.insert(0, str(ROOT / "docs"))

from page_tables import cli_options, devices, json_keys, modules, operators, python_api, runtime  # noqa: E402

PAGE = ROOT / "docs" / "numerics.md"
PAGES = (
    PAGE,
    *(
        ROOT / "docs" / f"{name}.md"
        for name in ("check", "cli", "modules", "own-kernels", "json", "runtimes", "python")
    ),
)
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.S)

#: The name of a table in its page -> what makes it.
TABLES: dict[str, Callable[[], str]] = {
    make.__name__: make
    for make in (
        devices.profiles, devices.measured, devices.counts, devices.recordings,
        operators.padding, operators.floats, operators.defects,
        runtime.rules, runtime.runtimes, runtime.libraries,
        modules.modules, modules.module_sizes, modules.packings, modules.kernel_keys,
        json_keys.json_verbs, json_keys.json_objects, python_api.python_api,
    )
} | cli_options.tables()  # fmt: skip


def renewed(text: str) -> str:
    """The page with every table as it should be."""
    return _TABLE.sub(lambda m: m[1] + TABLES[m[2]]() + m[3], text)


def main() -> int:
    stale = 0
    for page in PAGES:
        old = page.read_text()
        new = renewed(old)
        if new == old:
            continue
        if "--write" in sys.argv[1:]:
            page.write_text(new)
            print(f"wrote {page.name}")
        else:
            print(f"{page.name}: a table is stale; fix: python docs/tables.py --write")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
