"""HTML pages out of jinja2 templates: text is escaped for HTML, and for what else it might do to a reader's eye."""

from __future__ import annotations

from importlib.resources import files

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
