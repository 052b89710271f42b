"""The command that a verb prints as the next step does what was promised, run as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from device.simulated import Runtime
from examples import UNARY

from refsim.device.outputs import FORM
from refsim.exec.emulated import EmulatedExecutor
from refsim.exec.executor import YOURS, Executor, Source
from refsim.exec.factory import executors
from refsim.exec.plugin import PluginExecutor
from refsim.golden.named import open_case

OWN = Path(__file__).parents[1] / "modules" / "own"
needs_modules = pytest.mark.skipif(
    not any(e.name == "spv:DIR" and e.available for e in executors()), reason="no Vulkan device, or no kp"
)


# --- a case that tells two causes apart --------------------------------------------------------------------


@pytest.mark.long
@needs_modules
@pytest.mark.xfail(reason="edits of two classes with equal bytes are told as one cause", strict=True)
def test_the_telling_case_runs_on_the_kernel_and_tells(refsim) -> None:
    done = refsim("shaders", OWN / "wrong", "q8ta_conv2d_pw", "--limit", 3)
    (command,) = re.findall("to tell them apart: refsim (.*)", done.out)
    told = refsim(*shlex.split(command))
    assert told.status == 1 and f"spv:{OWN / 'wrong'}: yours: pointwise" in told.out
    causes = re.search("likely cause:\n  1. (.*)\n  2. (.*)\n", told.out)
    assert causes is not None and causes[1].endswith("(predicts every byte)")
    assert "contradicts" in causes[2], "the other cause is refuted"


@pytest.mark.few(1)
@needs_modules
@pytest.mark.parametrize("executors", ["{}", "cpu,{}"])
def test_a_case_that_the_kernel_refuses_is_no_success(executors: str, refsim) -> None:
    name = f"spv:{OWN / 'right'}"
    given = ("replay", "q8ta_conv2d_pw/0617", "-x", executors.format(name))
    done = refsim(*given)
    assert done.status == 2 and "ours: q8ta_conv2d_pw (" in done.out
    assert done.err.startswith(f"refsim: executor {name}: not one of its own kernels ran; got ")
    found = refsim(*given, "--json").json
    assert found["same"] is False and found["status"] == 2 and found["error"]["type"] == "IncompleteError"


class Picky:
    """Kernels of another package that take no call."""

    def refusal(self, call):
        return "never heard of it"

    def run(self, call, inputs):
        raise AssertionError("it refuses everything")


def test_so_it_is_for_kernels_of_another_package(monkeypatch: pytest.MonkeyPatch, refsim) -> None:
    from refsim.cli import replay

    monkeypatch.setattr(replay, "executor_named", lambda name: PluginExecutor(Picky(), name))
    refused = refsim("replay", f"{UNARY.name}/0003", "-x", "picky")
    assert refused.status == 2 and "got never heard of it, need a call that it takes" in refused.err


def test_what_an_executor_runs() -> None:
    """Of others' kernels, what they run themselves."""
    call = open_case(f"{UNARY.name}/0003").bound.call
    picky = PluginExecutor(Picky(), "picky")
    assert not picky.runs(call)

    class Theirs(PluginExecutor):
        def source(self, call) -> Source:
            return Source(YOURS, ("k",))

    assert Theirs(Picky(), "theirs").runs(call)

    class Limited(Executor):
        def __init__(self, why: str | None) -> None:
            self.why = why

        def refusal(self, call) -> str | None:
            return self.why

        def run(self, launch, inputs):
            raise AssertionError

    assert Limited(None).runs(call) and not Limited("too large").runs(call)


# --- the operator behind a difference ----------------------------------------------------------------------


@pytest.fixture
def two_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulated executor gives a wrong byte in a relu, and writes nothing in a sum."""
    honest = EmulatedExecutor.run

    def run(self, launch, inputs):
        out = honest(self, launch, inputs)
        if launch.shader == "q8ta_relu":
            out.words[0] ^= 1
        if launch.shader == "q8ta_add":
            out.words[:] = 0
        return out

    monkeypatch.setattr(EmulatedExecutor, "run", run)


@pytest.mark.long
def test_each_wrong_operator_has_a_command_that_explains_it(
    two_wrong: None, refsim, models: Path, tmp_path
) -> None:
    given = ("bisect", models / "mixed_ops.pte", "-i", models / "mixed_ops.io.npz", "-x", "cpu:emulated")
    done = refsim(*given, "--html", tmp_path / "page.html")
    assert "wrong: node 4 q8ta_relu" in done.out and "wrong: node 6 q8ta_add" in done.out
    ((node, operator, command),) = re.findall(r"^explain node (\d+) (\S+): refsim (.*)$", done.out, re.M)
    assert (
        (node, operator) == ("6", "q8ta_add") and command.endswith(" --node 0:6") and "--html" not in command
    )
    again = refsim(*shlex.split(command))
    assert again.status == 1 and "node 6 q8ta_add, computed from its dumped inputs: " in again.out
    assert "1. nothing written: " in again.out and "nothing written" not in done.out
    assert re.findall(r"^explain node (\d+)", again.out, re.M) == ["4"]
    report = refsim(*given, "--node", "delegate0_v66", "--json").json["report"]
    assert "node 6 q8ta_add" in report["title"] and report["causes"][0]["name"] == "nothing written"
    assert "node 3" in refsim(*given, "-n", "0:3").out, "one that is right has a report too"
    refsim(*given, "-n", "0:99").refused("0:99")


@pytest.mark.long
def test_a_run_that_differs_names_the_command_that_finds_the_operator(
    two_wrong: None, refsim, models: Path, tmp_path: Path
) -> None:
    def step(*more: object) -> str:
        done = refsim("run", models / "mixed_ops.pte", *more)
        assert done.status == 1
        (command,) = re.findall(r"^which operator.*: refsim (.*)$", done.out, re.M)
        return command

    io = models / "mixed_ops.io.npz"
    command = step("-i", io, "-x", "cpu,cpu:emulated")
    assert command.startswith("compare ")
    found = refsim(*shlex.split(command))
    assert found.status == 1 and "node 4 q8ta_relu" in found.out
    refsim("run", models / "mixed_ops.pte", "-i", io, "--dump", ".", tmp_path / "dump", "-x", "cpu:emulated")
    command = step("-i", io, "--golden", tmp_path / "dump")
    assert command.endswith(f" --actual {tmp_path / 'dump'}")
    found = refsim(*shlex.split(command))
    assert found.status == 1 and "wrong: node 6 q8ta_add" in found.out
    command = step("--random", 3, "--target", "mali", "--expect", io)
    assert command == f"bisect {models / 'mixed_ops.pte'} --random 3 --target mali --actual DIR"
    done = refsim("run", models / "mixed_ops.pte", "--random", 3, "--expect", io)
    assert "\nDIR: refsim run --dump writes one; of a run on a device, refsim expose and then" in done.out
    same = refsim("run", models / "mixed_ops.pte", "-i", io, "-x", "cpu", "--expect", io)
    assert same.status == 0 and "which operator" not in same.out


# --- outputs of exposed files ------------------------------------------------------------------------------


def triaged(refsim, done, io: Path):
    """What the command says that `expose` printed, with the outputs of a simulated device."""
    (command,) = re.findall(r"^then: refsim (.*)$", done.out, re.M)
    assert done.out.splitlines()[-1].startswith("OUTPUTS: ") and done.out.endswith(f"{FORM}\n")
    assert FORM in " ".join(refsim("triage", "--help").out.split())
    words = [str(io) if word == "IN.npz" else word for word in shlex.split(command)]
    held = np.load(io)
    inputs = [held[name] for name in sorted(held.files) if name.startswith("in")]
    for at, word in enumerate(words):
        if word.startswith("OUTPUTS"):
            exposed = words[1] if words[at - 1] == "--outputs" else words[at - 1]
            outputs = Runtime(Path(exposed).read_bytes()).run(inputs)
            words[at] = f"{exposed}.npz"
            np.savez(words[at], **{f"out{number}": array for number, array in enumerate(outputs)})
    return refsim(*words), words


@pytest.mark.parametrize(
    "options", [(), ("--chunk", 5), ("--value", "delegate0_v66"), ("--value", ".")], ids=str
)
def test_what_expose_says_next_judges_the_run(options, refsim, models: Path, tmp_path: Path) -> None:
    done = refsim("expose", models / "mixed_ops.pte", "-o", tmp_path / "m.pte", *options)
    found, words = triaged(refsim, done, models / "mixed_ops.io.npz")
    assert found.status == 0, found.err
    said = " ".join(found.out.split())
    # the inputs of an operator whose value alone is exposed are not there: it is compared with the exact run
    alone = "delegate0_v66" in options
    assert ("compared with the exact run" if alone else "operators are right") in said, found.out
    assert ("--partial" in words) == ("delegate0_v66" in options)
    assert words.count("--more") == (2 if "--chunk" in options else 0)


def test_triage_says_which_parts_are_missing(refsim, models: Path, tmp_path: Path) -> None:
    done = refsim("expose", models / "mixed_ops.pte", "-o", tmp_path / "m.pte", "--chunk", 5)
    _, words = triaged(refsim, done, models / "mixed_ops.io.npz")
    at = words.index("--more")
    one, two = refsim(*words[:at]), refsim(*words[:at], *words[at + 3 :])
    assert (one.status, two.status) == (2, 2)
    assert "need parts 2, 3 of 3, each with --more EXPOSED OUTPUTS, or --partial" in one.err
    assert "need part 2 of 3, each with --more EXPOSED OUTPUTS, or --partial" in two.err
    for name in (words[at - 1], words[at + 5]):  # the outputs of each part that was given
        assert f"not checked: {name} does not say" in two.out
    outputs = dict(np.load(words[at - 1]))
    held = max(outputs, key=lambda name: (outputs[name].dtype == np.int32, name))
    outputs[held].view(np.uint8).reshape(-1)[0] ^= 0x7F
    np.savez(words[at - 1], **outputs)
    wrong = refsim(*words[:at])
    assert (
        wrong.status == 1 and "\nnot given: parts 2, 3 of 3, each with --more EXPOSED OUTPUTS\n" in wrong.out
    )


# --- operators of a folder ---------------------------------------------------------------------------------


@needs_modules
def test_shaders_says_which_operators_a_folder_has(refsim) -> None:
    refsim("shaders", OWN / "right", "q8ta_relu").refused(
        "no module computes q8ta_relu; got modules of q8ta_add, q8ta_conv2d_pw, "
        "need a table [q8ta_relu] in refsim.toml"
    )
