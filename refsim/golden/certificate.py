"""A certificate for people: its sentences, and the page."""

from __future__ import annotations

from collections.abc import Iterator

import refsim
from refsim.core.counted import counted
from refsim.core.html import rendered
from refsim.golden.causes import likely, table_of
from refsim.golden.certify import (
    KNOWN_DEFECT,
    LEGAL,
    MISSING,
    SAME,
    VERDICTS,
    WRONG,
    Certificate,
    Verdict,
)

MEANINGS = {
    SAME: "every byte that the kernel defines is the definition's",
    LEGAL: "other bytes, which a device may write that rounds as a profile says",
    KNOWN_DEFECT: "the bytes of a defect that ExecuTorch's runtime has on every device",
    WRONG: "bytes that nothing of this explains, or an output of another size",
    MISSING: "the program of this case gave no outputs",
}


def verdict(certificate: Certificate) -> str:
    """The one sentence that the page begins with."""
    total = len(certificate.verdicts)
    count = {name: sum(row.verdict == name for row in certificate.verdicts) for name in VERDICTS}
    said = [f"{count[name]} {name}" for name in VERDICTS if count[name]]
    right = "all right" if certificate.right else "not all right"
    return f"{counted(total, 'case')}, {right}: {', '.join(said)}"


def what(row: Verdict) -> Iterator[str]:
    """What there is to say about a case that is not the same."""
    if row.verdict == LEGAL:
        yield f"legal under {', '.join(row.judged.profiles)}" + (
            f"; {row.detail.otherwise}" if row.detail.otherwise else ""
        )
    elif row.verdict == KNOWN_DEFECT:
        yield row.judged.known.note if row.judged.known else ""
    elif row.verdict == MISSING:
        yield "no outputs"
    elif row.detail.unfit:
        yield row.detail.unfit
    else:
        yield f"{row.detail.differing} differ; {'; '.join(row.detail.pattern)}"
        yield from likely(row.detail.causes)


def page(certificate: Certificate) -> str:
    """The page as HTML. MissingDependencyError without jinja2."""
    return rendered(
        "certificate",
        "refsim.golden",
        "certificate.html",
        certificate=certificate,
        verdict=verdict(certificate),
        verdicts=VERDICTS,
        meanings=MEANINGS,
        deviations=certificate.deviations,
        what=what,
        causes=table_of(certificate.causes),
        version=refsim.__version__,
    )
