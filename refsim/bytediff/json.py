"""Findings as plain data: what `--json` prints and what programs read."""

from __future__ import annotations

from typing import Any

from refsim.bytediff.findings import Count, Difference, Findings


def render(findings: Findings) -> dict[str, Any]:
    """Dicts, lists, numbers and strings; docs/json.md lists the keys."""
    return {
        "title": findings.title,
        "configuration": findings.configuration,
        "shape": list(findings.desc.shape),
        "layout": findings.desc.layout.name,
        "same": findings.same,
        "differing": findings.differing,
        "counts": [_count(count) for count in findings.counts],
        "profile": findings.profile,
        "legal": {name: {"explains": a, "contradicts": b} for name, (a, b) in findings.legal.items()},
        "pattern": list(findings.pattern),
        "causes": [cause.as_json() for cause in findings.causes],
        "facts": list(findings.facts),
        "differences": [_difference(difference) for difference in findings.differences],
    }


def _count(count: Count) -> dict[str, Any]:
    return {
        "kind": count.kind, "bytes": count.bytes, "different": count.differing, "compared": count.compared,
    }  # fmt: skip


def _difference(difference: Difference) -> dict[str, Any]:
    place, writer = difference.place, difference.writer
    found: dict[str, Any] = {
        "byte": place.byte,
        "index": list(place.index),
        "word": place.word,
        "lane": place.lane,
        "block": place.block,
        "kind": difference.kind,
        "expected": difference.expected,
        "actual": difference.actual,
        "legal": list(difference.legal),
    }
    if writer is not None:
        found |= {"workgroup": writer.workgroup, "invocation": writer.invocation}
    return found
