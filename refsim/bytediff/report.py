"""The comparison itself: counts by kind of byte, places, legality under profiles, pattern and causes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np

from refsim.bytediff import text
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
#: Where no edit explains the wrong buffers before, a search takes so many seconds at most: few find one then.
LATER = 1.0
#: Profile -> (bool per cell: the actual byte is what it gives, what it explains and contradicts).
Legal = Mapping[str, tuple[np.ndarray, Allowed]]


class Report(Findings):
    """What a diff found, for the caller of `refsim.diff`: the findings, and ``str()`` and ``as_json()`` of them."""

    def __str__(self) -> str:
        return "\n".join(line for line, _ in text.styled(self))

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
    ``like`` are reports of other wrong buffers of the same kernel: the edits that explain them are tried first. Where
    none does, the search is shorter.
    Raises RawBufferError, LayoutError or ShapeError for buffers that do not fit, ParameterError for profile and guards.

    >>> refsim.diff(bytes(16), bytes(15) + b"x", "4W4C", (1, 4, 1, 1)).counts[-1].kind
    'word padding'
    """
    if type(guards) is not int or not 0 <= guards <= OUTSIDE // 2:
        need = f"a whole number from 0 to {OUTSIDE // 2}"
        raise ParameterError("diff", "guards: wrong count of words", got=repr(guards), need=need)
    if explain and call is not None and is_laid_flat(call.call):
        places = {"limit": limit, "title": title, "geometry": geometry}
        shown = diff(expected, actual, call=call, device=True, explain=False, **places)  # type: ignore[arg-type]
        return _explained_packed(shown, search, seen)
    desc = _described(expected, actual, layout, shape, call)
    if actual_layout is not None and (laid := TensorDesc(desc.shape, actual_layout)) != desc:  # type: ignore[arg-type]
        right, held = (_buffer(one, of, "")[0].unpack() for one, of in ((expected, desc), (actual, laid)))
        told = diff(
            right, held, desc.layout, desc.shape, call=call, others=others, profile=profile, limit=limit,
            explain=explain, search=search, seen=seen,
        )  # fmt: skip
        shown = diff(right, actual, laid.layout, laid.shape, explain=explain, limit=0, title=title)
        return _told_there(told, shown)
    if call is not None and call.call.out != desc:
        raise ShapeError("diff", "the call writes another tensor", got=desc, need=call.call.out)
    want, want_tail = _buffer(expected, desc, "expected")
    got, got_tail = _buffer(actual, desc, "actual")
    lacking = any(holds_elements(given, desc) for given in (expected, actual))
    compared = np.ones(len(cells(want)), bool)
    if lacking:
        compared = byte_kinds(desc) == ByteKind.VALUE
    elif device and call is not None and desc.is_int8:
        compared = call.call.device_defined()
    known = {f"input {name}": b.raw for name, b in call.inputs.items()} if call is not None else {}
    ev = Evidence(want, got, compared, call, previous, {**known, **(others or {})}, geometry, guards)
    chosen = profile.name if isinstance(profile, Profile) else profile
    legal = _legal(ev, profile) if explain or chosen is not None else {}
    differing = int(ev.differing.sum())
    report = Report(
        ev,
        title or f"{desc}",
        (*_counts(ev, UNKNOWN if lacking else UNSPECIFIED), *_tail(want_tail, got_tail)),
        _differences(ev, legal, limit),
        differing,
        {name: allowed for name, (_, allowed) in legal.items()},
        chosen,
        pattern=(),
        causes=(Cause.seen(*seen, differing),) if seen is not None and differing else (),
    )
    if not explain:
        return report
    with doing.explaining(str(desc if call is None else call.case)):
        edits, seconds = exact_edits(like), allowed() if search is None else search
        seconds = 0.0 if seen else min(seconds, LATER) if like and not edits else seconds
        rest, causes = explained(ev, seconds, edits)
    elsewhere = [] if holds_elements(actual, desc) else _laid_as(ev)
    pattern = (*rest.told, *elsewhere, *summary(rest.evidence))
    report = replace(report, pattern=pattern, causes=(*report.causes, *causes))
    return report if report.known or ev.reversed else replace(report, facts=tuple(facts(rest.evidence)))


def _explained_packed(shown: Report, search: float | None, seen: tuple[str, str] | None) -> Report:
    """Places on flat tensors, with the causes of the same values in packed ones: refsim's kernels are packed."""
    ev, packed = shown.evidence, packed_twin(shown.evidence.call)
    inputs = {name: packed_array(ev.call, array) for name, array in ev.arrays.items()}
    arrays = {name: PackedBuffer.pack(inputs[name], desc.layout) for name, desc in packed.descs.items()}
    want, got = (packed.stored(buffer.unpack(), arrays) for buffer in (ev.expected, ev.actual))
    assert ev.bound is not None
    call = BoundCase(ev.bound.case, packed, arrays)
    told = diff(want, got, call=call, device=True, limit=1, search=search, seen=seen)
    return replace(shown, pattern=told.pattern, causes=told.causes, facts=told.facts)


def _told_there(told: Report, shown: Report) -> Report:
    """Places in the actual buffer, which lies in another layout; values and their causes as in the expected one."""
    places = tuple(
        replace(row, place=at_index(shown.desc, row.place.index), writer=None) for row in told.differences
    )
    named = {cause.name for cause in told.causes}
    addresses = [cause for cause in shown.causes if cause.exact and cause.name not in named]
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
    others = [TensorDesc(ev.desc.shape, row) for row in (*INT8_LAYOUTS, *FOREIGN) if row != ev.desc.layout]
    large = [desc for desc in others if desc.nbytes == ev.desc.nbytes]
    right = ev.logical.ravel()
    fitting = [str(d.layout) for d in large if np.array_equal(unpacked(d, ev.got).ravel(), right)]
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


def _counts(ev: Evidence, left_out: str) -> Iterator[Count]:
    masks = {kind.label: (ev.kinds == kind) & ev.compared for kind in ByteKind}
    for name, mask in {**masks, left_out: ~ev.compared}.items():
        want, got = (held[mask].view(np.uint8) for held in (ev.want, ev.got))
        if len(want):
            different = 0 if name == UNKNOWN else int((want != got).sum())
            yield Count(name, len(want), different, name != left_out)


def _tail(*tails: np.ndarray) -> Iterator[Count]:
    """The bytes behind the tensor that come from rounding an allocation up to 16; no kernel writes or reads them."""
    if count := max(map(len, tails)):
        want, got = (tail if len(tail) else np.zeros(count, np.uint8) for tail in tails)
        yield Count(TAIL, count, int((want != got).sum()), False)


def _legal(ev: Evidence, chosen: Profile | str | None) -> Legal:
    """What each profile would give, the one that the device is allowed among them; none without the call."""
    known = {**PROFILES, chosen.name: chosen} if isinstance(chosen, Profile) else PROFILES
    if ev.bound is None and chosen is not None:
        got = chosen.name if isinstance(chosen, Profile) else chosen
        raise ParameterError("diff", "a profile needs the call that wrote the buffer", got=got)
    if isinstance(chosen, str) and chosen not in known:
        raise ParameterError("diff", "unknown profile", got=repr(chosen), need=choices.need(chosen, known))
    found: dict[str, tuple[np.ndarray, Allowed]] = {}
    for name, profile in known.items() if ev.bound is not None else ():
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
    listed = at[np.argsort(ev.kinds[at], kind="stable")[:limit]]  # elements before padding
    size = ev.want.itemsize
    return tuple(
        Difference(
            at_byte(ev.desc, cell * size),
            ev.expected.data[cell].item(),
            ev.actual.data[cell].item(),
            ByteKind(int(ev.kinds[cell])).label,
            writer,
            tuple(name for name, (right, _) in legal.items() if right[cell]),
        )
        for cell, writer in zip(listed.tolist(), ev.writers(listed * size // 4), strict=True)
    )
