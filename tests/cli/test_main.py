"""The command as a whole: lazy verbs, documented options, and the way from an exception to a status."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
import terminal

from refsim.cli.kit import program, text
from refsim.cli.kit.verb import GROUPS
from refsim.core.errors import DeviceError
from refsim.core.status import PIPE_CLOSED

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"
VERBS = program.root.list_commands(click.Context(program.root))  # type: ignore[attr-defined]


def fresh(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_help_lists_every_verb_and_imports_none(refsim) -> None:
    code = "import sys; from refsim.cli import main; main(['--help']); print(sorted(sys.modules))"
    out = fresh(code)
    modules = out.splitlines()[-1]
    for verb in VERBS:
        assert f"\n  {verb} " in out and f"'refsim.cli.{verb}'" not in modules
    for heavy in ("numba", "numpy", "torch", "kp", "rich"):
        assert f"'{heavy}'" not in modules


def test_each_verb_stands_in_one_group_of_the_help() -> None:
    assert sorted(verb for verbs in GROUPS.values() for verb in verbs) == VERBS


def test_inspect_imports_no_compiler_and_no_framework() -> None:
    """It is asked often, and by scripts for many files: it starts within half a second of NumPy."""
    model = DOCS.parents[1] / "tests" / "data" / "models" / "mixed_ops.pte"
    for option in ("--json", ""):
        code = (
            "import sys; from refsim.cli import main; "
            f"main({['inspect', str(model), *option.split()]!r}); print(*sys.modules)"
        )
        loaded = set(fresh(code).splitlines()[-1].split())
        for heavy in (
            "torch", "executorch", "numba", "llvmlite", "kp", "refsim_gpu", "pandas", "jinja2", "pygments", "asyncio",
            "refsim.exec.cpu", "refsim.exec.emulated", "refsim.bytediff", "refsim.golden", "refsim.partition",
            "multiprocessing",
        ):  # fmt: skip
            assert heavy not in loaded, heavy
        assert "rich" not in loaded


def test_a_table_on_a_terminal_is_the_one_in_a_pipe_with_colours(capsys, monkeypatch) -> None:
    columns = ("node", "operator", "cpu ms", "count", "golden")
    rows = [
        [1, "q8ta_add", 0.5, 10000, "same"],
        [200, "", None, 7, "different 3 of 9"],
        [3, "x" * 40, 1.25, 0, "a\nb"],
    ]
    escapes = re.compile(r"\x1b\[[0-9;]*m")
    text.print_table(columns, rows)
    plain = capsys.readouterr().out
    assert not escapes.search(plain)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    text.print_table(columns, rows)
    coloured = capsys.readouterr().out
    assert "\x1b[32msame" in coloured and escapes.sub("", coloured) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    text.print_table(columns, rows)
    assert capsys.readouterr().out == plain


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_json_and_a_page(verb: str, refsim) -> None:
    done = refsim(verb, "--help")
    assert done.status == 0 and "--json" in done.out and done.err == ""
    command = program.root.get_command(click.Context(program.root), verb)
    assert command is not None
    page = DOCS.read_text().partition(f"\n## {verb}\n")[2].partition("\n## ")[0]
    assert page, f"docs/cli.md has no section {verb}"
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            for option in parameter.opts:
                assert f"`{option}" in page, f"docs/cli.md does not explain {option} of {verb}"


def test_docs_name_no_verb_that_is_not_there() -> None:
    heads = [line.removeprefix("## ") for line in DOCS.read_text().splitlines() if line.startswith("## ")]
    assert [head for head in heads if head.islower()] == VERBS


def test_no_arguments_is_bad_usage(refsim) -> None:
    done = refsim()
    assert done.status == 2 and done.out == "" and done.err.startswith("Usage: refsim")
    refsim("nonesuch").refused("No such command 'nonesuch'")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--json"], "--json stands behind a verb, as in 'refsim unpack --json'; need bisect, "),
        (["--json", "doctor"], "--json stands behind a verb"),
        (
            ["golden", "--json"],
            "--json stands behind a subverb, as in 'refsim golden verify --json'; need check, ",
        ),
    ],
)
def test_json_before_the_verb_says_where_it_belongs(given: list[str], said: str, refsim) -> None:
    done = refsim(*given)
    done.refused(said)
    assert done.json["error"]["type"] == "UsageError" and said in done.json["error"]["message"]


def raising(error: BaseException):
    def invoke(self: click.Group, ctx: click.Context) -> None:
        raise error

    return invoke


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (DeviceError("gpu", "lost", need="another"), 3, "refsim: gpu: lost; need another\n"),
        (MemoryError(), 2, "refsim: out of memory\n"),
        (KeyboardInterrupt(), 130, "refsim: interrupted\n"),
        (click.UsageError("two\nlines \x1b[1m"), 2, "refsim: two lines \\x1b[1m\n"),
    ],
)
def test_errors_become_one_line(error, status, line, refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program.Verbs, "invoke", raising(error))
    done = refsim("doctor")
    assert (done.status, done.out, done.err.lstrip("\n")) == (
        status,
        "",
        line,
    )  # click breaks the line after ^C


def test_a_defect_shows_its_traceback_and_is_not_status_1(refsim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program.Verbs, "invoke", raising(ZeroDivisionError("x")))
    done = refsim("doctor")
    assert done.status == 2 and "ZeroDivisionError: x" in done.err
    assert done.err.splitlines()[-1].startswith("refsim: this is a defect of refsim")


def test_a_terminal_gives_the_width_and_gets_colour(models: Path) -> None:
    """40 columns wide: nothing is cut off, and what does not fit has a line per column."""
    controller, written = terminal.opened(40)
    command = [sys.executable, "-m", "refsim.cli", "demo", "linear_head_gemv"]
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")} | {
        "TERM": "xterm"
    }
    with subprocess.Popen(command, stdout=written, stderr=subprocess.DEVNULL, env=environment) as process:
        os.close(written)
        text = terminal.shown(controller)
    assert process.returncode == 0
    assert "\x1b[" in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert "CHANNELS_PACKED" in plain and "delegate0_v31" in plain
    assert max(map(len, plain.splitlines())) <= 40


def test_a_closed_pipe_is_no_error(models: Path) -> None:
    command = f"{sys.executable} -m refsim.cli inspect {models}/mobilenet_v2_035_96.pte --json | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout == "{\n" and done.stderr == ""


@pytest.mark.parametrize("given", [["--help"], ["inspect", "mixed_ops.pte", "--json"], ["diff", "--help"]])
def test_nobody_reads_what_is_printed(given: list[str], models: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "refsim.cli", *given]
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, cwd=models)
    finally:
        os.close(writing)
    said = re.sub(rb"refsim: [^\n]*, \d+ s\n", b"", done.stderr)  # progress, on a busy machine
    assert (done.returncode, said) == (PIPE_CLOSED, b"")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("locate", "Missing --layout, --shape; for example: refsim locate -l 4W4C -s 1,16,8,8 --byte 5"),
        (
            "extract --random 0",
            "Missing FILE, --output; for example: refsim extract model.pte -n 0:7",
        ),
        ("extract -n 0:7 model.pte", "Missing --output; for example: refsim extract "),
        ("collect exposed.pte", "Missing OUTPUTS, --output; for example: "),
        ("golden check", "Missing --pte, --outputs; for example: refsim golden check --pte out/corpus"),
        ("locate -l", "Option '-l' requires an argument; for example: refsim locate "),
        (
            "triage e.pte --outputs o.npz --more b.pte --limit 0",
            "Option '--more' requires 2 arguments, got the option --limit for one; for example: ",
        ),
        ("run m.pte --dump q8ta --json", "requires 2 arguments, got the option --json for one; "),
        ("triage --more a", "Option '--more' requires 2 arguments; for example: "),
        ("verify", "No such command 'verify'; did you mean refsim golden verify?"),
        ("help coverage", "No such command 'coverage'; did you mean refsim golden coverage?"),
        ("golden sweep", "No such command 'sweep'; did you mean refsim sweep?"),
        ("run --zzz", "No such option --zzz; refsim run --help lists all"),
        ("run -q", "No such option -q; refsim run --help lists all"),
        ("run --ouput x", "No such option --ouput; did you mean --output?"),
        ("golden verify --worker 3", "No such option --worker; did you mean --workers?"),
        ("run a b", "Got unexpected extra argument (b); need refsim run [OPTIONS] FILE"),
        ("golden verify --seconds 0", "'--seconds': 0.0 is no number from 0.1 on"),
        ("probe x", "'x' is no whole number from 0 on"),
        ("nonesuch", "refsim --help says what each does"),
        ("golden nonesuch", "show, verify; refsim golden --help says what each does"),
    ],
)
def test_a_wrong_command_line_says_what_to_type(given: str, said: str, refsim) -> None:
    refsim(*given.split()).refused(said)


@pytest.mark.parametrize(
    ("asked", "same"),
    [
        ("help", "--help"),
        ("help run", "run --help"),
        ("golden help", "golden --help"),
        ("golden help new", "golden new --help"),
        ("help golden verify", "golden verify --help"),
    ],
)
def test_help_is_a_verb_too(asked: str, same: str, refsim) -> None:
    done = refsim(*asked.split())
    assert done.status == 0 and done.out == refsim(*same.split()).out != ""


def test_a_missing_option_is_shown_in_a_command_that_can_be_pasted(refsim, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert refsim("locate").err.splitlines()[1:] == ["  refsim locate -l 4W4C -s 1,16,8,8 --byte 5"]


def test_rerun_line_survives_a_shell() -> None:
    assert (
        program.rerun(["run", "a b.pte", "--dump", "x|y", "d"])
        == "rerun: refsim run 'a b.pte' --dump 'x|y' d"
    )
