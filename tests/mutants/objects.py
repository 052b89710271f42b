"""Machine code that many copies of the sources share: a change touches few kernels, and all others compile to the same.

A copy's cache is named after all sources, so one changed line would have every kernel compiled anew. Here an entry is
named after the text that is compiled, which a kernel's emitter writes in milliseconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

#: The variable that tells processes where the shared folder is; without it nothing is shared.
FOLDER = "REFSIM_MUTANT_OBJECTS"


def install() -> None:
    """From now on, in this process, kernels are looked for in the shared folder before they are compiled."""
    folder = os.environ.get(FOLDER)
    if folder is None:
        return
    from refsim.exec.cpu import compiled  # of the copy: what it imports may be what was changed

    compiled._object = _shared(Path(folder), compiled._object)


def _shared(folder: Path, compile_one: Callable[..., bytes]) -> Callable[..., bytes]:
    from refsim.core import cache
    from refsim.exec.cpu.ir import ModuleText
    from refsim.exec.cpu.isa import cpu

    def found(name: str, build: Callable[..., Any], variant: dict[str, Any]) -> bytes:
        module = ModuleText()
        build(module, name, **variant)
        told = f"{cpu().name} {cpu().features} {module}"
        path = folder / sha256(told.encode()).hexdigest()
        code = cache.read(path)
        if code is None:
            code = compile_one(name, build, variant)
            cache.write(path, code)
        return code

    return found
