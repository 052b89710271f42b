"""What docs/numerics.md says of operators: their padding, the float ones, and what upstream's kernels do wrong."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import product

from page_tables.markdown import markdown
from refsim.aten.row import Exact
from refsim.aten.table import ROWS as FLOATS
from refsim.core.buffer import ByteKind, byte_kinds
from refsim.core.errors import LayoutError
from refsim.core.rng import Rng
from refsim.core.tensor import TensorDesc
from refsim.ops.base.arg import Kind
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.defect import Defect
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call

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
            defects = row.defects and "[known defects](#known-defects) with some groups"
            told.append((names, row.order, exact, row.note or defects or ""))
        else:
            plain.append(names)
    told.append((", ".join(plain), "", Exact.BITS.value, ""))
    head = ("operator", "inside a delegate", "equal on all devices", "not what ATen means")
    return markdown(head, ((n, o.replace("|", "\\|"), e.replace("|", "\\|"), note) for n, o, e, note in told))


# --- defects ---------------------------------------------------------------------------------------------


def defects() -> str:
    """What upstream does wrong where executors here do right, as the operators state it."""
    rows = [
        (f"`{name}`", row.name, row.note, _shown(row))
        for name, op in OPS.items()
        for row in op.upstream.defects
    ]
    rows += [(f"`{row.names}`", defect.name, defect.note, "no") for row in FLOATS for defect in row.defects]
    return markdown(("operator", "defect", "what happens", "bytes known"), rows)


def _shown(row: Defect) -> str:
    """Which bytes of a buffer with this defect are known."""
    if row.values is None:
        return "not: the runtime refuses it"
    if row.strays is not None:
        return "yes, but where memory behind a tensor is read"
    return "in textures" if row.textures else "yes"
