"""What MkDocs does beyond its own: README.md is the first page, and files outside docs/ that a page links to are pages.

GitHub shows README.md and docs/ where they lie. In the site README.md is index.md, docs/x.md is x.md, and any other
file FILE of the repository is files/FILE.md: a page as it is, a source as a block of code. A notebook docs/x.ipynb is
x.md, with the outputs that it holds.
"""

from __future__ import annotations

import base64
import json
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
HERE = "docs/site"
#: Scripts and styles of the site.
ASSETS = ("iframe-worker.js", "site.css")
_LINK = re.compile(r"(?P<before>!?\[[^\]]*\]\()(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
_ELSEWHERE = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\s(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
_FENCE = re.compile(r"^(```.*?^```$)", re.M | re.S)
_LANGUAGES = {
    ".py": "python",
    ".cfg": "ini",
    ".comp": "glsl",
    ".toml": "toml",
    ".json": "json",
    ".sh": "bash",
}


def page_of(path: str) -> str:
    """Where a file of the repository is among the pages: README.md -> index.md, docs/cli.md -> cli.md."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/") and path.endswith(".ipynb"):
        return path.removeprefix("docs/").replace(".ipynb", ".md")
    if path.startswith("docs/") and not path.endswith(".py"):
        return path.removeprefix("docs/")
    return f"files/{path}" if path.endswith(".md") else f"files/{path}.md"


def links(path: str, text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Each link of a page to another file, and that file's path in the repository; not those in blocks of code."""
    for match in _LINK.finditer(_FENCE.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)):
        if ":" not in match["target"]:
            yield match, posixpath.normpath(posixpath.join(posixpath.dirname(path), match["target"]))


def rewritten(path: str, text: str) -> str:
    """A page of the repository with links that lead to the pages of the site."""
    parts, at = [], 0
    for match, target in links(path, text):
        if not (ROOT / target).is_file():
            raise PluginError(f"{path}: a link leads to no file; got {match['target']}")
        to = posixpath.relpath(page_of(target), posixpath.dirname(page_of(path)) or ".")
        parts += [text[at : match.start()], f"{match['before']}{to}{match['anchor'] or ''})"]
        at = match.end()
    return "".join((*parts, text[at:]))


def content(path: str) -> str:
    """A file of the repository as a page."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".ipynb"):
        return rewritten(path, notebook(json.loads(text)))
    if path.endswith(".md"):
        return rewritten(path, text)
    fence = "`" * (3 + max(map(len, re.findall(r"`{3,}", text)), default=0))
    language = _LANGUAGES.get(Path(path).suffix, "text")
    return f"# {path}\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"


def notebook(content: dict[str, Any]) -> str:
    """The cells of a notebook and their outputs as a page."""
    parts = []
    for cell in content["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```{'console' if source.startswith('!') else 'python'}\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/svg+xml" in data:
                drawn = base64.b64encode("".join(data["image/svg+xml"]).encode()).decode()
                parts.append(f'<img alt="output" src="data:image/svg+xml;base64,{drawn}">')
            else:
                shown = "".join(output.get("text", data.get("text/plain", [])))
                parts.append(f"```text\n{shown.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def on_files(files: Any, config: Any) -> Any:
    """Add README.md, whatever a page links to, and the site's own scripts."""
    ours = {f"docs/{file.src_uri}" for file in files if file.src_uri.endswith(".md")}
    notebooks = [f"docs/{file.src_uri}" for file in files if file.src_uri.endswith(".ipynb")]
    waiting = ["README.md", *notebooks, *sorted(ours)]
    known = set(waiting)
    while waiting:
        path = waiting.pop()
        if path not in ours:
            files.append(File.generated(config, page_of(path), content=content(path)))
        if path.endswith(".md"):
            for _, target in links(path, (ROOT / path).read_text(encoding="utf-8")):
                inside = target.startswith("docs/") and not target.endswith(".py")
                if target not in known and not inside and (ROOT / target).is_file():
                    known.add(target)
                    waiting.append(target)
    for name in ASSETS:
        files.append(File.generated(config, name, abs_src_path=os.fspath(ROOT / HERE / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links of a page in docs/; those that were generated have theirs already."""
    if page.file.generated_by:
        return markdown
    return rewritten(f"docs/{page.file.src_uri}", markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse a page whose script, style, picture or font would come from elsewhere."""
    found = _ELSEWHERE.search(output)
    if found:
        raise PluginError(f"{page.file.src_uri}: fetches something from elsewhere; got {found[0][:120]}")
    return output
