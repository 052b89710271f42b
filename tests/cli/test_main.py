"""The command as a whole: lazy verbs, documented options, from an exception to a status, and what --json prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import terminal
from json_schema import DESCRIBED
from verbs import commands

from refsim.cli.expose import FillByte
from refsim.cli.kit import program, text
from refsim.cli.kit.document import SCHEMA
from refsim.cli.kit.options import LayoutType, Numbers, ProfileType
from refsim.cli.kit.target import TargetType
from refsim.cli.kit.verb import GROUPS
from refsim.cli.kit.written import Written
from refsim.cli.pack import Byte
from refsim.core import status as statuses
from refsim.core import strict_json
from refsim.core.errors import MOST_IN_LINE, DeviceError, FormatError

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"
VERBS = program.root.list_commands(click.Context(program.root))  # type: ignore[attr-defined]
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
#: What `inspect` does without: it is asked often, and by scripts for many files.
HEAVY = (
    "torch executorch numba llvmlite kp refsim_gpu pandas jinja2 pygments asyncio multiprocessing rich "
    "refsim.exec.cpu refsim.exec.emulated refsim.bytediff refsim.golden refsim.partition"
)


def loaded(*words: str) -> tuple[str, set[str]]:
    """What a command prints, and the modules that its process has then."""
    code = f"import sys; from refsim.cli import main; main({list(words)!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *out, modules = done.stdout.splitlines()
    return "\n".join(out), set(modules.split())


def test_help_lists_every_verb_and_imports_none() -> None:
    out, modules = loaded("--help")
    assert all(f"\n  {verb} " in out for verb in VERBS)
    assert not modules & {f"refsim.cli.{verb}" for verb in VERBS}
    assert not modules & {"numba", "numpy", "torch", "kp", "rich"}


def test_each_verb_stands_in_one_group_of_the_help() -> None:
    assert sorted(verb for verbs in GROUPS.values() for verb in verbs) == VERBS


@pytest.mark.parametrize("more", [("--json",), ()])
def test_inspect_imports_no_compiler_and_no_framework(more: tuple[str, ...], models: Path) -> None:
    _, modules = loaded("inspect", str(models / "mixed_ops.pte"), *more)
    assert not modules & set(HEAVY.split())


def test_a_table_on_a_terminal_is_the_one_in_a_pipe_with_colours(capsys, monkeypatch) -> None:
    columns = ("node", "operator", "cpu ms", "count", "golden")
    rows = [
        [1, "q8ta_add", 0.5, 10000, "same"],
        [200, "", None, 7, "different 3 of 9"],
        [3, "x" * 40, 1.25, 0, "a\nb"],
    ]
    text.print_table(columns, rows)
    plain = capsys.readouterr().out
    assert not ESCAPES.search(plain)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    text.print_table(columns, rows)
    coloured = capsys.readouterr().out
    assert "\x1b[32msame" in coloured and ESCAPES.sub("", coloured) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    text.print_table(columns, rows)
    assert capsys.readouterr().out == plain


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_json_and_a_page(verb: str, refsim) -> None:
    done = refsim(f"{verb} --help")
    assert done.status == 0 and "--json" in done.out and done.err == ""
    command = program.root.get_command(click.Context(program.root), verb)
    page = DOCS.read_text().partition(f"\n## {verb}\n")[2].partition("\n## ")[0]
    assert command is not None and page, f"docs/cli.md has no section {verb}"
    options = [word for one in command.params if isinstance(one, click.Option) for word in one.opts]
    assert [word for word in options if f"`{word}" not in page] == []


def test_docs_name_no_verb_and_no_status_that_is_not_there() -> None:
    heads = [line.removeprefix("## ") for line in DOCS.read_text().splitlines() if line.startswith("## ")]
    assert [head for head in heads if head.islower()] == VERBS
    table = re.findall(r"^\| (\d+)(?:, (\d+))? \|", DOCS.read_text().partition("\n## ")[0], re.M)
    listed = {int(number) for row in table for number in row if number}
    assert listed == {number for number in vars(statuses).values() if isinstance(number, int)}


def no_places(kind: Written) -> list[tuple[str, str]]:
    """Where nothing can be written, or no file."""
    below_a_file = (f"{DOCS}/x", f"{DOCS}/x: cannot be written; got ")
    if kind.folder:
        return [below_a_file]
    folder = (
        f"{DOCS.parent}",
        f"is a folder, and a file is written; need a file, such as {DOCS.parent}/NAME",
    )
    return [below_a_file, folder, ("nofolder/sub/x", "got no such folder as nofolder/sub, need a path in")]


def no_choice(kind: click.Choice) -> list[tuple[str, str]]:
    longest = max(kind.choices, key=len)
    return [(longest[:-1], f"did you mean {longest}?")]


def no_number(kind: Any) -> list[tuple[str, str]]:
    return [("many", "'many' is no "), (f"{kind.min - 1}", f" from {kind.min} ")]


#: Type of an option -> words that it does not take, and what is said of each.
NOT_TAKEN: dict[type, Callable[[Any], list[tuple[str, str]]]] = {
    LayoutType: lambda kind: [("4w4cc", "did you mean 4W4C?")],
    Numbers: lambda kind: [("six", "'six' is not a")],
    ProfileType: lambda kind: [
        ("mali", "not measured: no recording and no probe of such a device is at hand")
    ],
    TargetType: lambda kind: [("malli", "did you mean mali?")],
    click.Choice: no_choice,
    click.IntRange: no_number,
    click.FloatRange: no_number,
    type(click.INT): lambda kind: [("1e9", "'1e9' is no whole number")],
    Byte: lambda kind: [("0x100", "'0x100' is not a byte")],
    FillByte: lambda kind: [("five", "'five' is not a byte")],
    Written: no_places,
}
EVERY = dict(commands())
OPTIONS = [
    (name, word, one.type) for name, verb in EVERY.items() for one in verb.params for word in one.opts[:1]
    if word.startswith("--")
]  # fmt: skip


@pytest.mark.parametrize(("verb", "option", "kind"), [row for row in OPTIONS if type(row[2]) in NOT_TAKEN])
def test_a_value_that_an_option_does_not_take(verb: str, option: str, kind: click.ParamType, refsim) -> None:
    for word, said in NOT_TAKEN[type(kind)](kind):
        refsim(f"{verb} {option} {word}").refused(said)


@pytest.mark.parametrize("verb", EVERY)
def test_a_slip_in_an_option_is_asked_back(verb: str, refsim) -> None:
    for _, option, _ in (row for row in OPTIONS if row[0] == verb):
        refsim(f"{verb} {option}{option[-1]}").refused(f"did you mean {option}?")


@pytest.mark.parametrize(
    "verb", [name for name, verb in EVERY.items() if any(p.required for p in verb.params)]
)
def test_all_that_is_missing_is_named_with_the_example(verb: str, refsim) -> None:
    needed = [one for one in EVERY[verb].params if one.required]
    names = [one.opts[0] if isinstance(one, click.Option) else one.human_readable_name for one in needed]
    refsim(verb).refused(f"Missing {', '.join(names)}; for example: refsim {verb} {EVERY[verb].example}")


def test_no_arguments_is_bad_usage(refsim) -> None:
    done = refsim()
    assert done.status == 2 and done.out == "" and done.err.startswith("Usage: refsim")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--json", "--json stands behind a verb, as in 'refsim unpack --json'; need bisect, "),
        ("--json doctor", "--json stands behind a verb"),
        ("golden --json", "--json stands behind a subverb, as in 'refsim golden verify --json'; need check, "),
    ],
)  # fmt: skip
def test_json_before_the_verb_says_where_it_belongs(given: str, said: str, refsim) -> None:
    done = refsim(given)
    done.refused(said)
    assert done.json["error"]["type"] == "UsageError" and said in done.json["error"]["message"]


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (DeviceError("gpu", "lost", need="another"), 3, "refsim: gpu: lost; need another\n"),
        (MemoryError(), 2, "refsim: out of memory\n"),
        (KeyboardInterrupt(), 130, "refsim: interrupted\n"),
        (click.UsageError("two\nlines \x1b[1m"), 2, "refsim: two lines \\x1b[1m\n"),
        (FormatError("f" * 900, "w" * 900, got="g" * 900, need="n" * 900), 2, None),
        (MemoryError("m" * 900), 2, None),
        (ZeroDivisionError("x"), 2, None),
    ],
)
def test_errors_become_one_line(error, status, line, refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect shows its traceback, too, and is not status 1."""

    def invoke(self: click.Group, ctx: click.Context) -> None:
        raise error

    monkeypatch.setattr(program.Verbs, "invoke", invoke)
    done = refsim("doctor")
    assert (done.status, done.out) == (status, "")
    if isinstance(error, ZeroDivisionError):
        assert "ZeroDivisionError: x" in done.err
        assert done.err.splitlines()[-1].startswith("refsim: this is a defect of refsim")
    else:
        said = done.err.lstrip("\n")  # click breaks the line after ^C
        assert said == line or (line is None and said.count("\n") == 1 and len(said) <= MOST_IN_LINE + 1)


def test_a_terminal_gives_the_width_and_gets_colour() -> None:
    """40 columns wide: nothing is cut off, and what does not fit has a line per column."""
    controller, written = terminal.opened(40)
    command = [sys.executable, "-m", "refsim.cli", "demo", "linear_head_gemv"]
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
    environment["TERM"] = "xterm"
    with subprocess.Popen(command, stdout=written, stderr=subprocess.DEVNULL, env=environment) as process:
        os.close(written)
        shown = terminal.shown(controller)
    plain = ESCAPES.sub("", shown)
    assert process.returncode == 0 and plain != shown
    assert "CHANNELS_PACKED" in plain and "delegate0_v31" in plain
    assert max(map(len, plain.splitlines())) <= 40


def test_a_closed_pipe_is_no_error(models: Path) -> None:
    command = f"{sys.executable} -m refsim.cli inspect {models}/mobilenet_v2_035_96.pte --json | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout == "{\n" and done.stderr == ""


@pytest.mark.parametrize("given", ["--help", "inspect mixed_ops.pte --json", "diff --help"])
def test_nobody_reads_what_is_printed(given: str, models: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "refsim.cli", *given.split()]
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, cwd=models)
    finally:
        os.close(writing)
    said = re.sub(rb"refsim: [^\n]*, \d+ s\n", b"", done.stderr)  # progress, on a busy machine
    assert (done.returncode, said) == (statuses.PIPE_CLOSED, b"")


@pytest.mark.parametrize(
    ("asked", "same"),
    [
        ("help", "--help"), ("help help", "--help"), ("help run", "run --help"), ("golden help", "golden --help"),
        ("golden help new", "golden new --help"), ("help golden verify", "golden verify --help"),
    ],
)  # fmt: skip
def test_help_is_a_verb_too(asked: str, same: str, refsim) -> None:
    done = refsim(asked)
    assert done.status == 0 and done.out == refsim(same).out != ""


def test_help_has_whole_sentences_and_an_example(refsim) -> None:
    """A dot within a word, as in .pte, ends no sentence; lines of a docstring are folded, with what is added."""
    shown = refsim("help golden").out
    assert shown.endswith("Example: refsim golden verify -x cpu --workers 2\n")
    assert "as .pte files that need no input list " in " ".join(shown.split())
    sweep = refsim("sweep --help").out
    assert "\n  Each failure is made as small" in sweep
    assert "may be interrupted; --resume" in " ".join(sweep.split("\n  "))


def test_a_missing_option_is_shown_in_a_command_that_can_be_pasted(refsim, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert refsim("locate").err.splitlines()[1:] == ["  refsim locate -l 4W4C -s 1,16,8,8 --byte 5"]


def test_rerun_line_survives_a_shell() -> None:
    words = ["run", "a b.pte", "--dump", "x|y", "d"]
    assert program.rerun(words) == "rerun: refsim run 'a b.pte' --dump 'x|y' d"


# --- JSON ------------------------------------------------------------------------------------------------

MODELS = Path(__file__).parents[1] / "data" / "models"
GEMV = MODELS / "linear_head_gemv.pte"
GIVEN = f"{GEMV} -i {MODELS}/linear_head_gemv.io.npz"


def test_every_verb_is_described_and_every_key_has_a_meaning() -> None:
    assert set(DESCRIBED["$defs"]["verbs"]) == {name for name, _ in commands()}

    def lacking(part: object, path: str) -> list[str]:
        if isinstance(part, list):
            return [one for each in part for one in lacking(each, path)]
        if not isinstance(part, dict):
            return []
        rows = part.get("properties", {})
        found = [
            f"{path}.{key}" for key, row in rows.items() if "description" not in row and "const" not in row
        ]
        return found + [one for key, each in part.items() for one in lacking(each, f"{path}.{key}")]

    assert not lacking(DESCRIBED["$defs"], "")


#: What somebody else's names fill: an operator's parameters, limits of Vulkan, a sidecar, the schema itself.
OPEN = {"parameters", "limits", "values", "json_schema"}


def test_nothing_else_is_open() -> None:
    def found(part: object, name: str) -> set[str]:
        if isinstance(part, list):
            return set().union(*(found(each, name) for each in part))
        if not isinstance(part, dict):
            return set()
        here = (
            part.get("type") == "object"
            and part.get("additionalProperties", "properties" not in part) is True
        )
        return set().union(
            {name} if here else (),
            *(found(each, name if key == "items" else key) for key, each in part.items()),
        )

    assert found(DESCRIBED["$defs"], "") == OPEN


# verbs with tests of their own that read JSON are not repeated here: each `.json` is checked against the schema
@pytest.mark.parametrize(
    "line",
    [
        f"run {GIVEN} --golden {MODELS}/linear_head_gemv.dump.zip --memory",
        f"inspect {GEMV} --plan",
        "demo linear_head",
        "golden export q8ta_relu --size small --layout 4W --pte out",
        "golden regen q8ta_relu --dry-run",
        pytest.param("mutate --random 3 --list", marks=pytest.mark.long),
        "schema",
    ],
    ids=lambda line: " ".join(line.split()[:2]).rpartition("/")[2],
)
def test_the_object_is_as_the_schema_says(line: str, tmp_path: Path, monkeypatch, refsim) -> None:
    monkeypatch.chdir(tmp_path)
    done = refsim(f"{line} --json")
    content = done.json
    assert (done.status, done.err) == (0, "") and list(content)[:3] == ["verb", "schema", "status"]
    assert (content["schema"], content["status"]) == (SCHEMA, 0) and "error" not in content


def test_a_failure_is_an_object_too(refsim) -> None:
    done = refsim("golden verify q8ta_ad --json")
    content = done.json
    error = content.pop("error")
    assert content == {"verb": "golden verify", "schema": SCHEMA, "status": 2} and done.status == 2
    assert (error["type"], error["where"], error["got"]) == ("ParameterError", "golden verify", "q8ta_ad")
    assert error["message"] in done.err and error["need"].endswith("did you mean q8ta_add?")
    for line, kind in (("locate", "UsageError"), ("run none.pte --random 0", "FormatError")):
        assert refsim(f"{line} --json").json["error"]["type"] == kind
    assert refsim("rnu --json").json["verb"] is None
    assert refsim("diff a -- --json").out == ""  # the name of a file


def test_a_comparison_of_too_little_says_what_it_compared_and_why(tmp_path: Path, refsim) -> None:
    assert refsim(f"run {GIVEN} --dump q8ta_linear_gemv {tmp_path}/few").status == 0
    done = refsim(f"run {GIVEN} --golden {tmp_path}/few --json")
    assert done.status == done.json["status"] == 2 and done.json["same"] is False
    assert done.json["error"]["type"] == "IncompleteError" and done.json["not_compared"]


def test_what_is_no_number_is_a_string(tmp_path: Path, refsim) -> None:
    for name, first in (("a", np.inf), ("b", np.nan)):
        held = np.array([first, -np.inf, 1, 2, 3], np.float32)
        held[1] = held[1] if name == "a" else 0
        held.tofile(tmp_path / f"{name}.bin")
    done = refsim(f"diff {tmp_path}/a.bin {tmp_path}/b.bin -l W -s 5 --json")
    assert done.status == 1
    rows = [(row["expected"], row["actual"]) for row in done.json["report"]["differences"]]
    assert rows == [("Infinity", "NaN"), ("-Infinity", 0.0)]
    assert strict_json.dumps({"a": (1.5, float("nan"))}) == '{"a": [1.5, "NaN"]}'
