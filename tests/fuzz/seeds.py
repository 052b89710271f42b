"""Small sound files of every format, from tests/data, golden/ and the operators' own cases."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from refsim.core.errors import RefsimError
from refsim.core.layout import WIDTH_PACKED
from refsim.core.qmath import PROFILES
from refsim.device.calls import add_call
from refsim.formats import profiles
from refsim.formats.cases import contents
from refsim.formats.pte.read import VULKAN_ID, read_pte
from refsim.formats.vkgraph.edit import GraphEditor
from refsim.formats.vkgraph.read import read_blob
from refsim.golden import programs
from refsim.golden.chain_rules import chains
from refsim.golden.store import DigestEntry, digest
from refsim.graph.build import build
from refsim.graph.graph import Graph, Node, Ref, Tensor
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from tests.examples import some
from tests.fuzz import archives

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
#: A seed is a folder: file name -> bytes. The reader knows the names.
Files = dict[str, bytes]
MOST_BYTES = 9_000
#: Of the input of a graph that is run.
MOST_ELEMENTS = 2_000


def _data(pattern: str) -> list[Path]:
    """Test data, without what fuzzing has found."""
    return [path for path in DATA.rglob(pattern) if DATA / "crashers" not in path.parents]


@cache
def bounds() -> tuple[BoundCase, ...]:
    """A small case or two of every operator."""
    found = []
    for op in OPS.values():
        small = []
        for case in some(op):
            bound = bind(case)
            size = sum(b.desc.nbytes for b in bound.inputs.values()) + bound.call.out.nbytes
            size += sum(c.nbytes for c in bound.call.consts.values() if c is not None)
            small.append((size, len(small), bound))
        found += [bound for size, _, bound in sorted(small)[:2] if size <= MOST_BYTES]
    return tuple(found)


@cache
def ptes() -> tuple[Files, ...]:
    """Small programs: of real exporters, and one per operator."""
    paths = sorted(path for path in _data("*.pte") if path.stat().st_size <= MOST_BYTES)
    files = [path.read_bytes() for path in paths]
    for bound in bounds():
        try:
            files.append(programs.single(bound, True)[0])
        except RefsimError:  # no serialized graph names it
            continue
    files += [(DATA / "models" / "mixed_ops.pte").read_bytes()]
    return tuple({"m.pte": data} for data in files)


@cache
def blobs() -> tuple[Files, ...]:
    found = []
    for files in ptes():
        pte = read_pte(files["m.pte"])
        if not pte.named_data:
            found += [bytes(pte.delegate_data(d)) for d in pte.plan().delegates if d.id == VULKAN_ID]
    return tuple({"m.pte": data} for data in found)


@cache
def graphs() -> tuple[Files, ...]:
    """Delegates that run: of the corpus' chains, of one operator each, and of small programs of exporters."""
    found = [_serialized(chain.graph("seed")) for chain in chains() if prod(chain.shape) <= MOST_ELEMENTS]
    found += [_serialized(_alone(bound)) for bound in bounds() if bound.call.op.upstream.exported]
    found += [files["m.pte"] for files in blobs()]
    return tuple({"m.pte": data} for data in found if _runs(data))


def _alone(bound: BoundCase) -> Graph:
    """A graph of one operator, its inputs those of the graph."""
    call = bound.call
    descs = (*call.descs.values(), call.out)
    tensors = {n: Tensor(n, d.shape, np.dtype(d.dtype), d.layout, buffer=True) for n, d in enumerate(descs)}
    inputs = {name: number for number, name in enumerate(call.descs)}
    node = Node(0, 0, call.op.name, (), (len(inputs),), Prepared(call), inputs)
    return Graph("seed", tensors, (node,), tuple(inputs.values()), node.outputs, call.target)


def _serialized(graph: Graph) -> bytes:
    """The blob of a graph."""
    editor = GraphEditor()
    for tensor in graph.tensors.values():
        editor.tensor(str(tensor.dtype), tensor.shape, tensor.layout or WIDTH_PACKED)

    def number(arg: Any) -> int:
        if isinstance(arg, Ref):
            return arg.id
        return editor.literal(tuple(arg) if isinstance(arg, list) else arg)

    for node in graph.nodes:
        if node.call is not None:
            add_call(editor, node.call, node.inputs, node.outputs[0])
            continue
        result = editor.values(node.outputs) if len(node.outputs) > 1 else node.outputs[0]
        editor.call(node.name, *map(number, node.args), result)
    for value in graph.inputs:
        editor.input(value)
    for value in graph.outputs:
        editor.output(value)
    return editor.blob()


def _runs(data: bytes) -> bool:
    try:
        build(read_blob(data, "seed"), "seed")
    except RefsimError:
        return False
    return True


@cache
def dumps() -> tuple[Files, ...]:
    paths = sorted(path for path in _data("*.dump.zip") if path.stat().st_size < 40_000)
    return tuple({"dump.zip": path.read_bytes()} for path in paths)


@cache
def folders() -> tuple[Files, ...]:
    """Dump folders: a raw buffer or two with their sidecars."""
    found = []
    for files in dumps():
        members = archives.unpacked(files["dump.zip"])
        names = sorted(name for name in members if name.endswith(".json"))[:2]
        kept = {name: members[name] for name in names}
        kept |= {
            raw: data for raw, data in members.items() if raw.endswith(".bin") and len(data) < MOST_BYTES
        }
        found.append(kept)
    info = {"value": "delegate0_v3", "shape": [1, 6, 2, 6], "layout": "4W4C", "dtype": "int8", "scale": 0.5}
    found.append({"delegate0_v3.json": json.dumps(info).encode(), "delegate0_v3.bin": bytes(range(128))})
    return tuple(found)


@cache
def npys() -> tuple[Files, ...]:
    made = [
        np.arange(12, dtype=np.float32).reshape(1, 3, 2, 2),
        np.arange(24, dtype=np.int8).reshape(2, 3, 4),
    ]
    made += [np.float32(3), np.zeros((0, 3), np.int64), np.asfortranarray(np.ones((3, 4)))]
    return tuple({"a.npy": _npy(np.asarray(array))} for array in made)


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@cache
def npzs() -> tuple[Files, ...]:
    paths = sorted(path for path in _data("*.npz") if path.stat().st_size < 3_000)[:12]
    return tuple({"a.npz": path.read_bytes()} for path in paths)


@cache
def cases() -> tuple[Files, ...]:
    return tuple(contents(bound, bound.call.expected(bound.inputs)) for bound in bounds())


@cache
def case_zips() -> tuple[Files, ...]:
    return tuple({"c.zip": archives.packed([(f"a/{n}", d) for n, d in files.items()])} for files in cases())


@cache
def recordings() -> tuple[Files, ...]:
    """The first recordings of every archive that are not too large."""
    found = []
    for path in sorted((ROOT / "golden" / "upstream").glob("*.zip")):
        members: dict[str, list[tuple[str, bytes]]] = {}
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                members.setdefault(entry.filename.partition("/")[0], []).append((entry.filename, b""))
            sizes = {
                folder: sum(archive.getinfo(name).file_size for name, _ in rows)
                for folder, rows in members.items()
            }
            for folder in sorted(sizes, key=lambda name: (sizes[name], name))[:2]:
                rows = [(name, archive.read(name)) for name, _ in members[folder]]
                found.append({"r.zip": archives.packed(rows)})
    return tuple(found)


@cache
def profile_files() -> tuple[Files, ...]:
    return tuple({"p.json": json.dumps(profiles.as_json(p)).encode()} for p in PROFILES.values())


@cache
def exposed() -> tuple[Files, ...]:
    """Exposed programs with their manifests and the outputs of a run."""
    found = []
    for path in sorted((DATA / "device").glob("linear_head*.pte")):
        manifest, outputs = path.with_name(path.name + ".json"), path.with_suffix(".npz")
        if manifest.is_file() and outputs.is_file():
            files = {"m.pte": path, "m.pte.json": manifest, "out.npz": outputs}
            found.append({name: source.read_bytes() for name, source in files.items()})
    return tuple(found)


def _lines() -> Iterator[tuple[str, str]]:
    for bound in bounds():
        expected = bound.call.expected(bound.inputs)
        yield bound.case.op, DigestEntry(0, bound.case, digest(bound.call, expected)).line


@cache
def digests() -> tuple[Files, ...]:
    return tuple({f"{op}.jsonl": text.encode()} for op, text in _lines())


@cache
def corpora() -> tuple[Files, ...]:
    """Folders as `refsim golden export` writes them, without the programs, and outputs of one case."""
    found = []
    for bound, (op, text) in zip(bounds(), _lines(), strict=True):
        head = {"kind": programs.KIND, "schema": programs.SCHEMA, "refsim": "0", "fill": programs.FILL}
        rows = [{"case": f"{op}/0000", "line": json.loads(text)}]
        content = {**head, "files": [{"file": f"{op}.pte", "cases": rows}]}
        out = bound.call.expected(bound.inputs)
        array = out.raw.view(np.int32) if out.desc.is_int8 else out.unpack()
        file = io.BytesIO()
        np.savez(file, out0=array + array.dtype.type(1))
        found.append({programs.MANIFEST: json.dumps(content).encode(), f"{op}.npz": file.getvalue()})
    return tuple(found)


@cache
def sums() -> tuple[Files, ...]:
    return ({"SHA256SUMS": f"{'0' * 64}  digests/a.jsonl\n{'1' * 64}  cases/b.zip\n".encode()},)


@cache
def results() -> tuple[Files, ...]:
    """What `refsim golden verify --results` writes."""
    rows = [{"case": "q8ta_add/0000", "executor": "cpu", "status": "same"}]
    lines = [{"golden verify": {}}, {"case": "q8ta_add/0000", "results": rows}]
    return ({"r.jsonl": "".join(json.dumps(one) + "\n" for one in lines).encode()},)


@cache
def differences() -> tuple[Files, ...]:
    return ({"d.json": (ROOT / "golden" / "upstream" / "differences.json").read_bytes()},)


@cache
def modules() -> tuple[Files, ...]:
    """Small SPIR-V modules."""
    paths = sorted(
        (ROOT / "shaders" / "spirv").glob("*.spv"), key=lambda path: (path.stat().st_size, path.name)
    )
    return tuple({"m.spv": path.read_bytes()} for path in paths[:6])


@cache
def records() -> tuple[Files, ...]:
    """What is read of an ETRecord and of a .pt2 file: no weights."""
    kept = ("ETRECORD_V0", "edge_dialect_exported_program/forward", "debug_handle_map")
    members = archives.unpacked((DATA / "devtools" / "net.etrecord").read_bytes())
    record = [(name, members[name]) for name in kept]
    program = [("m/models/model.json", members["exported_program"])]
    return tuple({"r.zip": archives.packed(rows)} for rows in (record, program))


@cache
def etdumps() -> tuple[Files, ...]:
    """ETDumps with their debug buffers: one of a program at hand, one of another."""
    folder = DATA / "devtools"
    return tuple(
        {"d.etdp": (folder / f"{name}.etdp").read_bytes(), "d.bin": (folder / f"{name}.bin").read_bytes()}
        for name in ("net", "runtime")
    )


@cache
def pt2s() -> tuple[Files, ...]:
    """The members of a .pt2 file that are no pickles, as torch lays them out."""
    tensor = {"dtype": 7, "sizes": [{"as_int": 1}, {"as_expr": {"expr_str": "s0 + 2", "hint": None}}]}
    nodes = [
        {"target": "torch.ops.aten.relu.default", "inputs": [{"name": "x"}], "outputs": [], "metadata": {}}
    ]
    spec = json.dumps([1, {"type": "builtins.tuple", "context": "null", "children_spec": []}])
    calls = [{"fqn": "", "signature": {"in_spec": spec, "out_spec": spec}}]
    module = {"graph": {"nodes": nodes, "tensor_values": {"x": tensor}}, "module_call_graph": calls}
    content = {
        "graph_module": module,
        "opset_version": {"aten": 10},
        "guards_code": ["True"],
        "schema_version": {},
    }
    weights = {"config": {"w": {"path_name": "weight_0", "use_pickle": False, "tensor_meta": tensor}}}
    members = {
        "archive_format": b"pt2",
        "byteorder": b"little",
        "version": b"3\n",
        "data/weights/weight_0": bytes(16),
    }
    members["models/model.json"] = json.dumps(content).encode()
    members["data/weights/model_weights_config.json"] = json.dumps(weights).encode()
    stored = archives.packed([(f"m/{name}", data) for name, data in members.items()], zipfile.ZIP_STORED)
    return ({"m.pt2": stored},)
