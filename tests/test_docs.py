"""The documentation shows what the commands print, and its picture and links are what they claim."""

from __future__ import annotations

import doctest
import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest

import refsim
from refsim.cli.kit import text
from refsim.cli.kit.program import root
from refsim.core.layout import Layout
from refsim.exec.factory import executors

ROOT = Path(__file__).parents[1]


def script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


console = script("docs/console.py")
layouts = script("docs/img/layouts.py")
notebooks = script("docs/notebooks.py")
EXAMPLES = [example for page in console.PAGES for example in console.examples(page)]


def test_readme_has_an_example() -> None:
    assert {"demo"} == {e.command.split()[1] for e in EXAMPLES if e.page.name == "README.md"}


def test_neither_a_quick_machine_nor_a_busy_one_changes_a_page() -> None:
    with console._here():
        assert {text._text(ms) for ms in (0.00042, 0.001)} == {"0.001"}
        assert {text._text(ms) for ms in (99.999, 1234.5)} == {"99.999"}
    assert text._text(0.00042) == "0.00042"


def test_the_examples_of_python_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of docs/python.md, which has the ones of the docstrings too."""
    monkeypatch.chdir(ROOT)
    text = re.sub("^```.*$", "", (ROOT / "docs" / "python.md").read_text(), flags=re.M)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    found = doctest.DocTestParser().get_doctest(text, {}, "docs/python.md", None, 0)
    assert len(found.examples) > 20
    assert doctest.DocTestRunner(optionflags=flags).run(found).failed == 0


def test_every_public_name_has_a_section_and_a_meaning() -> None:
    sections = (ROOT / "docs" / "python.md").read_text().split("\n### ")[1:]
    held = {section.partition("\n")[0]: section.partition("\n")[2].strip() for section in sections}
    assert list(held) == refsim.__all__ and all(held.values())


def _searches(example) -> bool:
    """Whether what it prints takes a search of ten seconds."""
    return any("likely cause" in line or "--repair" in line for line in (example.command, *example.shown))


@pytest.mark.search(10)
@pytest.mark.few(12)
@pytest.mark.parametrize(
    "example",
    [pytest.param(row, marks=[pytest.mark.long] * _searches(row)) for row in EXAMPLES],
    ids=lambda e: f"{e.page.name}: {e.command}",
)
def test_output_is_as_shown(example) -> None:
    if "out/shaders/" in example.command and not [
        row for row in executors() if row.name == "spv:DIR" and row.available
    ]:
        pytest.skip("no Vulkan device to run modules on: make gpu")
    printed = example.printed()
    assert example.holds(printed), "\n".join(("fix: python docs/console.py --write", *printed))


def test_consoles_fit_their_terminal() -> None:
    """All but words that cannot fold."""
    for example in EXAMPLES:
        for line in example.shown:
            assert len(line) <= console.WIDTH or len(line.split()) == 1, (example.page.name, line)


def mentioned(text: str) -> Iterator[list[str]]:
    """The words of each command that a page mentions: alone on a line, or in backquotes; not of its consoles."""
    rest = re.sub(r"^```console\n.*?^```$", "", text, flags=re.M | re.S)
    for found in re.findall(r"`(refsim [^`\n]+)`|^    (refsim [a-z].*)$", rest, re.M):
        yield "".join(found).replace("\\|", "|").partition(" | ")[0].partition(" #")[0].split()[1:]


def unknown(words: list[str]) -> list[str]:
    """The verb, or the options, that refsim does not have."""
    command: click.Command = root
    words = words[1:] if words[:1] == ["help"] else words  # `refsim help VERB` is `refsim VERB --help`
    if words[:1] == ["VERB"]:  # any
        return []
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words[0].strip("[]")) if words else None
        if found is None:
            return words[:1]
        command, words = found, words[1:]
    options = {name for parameter in command.params for name in parameter.opts}
    given = [word.lstrip("([").partition("=")[0] for word in words]
    return [word for word in given if re.match(r"--?[a-z]", word) and word not in options]


def test_every_command_that_a_page_mentions_is_one() -> None:
    commands = [(page.name, words) for page in console.PAGES for words in mentioned(page.read_text())]
    assert len(commands) > 100
    wrong = [(page, " ".join(words)) for page, words in commands if unknown(words)]
    assert not wrong
    assert unknown(["rum", "x"]) == unknown(["help", "rum"]) == ["rum"] and unknown(
        ["golden", "verify", "--thread", "2"]
    ) == ["--thread"]


def test_a_stale_example_is_noticed() -> None:
    example = console.Example(ROOT / "README.md", "refsim x", ("a 1.234 b", "...", "z"))
    assert example.holds(("a  0.002 b", "c", "d", "z")) and example.holds(("a 0.002 b", "z"))
    assert not example.holds(("a 0.002 c", "z")) and not example.holds(("a 0.002 b", "z", "y"))


def test_fresh_output_stands_in_the_place_of_the_old() -> None:
    """Lines that tell of more, and dots within a line, are no gap."""
    shown = ("a 1", "x 1", "...", "b is 2", "  ... and 5 more", "wait ... done", "end")
    example = console.Example(ROOT / "README.md", "refsim x", shown)
    printed = ("a 2", "x 3", "y", "b is 3", "  ... and 6 more", "wait ... done", "end")
    page = "\n".join(("```console", "$ refsim x", *shown, "```"))
    fresh = console.rewritten(example, page, printed).splitlines()
    assert fresh == ["```console", "$ refsim x", "a 2", "x 3", "...", *printed[3:], "```"]


def test_a_page_is_named_with_its_folder_or_without(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(console, "examples", lambda page: looked.append(page.name) or ())
    monkeypatch.setattr(sys, "argv", ["console.py", "docs/sweep.md", "README.md"])
    assert console.main() == 0 and sorted(looked) == ["README.md", "sweep.md"]
    monkeypatch.setattr(sys, "argv", ["console.py", "sweeep.md"])
    with pytest.raises(SystemExit, match=r"no page has the name sweeep\.md"):
        console.main()


def test_picture_is_what_its_script_draws() -> None:
    assert (ROOT / "docs/img/data_flow.svg").read_text() == script("docs/img/data_flow.py").svg()


@pytest.mark.parametrize("row", layouts.ROWS, ids=str)
def test_layout_is_drawn_as_it_is(row: Layout) -> None:
    assert layouts.path(row).read_text() == layouts.svg(row), "fix: python docs/img/layouts.py"
    assert f"(img/{layouts.path(row).name})" in (ROOT / "docs/layouts.md").read_text()


@pytest.mark.parametrize("page", console.PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", console.PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    for name in re.findall(r"`((?:refsim|shaders|tests|bench|gpu|golden|docs)/[\w./-]+)`", page.read_text()):
        if "NAME" not in name:
            assert (ROOT / name).exists(), name


def test_the_page_on_architecture_names_every_folder() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    packages = [p.parent for p in (ROOT / "refsim").glob("*/__init__.py")]
    for folder in [*packages, ROOT / "gpu", ROOT / "shaders", ROOT / "golden", ROOT / "bench"]:
        assert f"`{folder.relative_to(ROOT)}/`" in text


def test_python_example_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    exec(code, names)
    assert names["out"].shape == (1, 10)  # type: ignore[attr-defined]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub and the site give the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    headings = re.findall(r"^#+ +(.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", console.PAGES, ids=lambda page: page.name)
def test_anchors_exist(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
        assert anchor in anchors(page.parent / target if target else page), f"{target}#{anchor}"


def test_every_page_is_in_the_site() -> None:
    listed = re.findall(r": ([\w-]+\.md)$", (ROOT / "docs/site/mkdocs.yml").read_text(), re.M)
    pages = [page.name for page in console.PAGES[1:]]
    there = ["index.md", *pages, *(path.stem + ".md" for path in notebooks.NOTEBOOKS)]
    assert sorted(listed) == sorted(there), "list it under nav in docs/site/mkdocs.yml"


@pytest.mark.long
def test_the_gallery_shows_what_edited_kernels_write() -> None:
    """Every cause has an entry, and each picture is what a right kernel with one edit writes."""
    gallery = script("docs/gallery.py")
    files = gallery.files()
    stale = [path.name for path, content in files.items() if not path.exists() or path.read_text() != content]
    assert not stale, "fix: python docs/gallery.py --write"
    assert {path.name for path in gallery.PICTURES.iterdir()} == {path.name for path in files} - {"causes.md"}
    shown = re.findall(r"^### (.+)$", files[gallery.PAGE], re.M)
    assert sorted(shown) == sorted(gallery.LOOK) and len(files) > len(shown) // 2


@pytest.mark.long
@pytest.mark.search(10)
@pytest.mark.parametrize("path", notebooks.NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_holds_what_its_cells_give(path: Path) -> None:
    console._seed("seeded_bugs.py", "phone")
    held = path.read_text(encoding="utf-8")
    given = notebooks.text(notebooks.executed(json.loads(held)))
    assert [*map(console.comparable, held.splitlines())] == [*map(console.comparable, given.splitlines())], (
        "fix: python docs/notebooks.py --write"
    )
