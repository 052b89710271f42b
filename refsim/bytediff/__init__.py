"""Byte-level comparison of two buffers: what differs, where, in which shape, and the likely cause."""

from __future__ import annotations

from refsim.bytediff.rank import Cause
from refsim.bytediff.report import Count, Difference, Report, diff

__all__ = ["Cause", "Count", "Difference", "Report", "diff"]
