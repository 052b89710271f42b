"""What docs/python.md says: every public name with its docstring, and those of its methods."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import refsim


def python_api() -> str:
    """A section for each public name, classes with their public methods."""
    return "\n" + "\n\n".join(text for name in refsim.__all__ for text in _section(name)) + "\n\n"


def _section(name: str) -> Iterator[str]:
    held = getattr(refsim, name)
    yield f"### {name}"
    if inspect.isroutine(held):
        yield f"`refsim.{name}{_signature(held)}`"
    yield from _blocks(inspect.getdoc(held) if callable(held) else _comment(name, held))
    for method, value in vars(held).items() if inspect.isclass(held) else ():
        function = getattr(value, "__func__", getattr(value, "fget", getattr(value, "func", value)))
        if method.startswith("_") or not inspect.isfunction(function) or not function.__doc__:
            continue
        plain = isinstance(vars(held)[method], property) or hasattr(value, "func")
        yield f"**`{name}.{method}{'' if plain else _signature(function)}`**"
        yield from _blocks(inspect.getdoc(function))


def _signature(function: Any) -> str:
    """The parameters with their defaults; types stand in the source."""
    shown = inspect.signature(function)
    parts = [one.replace(annotation=inspect.Parameter.empty) for one in shown.parameters.values()]
    kept = [one for one in parts if one.name not in ("self", "cls")]
    return str(shown.replace(parameters=kept, return_annotation=inspect.Signature.empty))


def _comment(name: str, held: Any) -> str:
    """The comment above a name that is a value, or the docstring of its type."""
    home = inspect.getsource(__import__(f"refsim.{refsim._HOME[name]}", fromlist=[name]))
    found = re.search(rf"((?:^#:.*\n)+){name}\b", home, re.M)
    return re.sub("^#: ?", "", found[1], flags=re.M).strip() if found else inspect.getdoc(type(held)) or ""


def _blocks(text: str | None) -> Iterator[str]:
    """Paragraphs, and examples as blocks of code."""
    for block in re.split(r"\n\n+", (text or "").strip()):
        if block.lstrip().startswith(">>>"):
            yield f"```python\n{inspect.cleandoc(block)}\n```"
        else:
            yield block.replace("``", "`")
