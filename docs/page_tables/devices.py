"""What docs/numerics.md says of devices: the recordings of one, and the profiles of all."""

from __future__ import annotations

from pathlib import Path

from page_tables.markdown import markdown
from refsim.core.errors import RefsimError
from refsim.core.qmath import LAVAPIPE
from refsim.formats.profiles import families
from refsim.formats.recordings import RecordedDifferences, Recording, read
from refsim.ops.base.target import Target

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "upstream"


# --- recordings ------------------------------------------------------------------------------------------


def recordings() -> str:
    """Every recording that differs from `define`, how, and why; those that differ alike in one row."""
    listed = RecordedDifferences.load(GOLDEN / "differences.json")
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
