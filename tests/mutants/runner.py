"""Runs in a mutated copy, in a process of its own: executes what it finds in a folder, writes what came out."""

from __future__ import annotations

import json
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mutants import objects
from mutants.frames import through
from mutants.limits import Watch
from refsim.core import doing
from refsim.core.errors import GuardError, RefsimError


def cases(watch: Watch, folder: str, executor: str, mode: str) -> None:
    """Each folder ``N`` is a case; ``N.out`` becomes its raw output, ``N.error`` what stopped it.

    ``mode`` ``drawn`` binds the case's line instead of reading its files; ``after`` reads results once the next case
    has run too.
    """
    from refsim.exec.factory import executor_named
    from refsim.formats.cases import read_folder
    from refsim.golden.store import parse
    from refsim.ops.base.binding import bind

    runner = executor_named(executor)
    held = None
    for path in sorted(p for p in Path(folder).iterdir() if p.is_dir()):
        try:
            if mode == "drawn":
                info = json.loads((path / "line.json").read_text())
                bound = bind(parse(info["op"], info["line"], str(path)).case)
            else:
                bound = read_folder(path).bound
            out = doing.during(f"case {bound.case}", runner.run_call, bound.call, bound.inputs)
        except RefsimError as error:
            path.with_suffix(".error").write_text(f"{type(error).__name__}: {error}")
            continue
        if mode == "after":
            if held is not None:
                _write(*held)
            held = (path, out.raw)
        else:
            _write(path, out.raw)
    if held is not None:
        _write(*held)


def _write(path: Path, raw: np.ndarray) -> None:
    path.with_suffix(".out").write_bytes(raw.tobytes())


def model(watch: Watch, folder: str, executor: str, file: str) -> None:
    """Run a model on ``before.npz``, then on ``inputs.npz``, and write each value of the second run as NAME.npy.

    A value of the native executor is read from a run that ends with it: what lies between is in memory that others use
    too. Its bytes are those of a plan, so that elements are written; other executors' raw bytes are NAME.bin.
    """
    from refsim.core.buffer import PackedBuffer
    from refsim.exec.factory import executor_named
    from refsim.exec.model import load
    from refsim.formats.dumps import value_name
    from refsim.graph.interpreter import Event

    root = Path(folder)
    loaded, runner = load(file), executor_named(executor)
    given = {name: _arrays(root / f"{name}.npz") for name in ("before", "inputs")}

    def keep(event: Event) -> None:
        for value, held in event.outputs.items():
            if isinstance(held, PackedBuffer):
                (root / f"{value_name(event.delegate, value)}.bin").write_bytes(held.raw.tobytes())

    if executor == "cpu":
        loaded.run(given["inputs"], _EachValue(runner, root))  # type: ignore[arg-type]
        return
    loaded.run(given["before"], runner, lambda event: None)
    loaded.run(given["inputs"], runner, keep)


def _arrays(path: Path) -> list[np.ndarray]:
    with np.load(path) as held:
        return [held[name] for name in held.files]


class _EachValue:
    """An executor whose sessions run a graph once per value, cut off behind it, and then as it is."""

    keeps_sessions = False

    def __init__(self, inner: Any, root: Path) -> None:
        self.inner, self.root = inner, root
        self.name = inner.name
        self.kept: list[Any] = []

    def plain(self, name: str) -> Any:
        return self.inner.plain(name)

    def session(self, graph: Any, watched: Any = ()) -> Any:
        from refsim.formats.dumps import value_name

        def run(inputs: Sequence[np.ndarray], number: int = 0, observe: Any = None) -> Any:
            for node in graph.q8ta_nodes():
                (value,) = node.outputs
                # the graph's own outputs stay: they keep their memory as long as ever
                cut = replace(graph, outputs=(*graph.outputs, value))
                self.kept.append(cut)  # sessions are known by identity
                array = self.inner.session(cut).run(inputs)[-1]
                np.save(self.root / f"{value_name(number, value)}.npy", array)
            return self.inner.session(graph).run(inputs)

        return type("Cut", (), {"run": staticmethod(run)})()


def network(watch: Watch, folder: str, name: str) -> None:
    """Lower a network of tests/lowering; write each delegate as K.blob, and what was fused as lowered.json."""
    from lowering.networks import program

    from refsim.partition.check import check
    from refsim.partition.lower import lower

    root = Path(folder)
    lowered = lower(program(name)[0], name)
    facts: dict[str, Any] = {"unfused": [str(refusal) for refusal in lowered.unfused], "fused": []}
    for number, delegate in enumerate(lowered.delegates):
        (root / f"{number}.blob").write_bytes(delegate.serialized.blob())
        for fused in delegate.fused:
            value = delegate.serialized.values.get(fused.node)
            facts["fused"].append([number, fused.quantize, fused.operator, value])
    (root / "lowered.json").write_text(json.dumps(facts))
    wrong = [row for row in check(lowered, draws=("uniform",)) if row.wrong]
    facts["wrong"] = [f"{row.operator} {row.node}: {row.worst} steps from torch" for row in wrong]
    (root / "lowered.json").write_text(json.dumps(facts))


#: Seconds for a stage, and for a case of the corpus: one that takes longer ends the process (`mutants.limits`).
SECONDS, CASE_SECONDS = 600.0, 60.0
#: The file that says which of the sources an error came through, that ended a stage (`through`).
FRAMES = "frames.json"
#: What a compiler would have said: such a program is none.
_NOT_A_PROGRAM = (NameError, AttributeError, TypeError, ImportError, SyntaxError, struct.error)


#: Characters of an error's own message: what it stopped is told after it.
MOST_SAID = 1000
#: Further wrong cases of a kernel that already gave one, and how many are run to find them, and for how long.
MORE_WRONG, MORE_TRIED, MORE_SECONDS = 5, 24, 10.0


def corpus(
    watch: Watch, folder: str, executor: str, golden: str, threads: str, profile: str, route: str
) -> None:
    """Run the cases of the corpus that ``cases.json`` names until one gives other bytes than recorded.

    ``result.json`` says which, how and what was said, ``out`` has the bytes. Then a few further cases of the same
    operator are run: ``further`` names those that are wrong as well, ``out-1``, ``out-2`` and so on have their bytes.
    Under a ``profile`` the digests are those of ``digests.json``. With a ``route`` every operator takes that native
    route, and cases that cannot are left out.
    Nothing is written if all are right. Whether they are is told by the recorded digests alone: in the copy a
    definition may be wrong as well.
    """
    root = Path(folder)
    names: list[str] = json.loads((root / "cases.json").read_text())
    try:
        for found in _wrong(root, names, _opened(executor, int(threads), route), golden, profile, watch):
            (root / "result.new").write_text(json.dumps(found))
            (root / "result.new").replace(root / "result.json")
    except Exception as error:
        if not (root / "result.json").exists():
            how = "invalid" if _is_no_program(error) else "raised"
            found = {
                "how": how, "said": _told(error)[:2000], "case": _at(root),
                "frames": through(error),
            }  # fmt: skip
            (root / "result.json").write_text(json.dumps(found))


def _opened(executor: str, threads: int, route: str) -> Any:
    """An executor of the copy; with a ``route``, ``cpu`` on that route alone."""
    from refsim.exec.cpu import NativeExecutor
    from refsim.exec.factory import executor_named

    return NativeExecutor(threads, {"*": route}) if route else executor_named(executor, threads)


def _takes(runner: Any, call: Any) -> bool:
    """Whether a call takes the route that is forced, if one is."""
    from refsim.exec.cpu.routes import choose

    force = getattr(getattr(runner, "options", None), "force", None)
    return not force or choose(call, force=force).rule is not None


def _told(error: BaseException) -> str:
    """An error and what it stopped."""
    return " | ".join([f"{type(error).__name__}: {error}"[:MOST_SAID], *doing.notes(error)])


def _wrong(
    root: Path, names: Sequence[str], runner: Any, golden: str, profile: str, watch: Watch
) -> Iterator[dict[str, Any]]:
    """What was found so far, again after each wrong case."""
    from refsim.core.qmath import PROFILES
    from refsim.golden.store import Corpus, digest
    from refsim.ops.base.binding import bind
    from refsim.ops.base.target import Target

    store = Corpus(golden)
    target = Target(PROFILES[profile]) if profile else None
    digests = json.loads((root / "digests.json").read_text()) if profile else {}
    entries: dict[str, Any] = {}
    chains = {entry.name: entry for entry in store.chains()}
    first: dict[str, Any] = {}
    further: list[str] = []
    tried, end = 0, 0.0
    for name in names:
        op = name.partition("/")[0]
        if first and (op != first["case"].partition("/")[0] or tried == MORE_TRIED or time.monotonic() > end):
            break
        tried += bool(first)
        if name not in entries and name not in chains:
            entries = {entry.name: entry for entry in store.entries(op)}
        (root / "at").write_text(name)
        watch.begin(CASE_SECONDS)
        if name in chains:
            try:
                said, frames = doing.during(name, _chain, chains[name], runner, root), list[tuple[str, str]]()
            except RefsimError as error:
                said, frames = _told(error), through(error)
            if said:
                yield {"case": name, "how": "chain", "said": said, "frames": frames}
                break
            continue
        how, said, out, frames = "differs", "", None, []
        try:
            bound = bind(entries[name].case, target)
            if not _takes(runner, bound.call):
                continue
            out = doing.during(name, runner.run_call, bound.call, bound.inputs)
        except GuardError as error:  # what is in the buffer itself is told as well
            how, said, out, frames = "outside", _told(error), error.buffer, through(error)
            if out is not None and out.desc != bound.call.out:
                out = None
        except RefsimError as error:
            how, said, frames = "refused", _told(error), through(error)
        if out is None:
            if first:
                continue
            yield {"case": name, "how": how, "said": said, "frames": frames}
            break
        if how == "differs" and digest(bound.call, out) == digests.get(name, entries[name].sha256):
            continue
        (root / (f"out-{len(further) + 1}" if first else "out")).write_bytes(out.raw.tobytes())
        if first:
            further.append(name)
        else:
            said = said or _ways(runner, bound, out, digests.get(name, entries[name].sha256))
            first = {"case": name, "how": how, "said": said, "asked": _asked(runner, bound, out)}
            end = time.monotonic() + MORE_SECONDS
        yield {**first, "further": further}
        if len(further) == MORE_WRONG:
            break


def _ways(runner: Any, bound: Any, out: Any, wanted: str) -> str:
    """Which of the ways to compute a wrong case are right, as reports say it; "" if there is one way."""
    from refsim.exec.again import again
    from refsim.golden.store import digest

    found = again(runner, bound, out, lambda held: digest(bound.call, held) == wanted, fresh=False)
    return "; ".join(found.ways)


def _asked(runner: Any, bound: Any, out: Any) -> str:
    """What the kernel of a wrong case reads otherwise, as reports say it; "" if nothing is found."""
    from refsim.exec.reads import misread_cause

    differ = out.unpack() != bound.call.expected(bound.inputs).unpack()
    return ": ".join(misread_cause(runner, bound, differ) or ())


def _chain(entry: Any, runner: Any, root: Path) -> str:
    """What is wrong with a chain, whose outputs the recorded digest tells; "" if nothing is.

    If something is, ``value-N.npy`` are the values that came out: of a run that is observed, or each as a further
    output of the graph, so that operators are joined as far as they can be.
    """
    from refsim.golden import chain
    from refsim.graph.interpreter import logical

    shapes = entry.chain.shapes(entry.name)
    graph = shapes[0][1]
    made = [value for node in graph.nodes for value in node.outputs]
    outputs = [array for at, one in shapes for array in chain.outputs_of(at, one, runner)]
    if chain.digest(outputs) != entry.sha256:
        for value in made:
            array, step = chain.joined(entry.chain, graph, runner, value)
            np.save(root / f"value-{value}.npy", array)
            (root / f"value-{value}.by").write_text(step.by)
        right = _watched(entry, shapes, runner)[0] == entry.sha256
        return f"{'right if every value is observed; ' if right else ''}other outputs of the chain as a whole"
    apart, values = _watched(entry, shapes, runner)
    if apart == entry.sha256:
        return ""
    for value in made:
        np.save(root / f"value-{value}.npy", logical(graph, values, value))
    return "other outputs of the chain with every value observed"


def _watched(entry: Any, shapes: Any, runner: Any) -> tuple[str, Any]:
    """The digest of the outputs of a chain with every value observed, and the values of its first shape."""
    from refsim.golden import chain
    from refsim.graph.interpreter import logical

    seen = [chain.watched(at, one, runner) for at, one in shapes]
    held = zip(shapes, seen, strict=True)
    return chain.digest(
        [logical(one, values, end) for (_, one), values in held for end in one.outputs]
    ), seen[0]


def _at(root: Path) -> str:
    path = root / "at"
    return path.read_text() if path.exists() else ""


def _is_no_program(error: Exception) -> bool:
    """Whether a compiler refused the change: Python's, Numba's or LLVM's."""
    if isinstance(error, _NOT_A_PROGRAM) or type(error).__module__.startswith("numba"):
        return True
    return isinstance(error, RuntimeError) and "LLVM" in str(error)


STAGES: dict[str, Callable[..., None]] = {
    "corpus": corpus,
    "cases": cases,
    "model": model,
    "network": network,
}


def main(stage: str, folder: str, *arguments: str) -> None:
    """A typed error outside a case is left in the folder's file ``error``, what a compiler refuses in ``invalid``."""
    watch = Watch(SECONDS)
    doing.name_frames()
    try:
        objects.install()
        STAGES[stage](watch, folder, *arguments)
    except RefsimError as error:
        (Path(folder) / "error").write_text(_told(error))
        (Path(folder) / FRAMES).write_text(json.dumps(through(error)))
    except Exception as error:
        (Path(folder) / FRAMES).write_text(json.dumps(through(error)))
        if _is_no_program(error):
            (Path(folder) / "invalid").write_text(f"{type(error).__name__}: {error}"[:2000])
        raise


if __name__ == "__main__":
    main(*sys.argv[1:])
