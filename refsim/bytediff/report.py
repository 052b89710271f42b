"""The comparison itself: counts by kind of byte, places, legality under profiles, pattern and causes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np

from refsim.bytediff import text
from refsim.bytediff.defects import Start
from refsim.bytediff.evidence import Evidence, cells
from refsim.bytediff.facts import facts, summary
from refsim.bytediff.findings import Allowed, Count, Difference, Findings
from refsim.bytediff.html import render
from refsim.bytediff.invocations import Geometry
from refsim.bytediff.rank import Cause, exact_edits, explained
from refsim.bytediff.search import allowed
from refsim.core import choices, doing
from refsim.core.buffer import OUTSIDE, ByteKind, PackedBuffer, byte_kinds, holds_elements, unpacked
from refsim.core.errors import MissingDependencyError, ParameterError, RawBufferError, ShapeError
from refsim.core.layout import FOREIGN, INT8_LAYOUTS, Layout, layout
from refsim.core.locate import at_byte, at_index
from refsim.core.plain import plain
from refsim.core.qmath import PROFILES, Profile
from refsim.core.tensor import TensorDesc
from refsim.ops.base.binding import BoundCase
from refsim.ops.flat.call import is_laid_flat, packed_array, packed_twin

Raw = bytes | np.ndarray | PackedBuffer
UNSPECIFIED = "unspecified padding"
UNKNOWN = "unknown padding"
TAIL = "allocation tail"
#: Profile -> (bool per cell: the actual byte is what it gives, what it explains and contradicts).
Legal = Mapping[str, tuple[np.ndarray, Allowed]]


class Report(Findings):
    """What a diff found, for the caller of `refsim.diff`: the findings, and ``str()`` and ``as_json()`` of them."""

    def __str__(self) -> str:
        return "\n".join(text.lines(self))

    def __repr__(self) -> str:
        cause = f", {self.causes[0]}" if self.causes else ""
        return f"Report({text.verdict(self)!r}{cause})"

    def _repr_html_(self) -> str | None:
        """The page of --html, in a frame of its own; None, so that a notebook shows the text, without jinja2."""
        with suppress(MissingDependencyError):
            page = escape(render(self))
            return f'<iframe srcdoc="{page}" style="width:100%;height:640px;border:0"></iframe>'
        return None

    def as_json(self) -> dict[str, Any]:
        """The report as plain data."""
        found: dict[str, Any] = plain(self)
        return found


def diff(
    expected: Raw,
    actual: Raw,
    layout: Layout | str | None = None,
    shape: Sequence[int] | None = None,
    *,
    call: BoundCase | None = None,
    previous: BoundCase | None = None,
    others: Mapping[str, np.ndarray] | None = None,
    profile: Profile | str | None = None,
    device: bool = False,
    limit: int = 20,
    title: str = "",
    explain: bool = True,
    geometry: Geometry | None = None,
    search: float | None = None,
    actual_layout: Layout | str | None = None,
    seen: tuple[str, str] | None = None,
    like: Sequence[Report] = (),
    guards: int = 0,
) -> Report:
    """Compare two raw buffers of one tensor and say what differs, where, and why.

    ``layout`` and ``shape`` (NCHW) may be left out where a buffer is a PackedBuffer. ``call``, the bound call that
    should have written the buffer, is what most causes need; ``previous`` is the call before it on the same device
    and ``others`` are raw bytes of buffers that might have been mixed up. ``device`` leaves out the padding that
    upstream's kernels leave to chance; ``profile`` names the numerics that the device is allowed. ``limit`` bounds
    the differences listed. ``explain`` False: only what differs, without pattern and causes, which take their time.
    ``geometry`` is how the kernel was launched, if not as refsim launches its own. ``search`` is how many seconds the
    search for an edit of the kernel may take on a usual machine, 10 if it is not given; 0: there is none.
    An int8 array of the tensor's own shape, of two dims or more, holds its elements: padding, which it lacks, is then
    not compared. ``actual_layout`` is the layout of the actual buffer if it is another: then elements are compared, and
    places are those in that buffer.
    ``seen`` is what running the call again showed, a name and words: then it is the first cause, and no edit is sought.
    ``guards``: so many guard words lay on both sides of each buffer that the kernel read, as executors put them there;
    what else lies outside is taken as 0.
    ``like`` are reports of other wrong buffers of the same kernel: the edits that explain them are tried first.
    Raises RawBufferError, LayoutError or ShapeError for buffers that do not fit, ParameterError for profile and guards.

    >>> refsim.diff(bytes(16), bytes(15) + b"x", "4W4C", (1, 4, 1, 1)).counts[-1].kind
    'word padding'
    """
    if type(guards) is not int or not 0 <= guards <= OUTSIDE // 2:
        need = f"a whole number from 0 to {OUTSIDE // 2}"
        raise ParameterError("diff", "guards: wrong count of words", got=repr(guards), need=need)
    if explain and call is not None and is_laid_flat(call.call):
        return _flat(expected, actual, call, geometry, limit, title, search, seen)
    desc = _described(expected, actual, layout, shape, call)
    if actual_layout is not None and (laid := TensorDesc(desc.shape, actual_layout)) != desc:  # type: ignore[arg-type]
        options = {"profile": profile, "limit": limit, "explain": explain}
        more = {"others": others, "search": search, "seen": seen}
        return _relaid(expected, actual, desc, laid, title, call, options, more)
    if call is not None and call.call.out != desc:
        raise ShapeError("diff", "the call writes another tensor", got=desc, need=call.call.out)
    ev, counts = _compared(expected, actual, desc, device, call, previous, others or {}, geometry)
    ev = replace(ev, guards=guards)
    chosen, legal = _legality(ev, profile, explain)
    rest, causes = Start(ev), list[Cause]()
    if explain:
        with doing.explaining(str(desc if call is None else call.case)):
            seconds = allowed() if search is None else search
            rest, causes = explained(ev, 0 if seen else seconds, exact_edits(like))
    if seen is not None and ev.differing.any():
        causes.insert(0, Cause.seen(*seen, int(ev.differing.sum())))
    report = Report(
        ev,
        title or f"{desc}",
        counts,
        _differences(ev, legal, limit),
        int(ev.differing.sum()),
        {name: allowed for name, (_, allowed) in legal.items()},
        chosen,
        (*rest.told, *([] if holds_elements(actual, desc) else _laid_as(ev)), *summary(rest.evidence))
        if explain
        else (),
        tuple(causes),
    )
    if not explain or report.known or ev.reversed:
        return report
    return replace(report, facts=tuple(facts(rest.evidence)))


def _compared(
    expected: Raw, actual: Raw, desc: TensorDesc, device: bool, call: BoundCase | None, previous: BoundCase | None,
    others: Mapping[str, np.ndarray], geometry: Geometry | None,
) -> tuple[Evidence, tuple[Count, ...]]:  # fmt: skip
    """The two buffers with what is known of them, and their bytes by kind: how many there are, and how many differ."""
    want, want_tail = _buffer(expected, desc, "expected")
    got, got_tail = _buffer(actual, desc, "actual")
    compared = np.ones(len(cells(want)), bool)
    lacking = any(holds_elements(given, desc) for given in (expected, actual))
    if lacking:
        compared = byte_kinds(desc) == ByteKind.VALUE
    elif device and call is not None and desc.is_int8:
        compared = call.call.device_defined()
    known = {f"input {name}": b.raw for name, b in call.inputs.items()} if call is not None else {}
    ev = Evidence(want, got, compared, call, previous, {**known, **others}, geometry)
    return ev, (*_counts(ev, UNKNOWN if lacking else UNSPECIFIED), *_tail(want_tail, got_tail))


def _legality(ev: Evidence, profile: Profile | str | None, explain: bool) -> tuple[str | None, Legal]:
    """The name of the profile that the device is allowed, and what each profile would give; none if nothing asks."""
    own = {profile.name: profile} if isinstance(profile, Profile) else {}
    chosen = profile.name if isinstance(profile, Profile) else profile
    legal = _legal(ev, own) if explain or chosen is not None else {}
    if chosen is not None and ev.bound is None:
        raise ParameterError("diff", "a profile needs the call that wrote the buffer", got=chosen)
    if chosen is not None and chosen not in legal:
        raise ParameterError("diff", "unknown profile", got=repr(chosen), need=choices.need(chosen, legal))
    return chosen, legal


def _flat(
    expected: Raw,
    actual: Raw,
    call: BoundCase,
    geometry: Geometry | None,
    limit: int,
    title: str,
    search: float | None,
    seen: tuple[str, str] | None,
) -> Report:
    """Places on flat tensors, with the causes of the same values in packed ones: refsim's kernels are packed."""
    shown = diff(
        expected, actual, call=call, device=True, limit=limit, title=title, explain=False, geometry=geometry
    )
    inputs = {name: packed_array(call.call, buffer.unpack()) for name, buffer in call.inputs.items()}
    packed = packed_twin(call.call)
    arrays = {name: PackedBuffer.pack(inputs[name], desc.layout) for name, desc in packed.descs.items()}
    values = (_buffer(one, shown.desc, "")[0].unpack() for one in (expected, actual))
    want, got = (packed.stored(array, arrays) for array in values)
    told = diff(
        want, got, call=BoundCase(call.case, packed, arrays), device=True, limit=1, search=search, seen=seen
    )
    return replace(shown, pattern=told.pattern, causes=told.causes, facts=told.facts)


def _relaid(
    expected: Raw,
    actual: Raw,
    desc: TensorDesc,
    laid: TensorDesc,
    title: str,
    call: BoundCase | None,
    options: dict[str, Any],
    more: dict[str, Any],
) -> Report:
    """Places in the actual buffer, which lies in another layout; values and their causes as in the expected one."""
    want, got = (_buffer(one, of, "")[0].unpack() for one, of in ((expected, desc), (actual, laid)))
    told = diff(want, got, desc.layout, desc.shape, call=call, **options, **more)
    shown = diff(want, actual, laid.layout, laid.shape, explain=options["explain"], limit=0, title=title)
    places = tuple(
        replace(row, place=at_index(laid, row.place.index), writer=None) for row in told.differences
    )
    addresses = [
        cause for cause in shown.causes if cause.exact and cause.name not in {c.name for c in told.causes}
    ]
    return replace(
        told,
        evidence=shown.evidence,
        title=shown.title,
        counts=shown.counts,
        differences=places,
        pattern=tuple(dict.fromkeys((*shown.pattern, *told.pattern))),
        causes=(*addresses, *told.causes),
        facts=() if addresses else told.facts,
    )


def _laid_as(ev: Evidence) -> Iterator[str]:
    """In which other layouts the actual bytes are exactly the right values."""
    if not ev.desc.is_int8 or not ev.differing.any() or ev.reversed:
        return
    rows = [TensorDesc(ev.desc.shape, row) for row in (*INT8_LAYOUTS, *FOREIGN) if row != ev.desc.layout]
    fitting = [
        str(row.layout)
        for row in rows
        if row.nbytes == ev.desc.nbytes and np.array_equal(unpacked(row, ev.got).ravel(), ev.logical.ravel())
    ]
    if fitting:
        yield f"these are {' or '.join(fitting)} bytes, all of them right: --actual-layout {fitting[0]}"


def _described(
    expected: Raw, actual: Raw, row: Layout | str | None, shape: Sequence[int] | None, call: BoundCase | None
) -> TensorDesc:
    if row is not None and shape is not None:
        return TensorDesc(tuple(shape), layout(row))
    for given in (expected, actual):
        if isinstance(given, PackedBuffer):
            return given.desc
    if call is not None:
        return call.call.out
    raise ShapeError("diff", "raw bytes need a layout and a shape", got=f"layout {row}, shape {shape}")


def _buffer(given: Raw, desc: TensorDesc, which: str) -> tuple[PackedBuffer, np.ndarray]:
    """The buffer, and the bytes that a device's allocation has beyond it."""
    if isinstance(given, PackedBuffer):
        if given.desc != desc:
            raise RawBufferError(f"diff: {which}", "is another tensor", got=given.desc, need=desc)
        return given, np.zeros(0, np.uint8)
    if not isinstance(given, bytes):
        given = np.asarray(given)  # a tensor of torch perhaps
    if holds_elements(given, desc):
        return PackedBuffer.pack(given, desc.layout), np.zeros(0, np.uint8)  # type: ignore[arg-type]
    raw = np.frombuffer(given, np.uint8) if isinstance(given, bytes) else given.view(np.uint8).reshape(-1)
    try:
        return PackedBuffer.from_raw(raw, desc.shape, desc.layout), raw[desc.nbytes :]
    except RawBufferError as error:
        raise RawBufferError(f"diff: {which}", error.what, got=error.got, need=error.need) from error


def _counts(ev: Evidence, left_out: str) -> list[Count]:
    size = 1 if ev.desc.is_int8 else 4
    raw = ev.want != ev.got
    found = []
    for kind in ByteKind:
        mask = (ev.kinds == kind) & ev.compared
        if mask.any():
            found.append(Count(kind.label, int(mask.sum()) * size, _bytes_differing(ev, raw & mask), True))
    spared = ~ev.compared
    if spared.any():
        differing = 0 if left_out == UNKNOWN else int((raw & spared).sum())
        found.append(Count(left_out, int(spared.sum()), differing, False))
    return found


def _bytes_differing(ev: Evidence, mask: np.ndarray) -> int:
    if ev.desc.is_int8:
        return int(mask.sum())
    return int((ev.want[mask].view(np.uint8) != ev.got[mask].view(np.uint8)).sum())


def _tail(want: np.ndarray, got: np.ndarray) -> list[Count]:
    """The bytes behind the tensor that come from rounding an allocation up to 16; no kernel writes or reads them."""
    count = max(len(want), len(got))
    if not count:
        return []
    both = min(len(want), len(got))
    differing = int((want[:both] != got[:both]).sum()) if both else int((np.r_[want, got] != 0).sum())
    return [Count(TAIL, count, differing, False)]


def _legal(ev: Evidence, extra: Mapping[str, Profile]) -> Legal:
    """What each profile, and each of the ``extra`` ones, would give."""
    if ev.bound is None:
        return {}
    found = {}
    for name, profile in {**PROFILES, **extra}.items():
        if not ev.differing.any():
            found[name] = (ev.want == ev.got, Allowed(0, 0))
            continue
        own = profile == ev.call.target.profile
        right = (ev.right if own else cells(ev.call.under(profile).expected(ev.inputs))) == ev.got
        explained = int((right & ev.differing).sum())
        contradicted = int((~right & ~ev.differing & ev.compared).sum())
        found[name] = (right, Allowed(explained, contradicted))
    return found


def _differences(ev: Evidence, legal: Legal, limit: int) -> tuple[Difference, ...]:
    at = np.flatnonzero(ev.differing)
    order = np.argsort(ev.kinds[at], kind="stable")  # elements before padding
    return tuple(_difference(ev, int(cell), legal) for cell in at[order][:limit])


def _difference(ev: Evidence, cell: int, legal: Legal) -> Difference:
    byte = cell * (1 if ev.desc.is_int8 else 4)
    want, got = ev.expected.data[cell], ev.actual.data[cell]
    return Difference(
        at_byte(ev.desc, byte),
        want.item(),
        got.item(),
        ByteKind(int(ev.kinds[cell])).label,
        ev.writer(byte // 4),
        tuple(name for name, (right, _) in legal.items() if right[cell]),
    )
