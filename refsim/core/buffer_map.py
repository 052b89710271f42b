"""A buffer as a notebook shows it: a cell per element in the order of memory, padding marked."""

from __future__ import annotations

from collections.abc import Sequence

from refsim.core.choices import more

#: Elements that are drawn: so many rows of so many.
ROWS, ACROSS = 16, 16
#: The colour of values, of padding in words of values, and of padding words, with some of what is behind it.
COLOURS = ("#4a90d940", "#d9904a60", "#88888860")


def drawn(
    title: str, cells: Sequence[tuple[str, str, int]], labels: Sequence[str], size: int, rest: int
) -> str:
    """An HTML table of cells: what they hold, what stands under the mouse, and their kind, of ``labels``.

    Each has ``size`` bytes; ``rest`` more are left out.
    """
    rows = []
    for first in range(0, len(cells), ACROSS):
        row = "".join(
            f"<td title='{where}' style='background:{COLOURS[kind]};padding:0 4px'>{value}</td>"
            for value, where, kind in cells[first : first + ACROSS]
        )
        rows.append(f"<tr><th>{first * size}</th>{row}</tr>")
    key = ", ".join(
        f"<span style='background:{c}'>{label}</span>" for c, label in zip(COLOURS, labels, strict=True)
    )
    table = f"<table style='font-family:monospace;border-collapse:collapse'>{''.join(rows)}</table>"
    return f"<p>{title}</p>{table}<p>{key}{f'; {more(rest)}' if rest else ''}</p>"
