"""Which of the sources an error came through, as its traceback tells a reader."""

from __future__ import annotations

import traceback

#: Folder of a checkout -> its name in a copy (`mutants.tree.PARTS`, which is not imported here).
SOURCES = {"refsim": "refsim", "gpu": "refsim_gpu"}

Frames = list[tuple[str, str]]


def through(error: BaseException) -> Frames:
    """(file, function) of the sources that an error came through, the outermost first, and then of what it came of."""
    places = (_place(frame) for frame in traceback.extract_tb(error.__traceback__))
    found = [place for place in places if place is not None]
    return found + (through(error.__cause__) if error.__cause__ is not None else [])


def _place(frame: traceback.FrameSummary) -> tuple[str, str] | None:
    for part, folder in SOURCES.items():
        at = frame.filename.rfind(f"/{folder}/")
        if at >= 0 and "/site-packages/" not in frame.filename:
            return f"{part}/{frame.filename[at + len(folder) + 2 :]}", frame.name
    return None
