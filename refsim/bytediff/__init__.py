"""Byte-level comparison of two buffers: what differs, where, in which pattern, and the likely cause."""

from __future__ import annotations

from refsim.bytediff.findings import Count, Difference
from refsim.bytediff.rank import Cause
from refsim.bytediff.report import Report, diff

__all__ = ["Cause", "Count", "Difference", "Report", "diff"]
