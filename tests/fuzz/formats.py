"""The formats: for each its seeds, how a seed is mutated, and what reads the mutant."""

from __future__ import annotations

import hashlib
import json
import random
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import archives, plain, programs, readers, seeds, trees
from tests.fuzz.seeds import Files


@dataclass(frozen=True)
class Format:
    """A format. ``mutate`` changes a seed's files; ``read`` uses a folder of files, in one of several ways.

    ``share`` is how many of its mutants are made for each one of the others.
    """

    name: str
    seeds: Callable[[], tuple[Files, ...]]
    mutate: Callable[[random.Random, Files], Files]
    read: Callable[[Path, int], None]
    share: int = 1

    def mutant(self, seed: int, number: int) -> Files:
        """Mutant ``number`` of a run: the same for the same seed."""
        rng = random.Random(f"{seed}/{self.name}/{number}")
        files = rng.choice(self.seeds())
        try:
            return self.mutate(rng, files)
        except Exception:  # a mutant of a mutant may be no file of its kind any more
            name = rng.choice(sorted(files))
            return {**files, name: plain.mutate(rng, files[name])}


def _member(name: str) -> archives.Mutate:
    """How a file is mutated, by its name."""
    suffixes = {
        ".json": trees.mutate,
        ".jsonl": trees.mutate,
        ".npy": plain.mutate_header,
        ".pte": programs.mutate_pte,
        ".etdp": programs.mutate_etdump,
    }
    suffixes |= {".npz": lambda rng, data: archives.mutate(rng, data, _member)}
    suffixes |= {".zip": lambda rng, data: archives.mutate(rng, data, _member)}
    return suffixes.get(Path(name).suffix, plain.mutate)


def _files(rng: random.Random, files: Files) -> Files:
    """One file of the folder mutated by its kind, or missing."""
    name = rng.choice(sorted(files))
    if len(files) > 1 and rng.random() < 0.03:
        return {key: data for key, data in files.items() if key != name}
    return {**files, name: _member(name)(rng, files[name])}


def _each(mutate: archives.Mutate) -> Callable[[random.Random, Files], Files]:
    """Every file of the folder, mutated so."""
    return lambda rng, files: {name: mutate(rng, data) for name, data in files.items()}


def _json_mostly(rng: random.Random, files: Files) -> Files:
    """As `_files`, but mostly what the others are described by."""
    described = sorted(name for name in files if name.endswith(".json"))
    if rng.random() < 0.2 or not described:
        return _files(rng, files)
    name = rng.choice(described)
    return {**files, name: trees.mutate(rng, files[name])}


def _case(rng: random.Random, files: Files) -> Files:
    """A case with another description, or with other bytes whose digest is right."""
    changed = _json_mostly(rng, files)
    if rng.random() < 0.5:
        try:
            info = json.loads(changed["case.json"])
            for row in (*info["inputs"], *info["constants"], info["output"]):
                row["sha256"] = hashlib.sha256(changed[row["file"]]).hexdigest()
            changed = {**changed, "case.json": json.dumps(info).encode()}
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
    return changed


def _case_zip(rng: random.Random, files: Files) -> Files:
    if rng.random() < 0.3:
        members = {name.removeprefix("a/"): data for name, data in archives.unpacked(files["c.zip"]).items()}
        made = _case(rng, members)
        return {"c.zip": archives.packed([(f"a/{name}", data) for name, data in made.items()])}
    return _files(rng, files)


def _stored(rng: random.Random, files: Files) -> Files:
    """An archive of another content whose members are stored, as torch wants them; or another archive."""
    if rng.random() < 0.3:
        return _files(rng, files)
    members = archives.unpacked(files["m.pt2"])
    name = rng.choice(sorted(members))
    members[name] = _member(name)(rng, members[name])
    return {"m.pt2": archives.packed(list(members.items()), zipfile.ZIP_STORED)}


def _dump_mostly(rng: random.Random, files: Files) -> Files:
    if rng.random() < 0.1:
        return _files(rng, files)
    return {**files, "d.etdp": programs.mutate_etdump(rng, files["d.etdp"])}


def _jsons(rng: random.Random, data: bytes) -> bytes:
    """An archive of another content: the JSON of its programs, whatever the members are called."""
    return archives.mutate(rng, data, lambda name: trees.mutate)


FORMATS: dict[str, Format] = {
    row.name: row
    for row in (
        Format("pte", seeds.ptes, _files, readers.program, 4),
        Format("blob", seeds.blobs, _each(programs.mutate_blob), readers.program, 4),
        Format("graph", seeds.graphs, _each(programs.mutate_graph), readers.graph, 4),
        Format("dump.zip", seeds.dumps, _files, readers.dump),
        Format("dump", seeds.folders, _json_mostly, readers.sidecar),
        Format("npy", seeds.npys, _files, readers.npy),
        Format("npz", seeds.npzs, _files, readers.arrays),
        Format("case", seeds.cases, _case, readers.case, 2),
        Format("case.zip", seeds.case_zips, _case_zip, readers.case),
        Format("recording", seeds.recordings, _files, readers.recording, 2),
        Format("profile", seeds.profile_files, _files, readers.profile),
        Format("exposed", seeds.exposed, _json_mostly, readers.exposed),
        Format("digests", seeds.digests, _files, readers.digests, 2),
        Format("corpus", seeds.corpora, _json_mostly, readers.corpus, 2),
        Format("sums", seeds.sums, _files, readers.checksums),
        Format("results", seeds.results, _files, readers.results),
        Format("differences", seeds.differences, _files, readers.differences),
        Format("spirv", seeds.modules, _files, readers.module),
        Format("etdump", seeds.etdumps, _dump_mostly, readers.etdump),
        Format("record", seeds.records, _each(_jsons), readers.record),
        Format("pt2", seeds.pt2s, _stored, readers.pt2),
    )
}
