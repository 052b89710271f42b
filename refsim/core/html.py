"""HTML pages out of jinja2 templates: text is escaped for HTML, and for what else it might do to a reader's eye."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from refsim.core.choices import more
from refsim.core.errors import MissingDependencyError
from refsim.core.escape import escaped

#: The template that all pages extend: blocks ``title``, ``style`` and ``body``.
FRAME = "page.html"


def rendered(
    page: str, package: str, template: str, /, *, back: tuple[str, str] | None = None, **content: object
) -> str:
    """A page of a package's folder ``templates``, which fills in `FRAME`; all pages look alike.

    ``back`` is where a link at its head leads, and what it says. MissingDependencyError, which names the ``page``,
    without jinja2.
    """
    try:
        import jinja2
    except ImportError as error:
        raise MissingDependencyError(page, "jinja2 is not installed", need="pip install jinja2") from error
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        finalize=_shown,
        loader=jinja2.DictLoader({FRAME: _template("refsim.core", FRAME)}),
    )
    style = _template("refsim.core", "page.css")
    return environment.from_string(_template(package, template)).render(content, style=style, back=back)


def _template(package: str, name: str) -> str:
    return files(package).joinpath("templates").joinpath(name).read_text(encoding="utf-8")


def _shown(value: object) -> object:
    # what a template marks as safe is of another type
    return escaped(value, keep="\n") if type(value) is str else value


# --- a buffer in a notebook ------------------------------------------------------------------------------


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
