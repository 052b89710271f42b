"""Make the folders that docs/shaders.md examines: modules as a build of ExecuTorch leaves them, one of them wrong.

python docs/seeded_shaders.py [NAME...]   writes out/shaders/NAME/

The modules are those of tests/modules: kernels of our own under ExecuTorch's names and calling conventions.
"""

from __future__ import annotations

import os
import shutil
import sys
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "out" / "shaders"
MODULES = ROOT / "tests" / "modules"
#: Name of the folder -> the modules that it lacks, and where those lie that are put in place of right ones.
FOLDERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "fresh": ("*_clone", ()),
    "saved": ("", ("example",)),
    "repairable": ("", ("repairable",)),
}


def make(name: str) -> None:
    """Write one folder anew."""
    without, instead = FOLDERS[name]
    folder = TARGET / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for age, source in enumerate(("spirv", *instead)):
        for path in sorted((MODULES / source).glob("*.spv")):
            if not fnmatchcase(path.stem, without):
                shutil.copyfile(path, folder / path.name)
                os.utime(folder / path.name, (age, age))  # the wrong module is the newest, as in a build


if __name__ == "__main__":
    for each in sys.argv[1:] or FOLDERS:
        make(each)
        print(f"out/shaders/{each}: {len(list((TARGET / each).glob('*.spv')))} modules")
