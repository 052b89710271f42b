"""A folder of SPIR-V modules that another build made: each is read when a call first needs it, and when it changed.

What a module declares is compared with what a host would bind, before anything is dispatched. A module may declare
less, because optimizers drop what nothing reads. It may not declare more, or another kind.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from refsim.core.buffer import GUARD_WORDS
from refsim.core.counted import counted
from refsim.core.errors import FormatError, LimitError
from refsim.formats.file import read_file
from refsim.formats.module_folder import SUFFIX, no_folder
from refsim.ops.base.module_call import ModuleDispatch, disagreements
from refsim.spirv import lines
from refsim.spirv.module import Module
from refsim.spirv.own import is_own
from refsim.spirv.reflect import IMAGES, STORED, Binding, Interface, interface
from refsim.spirv.rewrite import Rewritten, for_kompute

MOST_BYTES = 1 << 24

_Stamp = tuple[int, int, int]


@dataclass
class Loaded:
    """One module, as it was when its file had this stamp. It is rewritten once for each number of constants."""

    stamp: _Stamp
    module: Module
    interface: Interface
    rewritten: dict[int, Rewritten]


class ModuleFolder(Mapping[str, Interface]):
    """What the modules of a folder declare, by name without ``.spv``.

    FormatError for a folder that cannot be read, or that has no module in it. Looking a module up raises FormatError or
    UnsupportedError if its file is damaged, or something that no host here can call.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._loaded: dict[str, Loaded] = {}
        need = f"a folder with {SUFFIX} files"
        try:
            names = [entry.name for entry in os.scandir(self.path)]
        except (OSError, ValueError) as error:
            raise no_folder(path) from error
        if not any(name.endswith(SUFFIX) for name in names):
            got = f"{len(names)} other files" if names else "an empty folder"
            raise FormatError(os.fspath(path), "no module in the folder", got=got, need=need)

    def file(self, name: str) -> Path:
        return self.path / f"{name}{SUFFIX}"

    def __contains__(self, name: object) -> bool:
        return self._stamp(str(name)) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(path.stem for path in self.path.glob(f"*{SUFFIX}")))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, name: str) -> Interface:
        return self.load(name).interface

    def load(self, name: str) -> Loaded:
        """A module as its file is now."""
        stamp, known = self._stamp(name), self._loaded.get(name)
        if stamp is None:
            raise KeyError(name)
        if known is None or known.stamp != stamp:
            where = str(self.file(name))
            if stamp[1] > MOST_BYTES:
                need = f"<= {MOST_BYTES}"
                raise LimitError(where, "too large for a module", got=counted(stamp[1], "byte"), need=need)
            module = Module.parse(bytes(read_file(where)), where)
            known = self._loaded[name] = Loaded(stamp, module, interface(module), {})
        return known

    def rewritten(self, dispatch: ModuleDispatch) -> tuple[Loaded, Rewritten]:
        """The module of a dispatch as Kompute takes it, if it declares what the dispatch gives.

        Every array without a length begins `GUARD_WORDS` behind the start of its buffer.
        """
        try:
            loaded = self.load(dispatch.shader)
        except KeyError:  # it was there when it was chosen
            where = str(self.file(dispatch.shader))
            raise FormatError(where, "cannot be read", got="no such file", need="the module") from None
        check(loaded, dispatch, str(self.file(dispatch.shader)))
        count = len(dispatch.spec_words)
        if count not in loaded.rewritten:
            loaded.rewritten[count] = for_kompute(loaded.module, count, GUARD_WORDS)
        return loaded, loaded.rewritten[count]

    def version(self) -> object:
        """Another value whenever a file came or went, or a module that was loaded has changed."""
        try:
            folder = os.stat(self.path).st_mtime_ns
        except OSError:
            folder = 0
        return (folder, *((name, self._stamp(name)) for name in sorted(self._loaded)))

    def _stamp(self, name: str) -> _Stamp | None:
        """When a file was written, its size and its inode; None if there is no such file."""
        try:
            found = os.stat(self.file(name))
        except (OSError, ValueError):
            return None
        if stat.S_ISDIR(found.st_mode):
            return None
        return (found.st_mtime_ns, found.st_size, found.st_ino)


# --- what a module declares, beside what it gets ---------------------------------------------------------


def check(loaded: Loaded, dispatch: ModuleDispatch, where: str) -> None:
    """FormatError, naming the file, if a module asks for something else than the dispatch gives."""
    declared = loaded.interface

    def called(binding: Binding) -> str:
        line = lines.declared(loaded.module, binding.variable, binding.number)
        return ", ".join(filter(None, (binding.name, line)))

    if dispatch.own is None and is_own(declared):
        raise FormatError(
            where, "is one of refsim's own modules, which -x gpu runs", need="one of a kernel author"
        )
    found = [*disagreements(dispatch, declared, called), *_more(declared, dispatch)]
    if found:
        host = "its host" if dispatch.own is None else dispatch.own.where
        raise FormatError(where, f"does not fit {host}: {'; '.join(found)}")


def _more(declared: Interface, dispatch: ModuleDispatch) -> Iterator[str]:
    """Where a module does not write its output, reads images of other texels, or has a workgroup of its own."""
    present = {binding.number: binding for binding in declared.bindings}
    for number, bind in enumerate(dispatch.binds):
        binding = present.get(number)
        if bind.writes and (binding is None or not binding.writable):
            what = "has no binding" if binding is None else "cannot write to binding"
            yield f"{what} {number}, where the host binds {bind.what} to be written"
        if bind.extent and binding is not None and binding.kind in IMAGES:
            if bind.writes != (binding.kind in STORED.values()):
                yield f"binding {number} ({bind.what}) is a {binding.kind}"
            if not binding.element.endswith("vec4"):
                yield f"binding {number} ({bind.what}) has texels of {binding.element}; the host's have four words"
    local = declared.local(dispatch.spec_words)
    if local != dispatch.local:
        yield f"has a workgroup of {local}, whatever the host sets; it sets {dispatch.local}"
