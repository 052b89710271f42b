"""The corpus on disk: one file of digests and one zip file of whole cases per operator, and SHA256SUMS over all.

digests/OP.jsonl has one line per case: its number, everything needed to make its data, and the SHA-256 of the bytes
that the operator defines in its output. cases/OP.zip has some of the same cases in full, as case directories.
chains.jsonl has one line per chain of operators (`refsim.golden.chain`).
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import refsim
from refsim.core import choices, folder_write
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import FormatError, LimitError, MissingDependencyError
from refsim.core.extras import install
from refsim.formats.cases import Files, Stored, read, sha256
from refsim.formats.file import quote, read_file, there
from refsim.formats.reading import archive, reading
from refsim.golden import chain
from refsim.golden.rules import case_name
from refsim.ops.base.case import Case
from refsim.ops.base.spec import Call

SUMS = "SHA256SUMS"
CHAIN_FILE = f"{chain.CHAINS}.jsonl"
MAX_LINE = 1 << 16


@dataclass(frozen=True)
class DigestEntry:
    """One line of digests: a case, and the hash of its defined bytes."""

    number: int
    case: Case
    sha256: str = ""

    @property
    def name(self) -> str:
        return case_name(self.case.op, self.number)

    @property
    def line(self) -> str:
        """One line of JSON."""
        case = self.case
        info: dict[str, Any] = {
            "case": self.number,
            "inputs": {name: [list(shape), layout] for name, (shape, layout) in case.inputs.items()},
            "out": case.out_layout,
            "params": {k: list(v) if isinstance(v, tuple) else v for k, v in case.params.items()},
            "features": dict(case.features),
            "style": case.style,
            "poison": case.poison,
            "seed": case.seed,
            "sha256": self.sha256,
        }
        return json.dumps(info, separators=(",", ":"))


def digest(call: Call, buffer: PackedBuffer) -> str:
    """SHA-256 of the bytes that the operator defines, in buffer order. In a float buffer these are all bytes."""
    defined = call.device_defined()
    return sha256(buffer.raw[defined] if buffer.desc.is_int8 else buffer.raw)


def parse(op: str, text: str, where: str) -> DigestEntry:
    """The entry of a line: the inverse of `DigestEntry.line`. FormatError if it is not one."""
    with reading(where, "not a line of digests", f"refsim golden regen {op} --reason TEXT"):
        info = json.loads(text)
        params = {k: tuple(v) if isinstance(v, list) else v for k, v in info["params"].items()}
        inputs = {name: (tuple(shape), layout) for name, (shape, layout) in info["inputs"].items()}
        case = Case(
            op, params, inputs, info["out"], info["seed"], info["features"],
            style=info["style"], poison=info["poison"],
        )  # fmt: skip
        return DigestEntry(int(info["case"]), case, str(info["sha256"]))


def full_name(name: str) -> str:
    """The name of a case as the corpus writes it: q8ta_add/0001 for q8ta_add/1. Other names stay as they are."""
    op, _, number = name.partition("/")
    return case_name(op, int(number)) if _is_number(number) else name


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


class Corpus:
    """A folder of golden data."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        if not self.place(SUMS).is_file():
            got = None if self.root.is_dir() else there(self.root)
            raise FormatError(str(self.root), "holds no corpus", got=got, need=f"a folder with {SUMS}")

    @classmethod
    def at(cls, root: str | None) -> Corpus:
        """The corpus in the folder that somebody named; where nobody did, the one that refsim has."""
        return cls(root or default_root())

    def operators(self) -> list[str]:
        places = (self.root / "digests", self.root / folder_write.COMMIT / "digests")
        return sorted({path.stem for place in places for path in place.glob("*.jsonl")})

    def place(self, name: str) -> Path:
        """Where a file is: also after a writer was killed before it could move the file to its place."""
        return folder_write.current(self.root, name)

    def entries(self, op: str) -> Iterator[DigestEntry]:
        """The digests of one operator, in order."""
        for row, where in _lines(self.place(f"digests/{op}.jsonl")):
            yield parse(op, row, where)

    def sound(self, op: str) -> tuple[list[DigestEntry | chain.ChainEntry], list[str]]:
        """The lines of an operator, or of the chains, that can be read, and where the others are."""
        chains = op == chain.CHAINS
        name, what = (CHAIN_FILE, "chains") if chains else (f"digests/{op}.jsonl", "digests")
        path, found, broken = self.place(name), [], []
        text = str(read_file(path), "ascii", "backslashreplace") if path.is_file() else ""
        for number, row in enumerate(text.splitlines(), 1):
            where = f"{name}:{number}"
            try:
                found.append(chain.parse(row, where) if chains else parse(op, row, where))
            except FormatError:
                broken.append(f"{where}: not a line of {what}")
        return found, broken

    def chains(self) -> Iterator[chain.ChainEntry]:
        """The chains, in order; none of a corpus without them."""
        path = self.place(CHAIN_FILE)
        for row, where in _lines(path) if path.is_file() else ():
            yield chain.parse(row, where)

    def entry(self, name: str) -> DigestEntry:
        """The entry of a name such as q8ta_add/0007; FormatError if there is none."""
        op, _, number = name.partition("/")
        if op in self.operators():
            entries = list(self.entries(op))
            for entry in entries:
                if _is_number(number) and entry.number == int(number):
                    return entry
            need = f"{entries[0].name} to {entries[-1].name}"
        else:
            alike = [f"{one}/{number}" if number else one for one in self.operators()]
            need = f"OPERATOR/NUMBER as in digests/{choices.meant(name, alike)}"
        raise FormatError(str(self.root), "no such case", got=name, need=need)

    def stored_names(self, op: str) -> list[str]:
        """Names of the cases of one operator that are stored in full, such as q8ta_add/0007; reads none of them."""
        if not self._archive(op).exists():
            return []
        with self._opened(op) as opened:
            return [f"{op}/{name}" for name in sorted({n.partition("/")[0] for n in opened.namelist()})]

    def stored_case(self, name: str) -> Stored:
        """A whole case by its name."""
        op, _, folder = name.partition("/")
        with self._opened(op) as opened:
            return read(Files(f"{self._archive(op)}!{folder}", archive=opened), name)

    def _archive(self, op: str) -> Path:
        return self.place(f"cases/{op}.zip")

    def _opened(self, op: str) -> zipfile.ZipFile:
        return archive(self._archive(op), "cases of the corpus")

    def damaged(self, only: Collection[str] | None = None) -> list[str]:
        """What does not match SHA256SUMS: files, or ``only`` some, that changed, are missing, or are not listed."""
        listed, present = dict(sums(self.place(SUMS))), data_files(self.root)
        if only is not None:
            listed = {name: listed[name] for name in only if name in listed}
            present = {name: present[name] for name in only if name in present}
        found = [f"{name}: missing" for name in sorted(listed.keys() - present.keys())]
        found += [f"{name}: not listed in {SUMS}" for name in sorted(present.keys() - listed.keys())]
        for name in sorted(listed.keys() & present.keys()):
            if file_sha256(present[name]) != listed[name]:
                found.append(f"{name}: changed")
        return found


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """(line, where it is) of a file of digests; LimitError for one that is too long."""
    text = read_file(path)
    with reading(str(path)):
        lines = str(text, "ascii").splitlines()
    for number, row in enumerate(lines, 1):
        if len(row) > MAX_LINE:
            raise LimitError(f"{path}:{number}", "line too long", got=len(row), need=f"<= {MAX_LINE}")
        yield row, f"{path}:{number}"


#: The distribution that holds the corpus for an installed refsim, and its module.
PACKAGE, MODULE = "refsim-golden", "refsim_golden"


def default_root() -> Path:
    """The folder golden/ beside the package, as in a checkout, or the one of the distribution refsim-golden.

    MissingDependencyError if there is neither, or the distribution is that of another version.
    """
    root = Path(__file__).parents[2] / "golden"
    if (root / SUMS).is_file():
        return root
    fix = (
        f"{install('golden')}; where no index has {PACKAGE}: {install('golden', 'DIST')}, "
        "with DIST the folder of the wheels of the same release; or, for refsim golden, --root DIR"
    )
    try:
        module = import_module(MODULE)
    except ImportError:
        raise MissingDependencyError("golden corpus", "not installed", need=fix) from None
    if module.__version__ != refsim.__version__:
        got = f"{PACKAGE} {module.__version__}"
        raise MissingDependencyError(
            "golden corpus", f"not that of refsim {refsim.__version__}", got=got, need=fix
        )
    return Path(str(module.__file__)).parent / "data"


def data_files(root: Path) -> dict[str, Path]:
    """Name -> place of every file that SHA256SUMS covers: all but itself, text for people, and hidden files."""
    found = {}
    for place in (root, root / folder_write.COMMIT):
        for path in sorted(place.rglob("*")):
            name = path.relative_to(place)
            hidden = any(part.startswith(".") for part in name.parts)
            if path.is_file() and path.name != SUMS and path.suffix != ".md" and not hidden:
                found[str(name)] = path
    return dict(sorted(found.items()))


def file_sha256(path: Path) -> str:
    """Of a file of any size."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


def sums(path: Path) -> Mapping[str, str]:
    """Name -> digest of a file as sha256sum writes it."""
    found = {}
    with reading(str(path)):
        text = str(read_file(path), "utf-8")
    for number, row in enumerate(text.splitlines(), 1):
        digest_, _, name = row.partition("  ")
        if len(digest_) != 64 or not name:
            raise FormatError(f"{path}:{number}", "not a line of sha256sum", got=quote(row))
        found[name] = digest_
    return found


def sums_of(root: Path, changed: Mapping[str, bytes] | None = None) -> bytes:
    """The content of SHA256SUMS for the files that are there, and for those that are about to be written."""
    digests = {name: sha256(data) for name, data in (changed or {}).items()}
    for name, path in data_files(root).items():
        if name not in digests:
            digests[name] = file_sha256(path)
    order = sorted(digests, key=Path)
    return "".join(f"{digests[name]}  {name}\n" for name in order).encode()
