"""What docs/check.md says: the rules of `refsim check`, and the libraries that a runtime links."""

from __future__ import annotations

import re

from page_tables.markdown import markdown
from refsim.check.rules import rules as all_rules
from refsim.check.runtime import releases, runtime


def rules() -> str:
    """Every rule of `refsim check`; in one row those of one name that say the same of different arguments."""
    rows: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    every = {rule: None for name in releases() for rule in all_rules(runtime(name))}
    for rule in every:
        cells = (f"`{rule.name}`", rule.level.value, *map(_sentence, (rule.what, rule.why, rule.fix)))
        alike = tuple(re.sub(r"(argument) \d+", r"\1", cell) for cell in cells)
        rows.setdefault(alike, []).append(cells)
    told = (alike if len(set(found)) > 1 else found[0] for alike, found in rows.items())
    return markdown(("rule", "level", "finds", "why", "fix"), told)


def _sentence(text: str) -> str:
    """What stands in braces is a fact of the place that was found."""
    spelled = re.sub(r"\{a(\d+)\}", r"*argument \1*", text.replace("{a-1}", "*output*"))
    return re.sub(r"\{(\w+)\}", r"*\1*", spelled).replace("|", "\\|")


def runtimes() -> str:
    """Every runtime that is described."""
    described = map(runtime, releases())
    ran = {True: "yes", False: "no"}
    rows = ((f"`{row.name}`", row.title, ran[row.measured], row.source) for row in described)
    return markdown(("name", "what it is", "files were run on it", "described from"), rows)


def libraries() -> str:
    """The libraries of kernels that run outside of delegates."""
    described = runtime()
    linked = {True: "yes", False: "no"}
    rows = ((f"`{n}`", len(k), linked[n in described.standard]) for n, k in described.kernels.items())
    return markdown(("library", "kernels", "taken to be linked"), rows)
