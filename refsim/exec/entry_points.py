"""Finds the executors of other packages by the entry points that these declare. Looked at only for such a name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from refsim.core.errors import ParameterError, PluginError, RefsimError
from refsim.exec import process
from refsim.exec.digest import files, package
from refsim.exec.executor import ExecutorInfo
from refsim.exec.isolated import IsolatedExecutor
from refsim.exec.plugin import PluginExecutor, calling

GROUP = "refsim.executors"
#: How long the import of a package may take.
IMPORT_S = 60.0


def names() -> list[str]:
    """The names of all executors that installed packages declare."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def open_named(name: str, arguments: str) -> IsolatedExecutor | None:
    """The executor of this name, in a process of its own; None if no package declares one.

    PluginError, which names the distribution, if it cannot be imported or opened.
    """
    if not entry_points(group=GROUP, name=name):
        return None
    _entry(name)
    whole = f"{name}:{arguments}" if arguments else name
    return IsolatedExecutor(whole, opened, name, arguments, whole, foreign=True).open()


def opened(name: str, arguments: str, whole: str) -> PluginExecutor:
    """The executor, in this process."""
    entry = _entry(name)
    plugin = calling(_label(entry), f"opening {whole}", _loaded(entry), arguments)
    return PluginExecutor(plugin, whole, _label(entry))


def executors(reserved: Collection[str]) -> list[ExecutorInfo]:
    """One for each name. Packages are imported, each in a process of its own, and nothing is opened."""
    found = []
    for name in names():
        try:
            if name in reserved:
                raise PluginError(_label(_entry(name)), "the name is refsim's own", need="another name")
            text = process.call(describe, name, where=f"executor {name}", seconds=IMPORT_S)
            found.append(ExecutorInfo(name, True, text))
        except RefsimError as error:
            found.append(ExecutorInfo(name, False, str(error)))
    return found


def fingerprint(name: str, arguments: str) -> str:
    """SHA-256 of the package and its version, and of the file or folder that the arguments name, if they name one."""
    entry = _entry(name)
    named = Path(arguments) if arguments else None
    inside = [] if named is None else [named, *named.rglob("*")] if named.is_dir() else [named]
    parts = (_distribution(entry), entry.value, package(entry.module), files(inside))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def describe(name: str) -> str:
    """The distribution, and the first line of what the callable says of itself."""
    entry = _entry(name)
    about = (_loaded(entry).__doc__ or "").strip().partition("\n")[0]
    return f"{_distribution(entry)}: {about}" if about else _distribution(entry)


def _entry(name: str) -> EntryPoint:
    """The entry point of a name, which only one distribution may declare."""
    found = list(entry_points(group=GROUP, name=name))
    if not found:
        raise ParameterError("executor", "unknown", got=repr(name), need=", ".join(names()))
    if len(found) > 1:
        who = " and ".join(sorted(map(_distribution, found)))
        raise PluginError(f"executor {name}", "several distributions have the name", got=who, need="one")
    return found[0]


def _loaded(entry: EntryPoint) -> Callable[[str], Any]:
    function = calling(_label(entry), f"the import of {entry.value}", entry.load)
    if not callable(function):
        raise PluginError(_label(entry), f"{entry.value} cannot be called", got=type(function).__name__)
    return function


def _distribution(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "unknown distribution"


def _label(entry: EntryPoint) -> str:
    return f"executor {entry.name} of {_distribution(entry)}"
