"""What is done with a mutant: everything that a command does with such a file, from reading to the last line printed.

Each reader takes the mutant's folder and a number that chooses between several ways of use. It may raise what is meant
for bad input, a `RefsimError`; anything else is a finding.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from refsim.bytediff import diff
from refsim.check.run import check
from refsim.cli import main
from refsim.cli.kit.devtools import read_origins
from refsim.core import size_limit
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import FormatError, RefsimError
from refsim.core.escape import escaped
from refsim.core.plain import plain
from refsim.core.rng import Rng
from refsim.core.tensor import TensorDesc
from refsim.device import manifest, outputs
from refsim.device.expose import ExposeOptions, expose
from refsim.devtools.etdump_file import read_etdump
from refsim.devtools.gaps import gaps
from refsim.exec.cpu import NativeExecutor
from refsim.exec.executor import Definition, Executor, run_graph
from refsim.exec.factory import executor_named
from refsim.exec.model import Model, load
from refsim.formats import dumps, npz, profiles, recordings
from refsim.formats.cases import read_folder
from refsim.golden import certify
from refsim.golden.check import check_entries
from refsim.golden.named import open_case
from refsim.golden.store import parse, sums
from refsim.golden.verify import read_results
from refsim.graph.graph import Graph
from refsim.graph.interpreter import Event, Observer
from refsim.partition.archive import checked
from refsim.spirv.module import Module
from refsim.spirv.reflect import interface
from refsim.spirv.rewrite import for_kompute

EXECUTOR = "cpu:emulated"
DEFECT = "this is a defect of refsim"


class Finding(Exception):
    """A command that ended as no command should."""


def verb(*arguments: str) -> None:
    """Run a command; a refusal is a FormatError here, and what it prints must be fit for a terminal."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(arguments))
    if DEFECT in err.getvalue():
        raise Finding(err.getvalue())
    if "out of memory" in err.getvalue():
        raise MemoryError(err.getvalue())
    if arguments[-1] == "--json" and status < 2:
        json.loads(out.getvalue())
    printable(out.getvalue())
    printable(err.getvalue())
    if status >= 2:
        raise FormatError("mutant", err.getvalue())


def printable(text: str) -> None:
    """Finding, if a terminal would take a part of the text for a command, or show it in another order."""
    wrong = {c for c in text if not c.isprintable() and c != "\n"}
    if wrong:
        raise Finding(f"printed {sorted(wrong)!r}")


def _drawn(model: Model) -> list[np.ndarray]:
    rng = Rng(0)
    return [rng.uniform(-1.0, 1.0, shape).astype(dtype) for shape, dtype in model.input_shapes()]


def _loaded(path: str) -> None:
    check(path)
    load(path)


def _run(path: str) -> None:
    model = load(path)
    model.run(_drawn(model), executor_named(EXECUTOR))


PROGRAM: tuple[Callable[[str], object], ...] = (
    lambda path: verb("inspect", path),
    lambda path: verb("inspect", path, "--json"),
    lambda path: verb("inspect", path, "--html", f"{path}.html"),
    lambda path: verb("check", path),
    lambda path: verb("run", path, "--random", "0", "-x", EXECUTOR),
    lambda path: expose(path, ExposeOptions()),
    _loaded,
    _run,
)
#: Mostly a delegate is run here, in several ways whose bytes must be equal.
GRAPH = (("run", "--random", "0"), ("inspect", "--json"), ("check",))


def program(folder: Path, way: int) -> None:
    """A .pte file or a delegate blob."""
    PROGRAM[way % len(PROGRAM)](str(folder / "m.pte"))


def graph(folder: Path, way: int) -> None:
    """A delegate that is run."""
    path = str(folder / "m.pte")
    if way % 8 < len(GRAPH):
        name, *options = GRAPH[way % 8]
        verb(name, path, *options)
    else:
        compared(load(path), way // 8)


def compared(model: Model, way: int) -> None:
    """A delegate's definition against its plans: with nothing watched, with one value, with all.

    A plan may refuse what the definition refuses, and nothing else.
    """
    (delegate,) = model.graphs.values()
    size_limit.check(delegate.where, delegate.nbytes, size_limit.TOTAL)
    rng = Rng(way)
    given = [
        (rng.uniform(-1.0, 1.0, shape) * 2.0 ** (way % 9)).astype(dtype)
        for shape, dtype in model.input_shapes()
    ]
    every = {value for node in delegate.nodes for value in node.outputs}
    need = _outcome(delegate, given, Definition(), every)
    one = {sorted(every)[way % len(every)]} if every else set()
    for watched in (set(), one, every):
        got = _outcome(delegate, given, NativeExecutor(1 + way % 2), watched)
        if isinstance(need, RefsimError) or isinstance(got, RefsimError):
            if type(need) is not type(got):
                raise Finding(f"{_said(got)}, and the definition {_said(need)}; watched {sorted(watched)}")
            continue
        wrong = [name for name in got if got[name] != need[name]]
        if wrong or not watched <= got.keys():
            raise Finding(
                f"{wrong} differ from the definition; watched {sorted(watched)}, seen {sorted(map(str, got))}"
            )
    if isinstance(need, RefsimError):
        raise need


def _said(outcome: dict[Any, bytes] | RefsimError) -> str:
    return f"{type(outcome).__name__}: {outcome.what}" if isinstance(outcome, RefsimError) else "runs"


def _outcome(
    delegate: Graph, given: list[np.ndarray], executor: Executor, watched: set[int]
) -> dict[Any, bytes] | RefsimError:
    """Bytes of the watched values by number, and of the outputs by name; or why it is refused."""
    found: dict[Any, bytes] = {}

    def tell(event: Event) -> None:
        for value, held in event.outputs.items():
            found[value] = _bytes(held.raw.view(held.desc.dtype) if isinstance(held, PackedBuffer) else held)

    observer = Observer(tell, lambda number, value: value in watched) if watched else None
    try:
        outputs = run_graph(delegate, given, executor, 0, observer)
    except RefsimError as error:
        return error
    return found | {f"output {number}": _bytes(array) for number, array in enumerate(outputs)}


def _bytes(array: np.ndarray) -> bytes:
    """The bytes of an array; the bits of a NaN are a machine's own."""
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), array.dtype.type(np.nan), array)
    return array.tobytes()


def dump(folder: Path, way: int) -> None:
    """A dump of a run: a zip file, or the folder itself."""
    path = folder / "dump.zip"
    recorded = dumps.Recorded(path if path.exists() else folder)
    for name, entry in recorded.entries.items():
        if entry.layout is not None:
            recorded.raw(name, TensorDesc(entry.shape or (1,), entry.layout))


def sidecar(folder: Path, way: int) -> None:
    """A raw buffer beside its sidecar."""
    for beside in sorted(folder.glob("*.json")):
        dumps.read_sidecar(beside)
        raw = str(beside.with_suffix(".bin"))
        if way % 2:
            verb("unpack", raw, "-o", str(folder / "made.npy"))
        else:
            verb("diff", raw, raw)
    dump(folder, way)


def npy(folder: Path, way: int) -> None:
    path = folder / "a.npy"
    if way % 3 == 0:
        npz.read_npy(path, ((1, 3, 2, 2), np.dtype(np.float32)))
    elif way % 3 == 1:
        npz.read_npy(path)
    else:
        verb("pack", str(path), "-l", "4W4C", "-o", str(folder / "made.bin"))


def arrays(folder: Path, way: int) -> None:
    path = folder / "a.npz"
    if way % 4 == 0:
        outputs.read([path], [("float32", (1, 3, 2, 2))])
    elif way % 4 == 1:
        npz.read_arrays(path, ("in", "out"), [None])  # type: ignore[list-item]
    else:
        npz.read_arrays(path, ("none",), [None] * (way % 4))  # type: ignore[list-item]


def case(folder: Path, way: int) -> None:
    """A case, in a folder or in a zip file: read, run, and compared with wrong bytes."""
    path = folder / "c.zip"
    name = f"{path}!a" if path.exists() else str(folder)
    if way % 6 == 0:
        verb("replay", name, "-x", EXECUTOR)
        return
    stored = open_case(name) if path.exists() else read_folder(folder)
    actual = executor_named(EXECUTOR).run_call(stored.bound.call, stored.bound.inputs)
    actual.raw[way % actual.raw.size] ^= 1 + way % 255
    if way % 4 == 0:
        report = diff(stored.expected, actual, call=stored.bound)
        printable(str(report))
        report.as_json()


def recording(folder: Path, way: int) -> None:
    path = folder / "r.zip"
    for found in recordings.read(path):
        call = found.call()
        actual = executor_named(EXECUTOR).run_call(call, found.inputs())
        found.differences(actual, found.raw, call)
    list(recordings.staged_inputs(path))


def profile(folder: Path, way: int) -> None:
    profiles.profile(folder / "p.json")


def exposed(folder: Path, way: int) -> None:
    """An exposed program with its manifest, and the outputs of a run of it."""
    path = str(folder / "m.pte")
    if way % 4 == 0:
        verb("collect", path, str(folder / "out.npz"), "-o", str(folder / "made"))
    elif way % 4 == 1:
        verb("triage", path, "--random", "0", "--outputs", str(folder / "out.npz"))
    else:
        manifest.read(path)


def digests(folder: Path, way: int) -> None:
    """Lines of digests: parsed, their data drawn, and run."""
    for path in folder.glob("*.jsonl"):
        text = path.read_bytes().decode("ascii", "surrogateescape")
        for number, row in enumerate(text.splitlines()):
            entry = parse(path.stem, row, f"{path}:{number}")
            list(check_entries([entry], {}))


def corpus(folder: Path, way: int) -> None:
    """The manifest of exported cases, and a certificate of their outputs."""
    if way % 3 == 0:
        made = str(folder / "made.html")
        verb("golden", "check", "--pte", str(folder), "--outputs", str(folder), "--certificate", made)
    else:
        certify.check(certify.read(folder), folder, {})


def checksums(folder: Path, way: int) -> None:
    sums(folder / "SHA256SUMS")


def results(folder: Path, way: int) -> None:
    read_results(folder / "r.jsonl", {})


def differences(folder: Path, way: int) -> None:
    recordings.RecordedDifferences.load(folder / "d.json").cause("q8ta_add/x")


def module(folder: Path, way: int) -> None:
    """A SPIR-V module: parsed, reflected, rewritten for Kompute, written."""
    parsed = Module.parse((folder / "m.spv").read_bytes(), "m.spv")
    interface(parsed)
    Module.parse(for_kompute(parsed, 8, 16).code, "rewritten").to_bytes()


@cache
def _recorded() -> Model:
    return load(Path(__file__).parents[1] / "data" / "devtools" / "net.pte")


def record(folder: Path, way: int) -> None:
    """An ETRecord or a .pt2 file: the lines of code behind the operators of a program."""
    found = read_origins(_recorded(), str(folder / "r.zip"))
    json.dumps(plain(found))
    for origin in found.found.values():
        printable(escaped(f"{origin} {origin.lines()}"))


def etdump(folder: Path, way: int) -> None:
    """An ETDump and its debug buffer: its values, and the calls of delegates compared."""
    read = read_etdump(folder / "d.etdp", folder / "d.bin")
    if way % 2:
        for run in read.executions():
            read.arguments(run)
    else:
        json.dumps(plain(gaps(_recorded(), read, EXECUTOR)), allow_nan=False)


def pt2(folder: Path, way: int) -> None:
    """What of a .pt2 file is given to torch; pickled tensors need torch itself, and are not looked at without it."""
    with contextlib.suppress(ImportError):
        checked((folder / "m.pt2").read_bytes(), "m.pt2")
