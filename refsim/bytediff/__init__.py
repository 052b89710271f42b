"""Compare two buffers byte by byte: what differs, where, in which pattern, and what probably caused it."""

from __future__ import annotations

from refsim.bytediff.findings import Count, Difference
from refsim.bytediff.rank import Cause
from refsim.bytediff.report import Report, diff

__all__ = ["Cause", "Count", "Difference", "Report", "diff"]
