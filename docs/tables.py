"""The generated tables of docs/numerics.md, check.md, modules.md, own-kernels.md and json.md: padding, rules, keys...

python docs/tables.py          says whether a table is out of date
python docs/tables.py --write  writes the tables again

A table stands between ``<!-- table: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

from refsim.aten.row import Exact
from refsim.aten.table import ROWS as FLOATS
from refsim.check.rules import rules as all_rules
from refsim.check.runtime import runtime
from refsim.cli._document import SCHEMA_FILE
from refsim.core.buffer import ByteKind, byte_kinds
from refsim.core.errors import LayoutError, RefsimError
from refsim.core.qmath import LAVAPIPE
from refsim.core.rng import Rng
from refsim.core.tensor import TensorDesc
from refsim.formats.kernel_keys import KEYS
from refsim.formats.profiles import families
from refsim.formats.recordings import Differences, Recording, read
from refsim.ops.base.arg import Kind
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.host.row import ModuleCall
from refsim.ops.base.host.weights import PACKINGS
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call
from refsim.ops.base.target import Target

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "numerics.md"
PAGES = (PAGE, *(ROOT / "docs" / name for name in ("check.md", "modules.md", "own-kernels.md", "json.md")))
GOLDEN = ROOT / "golden" / "upstream"
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.S)


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


# --- padding ---------------------------------------------------------------------------------------------


def padding() -> str:
    """What each operator leaves in padding bytes, from its own declaration over all legal layouts."""
    rows = []
    for name, op in OPS.items():
        if not op.output.layouts[0].packed_int8:
            continue
        found: dict[tuple[str, str], list[Call]] = {}
        for call in _calls(name):
            found.setdefault((_pad(call, ByteKind.LANE), _pad(call, ByteKind.WORD)), []).append(call)
        present = {
            kind: any((byte_kinds(bind(c).call.out) == kind).any() for c in _samples(name))
            for kind in ByteKind
        }
        for (lane, word), calls in found.items():
            rows.append((
                f"`{name}`",
                "always" if len(found) == 1 else _which(calls),
                lane if present[ByteKind.LANE] else "none",
                word if present[ByteKind.WORD] else "none",
            ))  # fmt: skip
    return markdown(("operator", "when", "lane", "word"), rows)


def _samples(name: str) -> list[Case]:
    return [OPS[name].sample(Rng(seed)) for seed in range(50)]


def _calls(name: str) -> Iterable[Call]:
    """A call in every legal combination of layouts, its zero point distinct from 0."""
    op, samples = OPS[name], _samples(name)
    telling = (c for c in samples if c.params.get("out_zp", c.params.get("zp", 0)) != 0)
    call = bind(next(telling, samples[0])).call
    tensors = [*op.of_kind(Kind.INPUT), op.output]
    for rows in product(*(arg.layouts for arg in tensors)):
        descs = {
            a.name: TensorDesc(call.descs[a.name].shape, row)
            for a, row in zip(tensors[:-1], rows, strict=False)
        }
        with suppress(LayoutError):  # layouts that do not go together
            yield op.bind(call.params, descs, call.consts, rows[-1], out_shape=call.out.shape)


def _pad(call: Call, kind: ByteKind) -> str:
    if call.padding.copied:
        return "copied"
    pad = call.padding.lane if kind is ByteKind.LANE else call.padding.word
    zero_point = getattr(call.params, "out_zp", getattr(call.params, "zp", 0))
    value = "zp" if pad.value and pad.value == zero_point else str(pad.value)
    return f"{value}, {pad.on_device.value}"


def _which(calls: list[Call]) -> str:
    pairs = [(c.descs["x"].layout, c.out.layout) for c in calls]
    if all(x == out for x, out in pairs):
        return "same layout"
    if len(pairs) > 15:
        return "other layout"
    targets: dict[tuple[str, ...], list[str]] = {}
    for x in dict.fromkeys(x for x, _ in pairs):
        targets.setdefault(tuple(str(out) for source, out in pairs if source == x), []).append(str(x))
    return "; ".join(f"{', '.join(xs)} to {', '.join(outs)}" for outs, xs in targets.items())


# --- float operators -------------------------------------------------------------------------------------


def floats() -> str:
    """Each float operator whose order or functions matter, and in one row those that are exact in any order."""
    told, plain = [], []
    for row in FLOATS:
        names = ", ".join(f"`{name}`" for name in row.names.split())
        if row.order or row.note or row.exact is not Exact.BITS:
            exact = f"{row.exact.value}: {row.bound}" if row.bound else row.exact.value
            told.append((names, row.order, exact, row.note))
        else:
            plain.append(names)
    told.append((", ".join(plain), "", Exact.BITS.value, ""))
    head = ("operator", "inside a delegate", "equal on all devices", "not what ATen means")
    return markdown(head, ((n, o.replace("|", "\\|"), e.replace("|", "\\|"), note) for n, o, e, note in told))


# --- recordings ------------------------------------------------------------------------------------------


def recordings() -> str:
    """Every recording that differs from `define`, how, and why; those that differ alike in one row."""
    listed = Differences.load(GOLDEN / "differences.json")
    rows: dict[tuple[str, str], list[str]] = {}
    for path in sorted(GOLDEN.glob("*.zip")):
        for recording in read(path):
            outcome, cause = _outcome(recording), listed.cause(recording.id)
            if outcome or cause:
                why = listed.causes[cause]["what"] if cause else "**not listed**"
                rows.setdefault((outcome or "**the same**", why), []).append(f"`{recording.id}`")
    return markdown(("recordings", "here", "why"), ((" ".join(ids), *key) for key, ids in rows.items()))


def counts() -> str:
    """How many recordings there are of each operator, and how many are the same."""
    rows = []
    for path in sorted(GOLDEN.glob("*.zip")):
        found = list(read(path))
        same = sum(not _outcome(r) for r in found)
        h200 = sum(r.h200 is not None for r in found)
        rows.append((path.stem, len(found), same, len(found) - same, h200))
    rows.append(("all", *(sum(column) for column in zip(*(row[1:] for row in rows), strict=True))))
    return markdown(("operator", "recordings", "same bytes", "listed below", "other bytes on the H200"), rows)


def _outcome(recording: Recording) -> str:
    """Empty if the bytes are the same, else what happens here."""
    try:
        call = recording.call()
    except RefsimError as error:
        return f"refused: {error.what}"
    differing = _differing(recording)
    if not differing:
        return ""
    explained = not _differing(recording, Target(LAVAPIPE))
    return f"{differing} of {call.out.nbytes} bytes differ" + (", none under `lavapipe`" if explained else "")


def _differing(recording: Recording, target: Target | None = None) -> int:
    call = recording.call(target)
    return int(recording.differences(call.expected(recording.inputs()), recording.raw, call).size)


# --- rules -----------------------------------------------------------------------------------------------


def rules() -> str:
    """Every rule of `refsim check`; in one row those of one name that say the same of different arguments."""
    rows: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for rule in all_rules(runtime()):
        cells = (f"`{rule.name}`", rule.level.value, *map(_sentence, (rule.what, rule.why, rule.fix)))
        alike = tuple(re.sub(r"(argument) \d+", r"\1", cell) for cell in cells)
        rows.setdefault(alike, []).append(cells)
    told = (alike if len(set(found)) > 1 else found[0] for alike, found in rows.items())
    return markdown(("rule", "level", "finds", "why", "fix"), told)


def _sentence(text: str) -> str:
    """What stands in braces is a fact of the place that was found."""
    spelled = re.sub(r"\{a(\d+)\}", r"*argument \1*", text.replace("{a-1}", "*output*"))
    return re.sub(r"\{(\w+)\}", r"*\1*", spelled).replace("|", "\\|")


def libraries() -> str:
    """The libraries of kernels that run outside of delegates."""
    described = runtime()
    linked = {True: "yes", False: "no"}
    rows = ((f"`{n}`", len(k), linked[n in described.standard]) for n, k in described.kernels.items())
    return markdown(("library", "kernels", "taken to be linked"), rows)


# --- defects ---------------------------------------------------------------------------------------------


def defects() -> str:
    """What upstream's kernels do wrong where executors here do right, as the operators state it."""
    rows = []
    for name, op in OPS.items():
        for row in op.defects:
            shown = (
                "not: the runtime refuses it"
                if row.values is None
                else "yes"
                if not row.textures
                else "in textures"
            )
            rows.append((f"`{name}`", row.name, row.note, shown))
    return markdown(("operator", "defect", "what happens", "bytes known"), rows)


# --- modules of another build ----------------------------------------------------------------------------


def _called() -> Iterable[tuple[str, ModuleCall]]:
    return ((name, op.module) for name, op in OPS.items() if op.module is not None)


def _words(row: ModuleCall, *fields: str) -> Iterable[str]:
    """The words of some fields; what a later release does differently stands behind them."""
    for field in fields:
        found = [getattr(release, field) for release in (row, *row.later)]
        told = [each if isinstance(each, str) else " ".join(each) for each in found]
        yield "; later: ".join(f"`{each}`" if each else "" for each in dict.fromkeys(told))


def modules() -> str:
    """Each operator's modules, and what they are given."""
    rows = (
        (
            f"`{name}`",
            " ".join(f"`{shader.name}`" for shader in row.shaders),
            *_words(row, "bindings", "push", "spec"),
        )
        for name, row in _called()
        if row.shaders
    )
    return markdown(
        ("operator", "modules", "bindings from 0", "push words", "specialization words from 3"), rows
    )


def module_sizes() -> str:
    """Each operator's global size and workgroup."""
    rows = (
        (f"`{name}`", *_words(row, "global_size", "local_size")) for name, row in _called() if row.shaders
    )
    return markdown(("operator", "global size", "workgroup"), rows)


def packings() -> str:
    """How weights are packed, and for which operators."""
    rows = []
    for name, packing in PACKINGS.items():
        users = (f"`{op}`" for op, row in _called() if packing in row.packing.values())
        shaders = f"`{packing.shader}_buffer` `{packing.shader}_texture2d`"
        rows.append((name, ", ".join(users), shaders, packing.sizes_are, packing.texel))
    return markdown(("packing", "operators", "modules", "sizes", "texel (x, y)"), rows)


def kernel_keys() -> str:
    """The keys of a table of `refsim.toml`."""
    rows = (
        (f"`{name}`", key.kind, f"{key.meaning}{'; required' if key.required else ''}")
        for name, key in KEYS.items()
    )
    return markdown(("key", "value", "what it says"), rows)


# --- profiles --------------------------------------------------------------------------------------------

_CONVERT = {"clamp": "clamped first, NaN is 0", "int_min": "-2^31", "saturate": "nearest int32, NaN is 0"}


def profiles() -> str:
    """How each family of devices computes."""
    head = ("profile", "fused multiply-add", "denormal inputs", "float to int out of range", "describes")
    rows = []
    for name, row in families().items():
        p = row.profile
        if p is None:
            cells = ["not measured"] * 3
        else:
            cells = [
                "yes" if p.contract else "no",
                "flushed" if p.flush_denormals else "kept",
                _CONVERT[p.convert],
            ]
        rows.append((f"`{name}`", *cells, row.describes))
    return markdown(head, rows)


def measured() -> str:
    """What measured each field of a profile."""
    rows = []
    for name, row in families().items():
        by_source: dict[str, list[str]] = {}
        for field, source in row.sources.items():
            by_source.setdefault(source, []).append(field)
        found = [
            (", ".join(f"`{field}`" for field in fields), source) for source, fields in by_source.items()
        ]
        rows += [(f"`{name}`", *cells) for cells in found or [("-", row.missing)]]
    return markdown(("profile", "fields", "measured by"), rows)


# --- what --json prints ----------------------------------------------------------------------------------


def json_verbs() -> str:
    """A section for each verb, with its keys."""
    return _sections(json.loads(SCHEMA_FILE.read_text())["$defs"]["verbs"])


def json_objects() -> str:
    """A section for each object that verbs share, or that stands in lists."""
    held = json.loads(SCHEMA_FILE.read_text())["$defs"]
    return _sections({name: one for name, one in held.items() if "properties" in one})


def _sections(objects: dict[str, Any]) -> str:
    parts = []
    for name, one in objects.items():
        table = markdown(("key", "type", "meaning"), _keys(one))
        parts.append(f"### {name}\n\n{one['description']}\n\n{table}")
    return "\n" + "\n".join(parts)


def _keys(one: dict[str, Any], within: str = "") -> Iterable[tuple[str, str, str]]:
    """Every key of an object; those of objects without a name of their own stand below it."""
    for key, row in one["properties"].items():
        optional = "" if key in one.get("required", ()) else " (not always)"
        yield f"`{within}{key}`{optional}", _type(row), row["description"]
        inner, path = row, f"{within}{key}"
        while "properties" not in inner and (below := _below(inner)) is not None:
            inner, mark = below
            path += mark
        if "properties" in inner:
            yield from _keys(inner, f"{path}.")


def _below(row: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
    """What a list, a map or a value that may be null holds."""
    if isinstance(row.get("items"), dict):
        return row["items"], "[]"
    if isinstance(row.get("additionalProperties"), dict):
        return row["additionalProperties"], "[NAME]"
    some = [each for each in row.get("anyOf", ()) if each.get("type") != "null"]
    return (some[0], "") if len(some) == 1 else None


def _type(row: dict[str, Any]) -> str:
    """The type in words, with links to the objects."""
    if "$ref" in row:
        name = row["$ref"].rpartition("/")[2]
        return _PLAIN.get(name) or f"[{name}](#{name})"
    if "anyOf" in row:
        return " or ".join(map(_type, row["anyOf"]))
    if "const" in row:
        return f"`{row['const']}`"
    if "enum" in row:
        return ", ".join(f"`{word}`" for word in row["enum"])
    if row.get("type") == "array":
        return f"list of {_type(row['items'])}"
    if row.get("type") == "object" and isinstance(row.get("additionalProperties"), dict):
        return f"by name: {_type(row['additionalProperties'])}"
    kind = row["type"]
    return kind if isinstance(kind, str) else " or ".join(kind)


#: Definitions that are no objects: their type in words.
_PLAIN = {
    "count": "integer", "number": "number", "value": "value", "shape": "list of integers", "layout": "layout",
    "rivals": "two causes", "dump_value": "sidecar",
}  # fmt: skip


TABLES: dict[str, Callable[[], str]] = {
    "profiles": profiles,
    "measured": measured,
    "padding": padding,
    "floats": floats,
    "counts": counts,
    "defects": defects,
    "recordings": recordings,
    "rules": rules,
    "libraries": libraries,
    "modules": modules,
    "module_sizes": module_sizes,
    "packings": packings,
    "kernel_keys": kernel_keys,
    "json_verbs": json_verbs,
    "json_objects": json_objects,
}


def renewed(text: str) -> str:
    """The page with every table as it should be."""
    return _TABLE.sub(lambda m: m[1] + TABLES[m[2]]() + m[3], text)


def main() -> int:
    stale = 0
    for page in PAGES:
        old = page.read_text()
        new = renewed(old)
        if new == old:
            continue
        if "--write" in sys.argv[1:]:
            page.write_text(new)
            print(f"wrote {page.name}")
        else:
            print(f"{page.name}: a table is stale; fix: python docs/tables.py --write")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
