"""The command that a verb prints as the next step does what was promised, run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from device.simulated import Runtime
from examples import UNARY
from saved import arrays

from refsim.device.outputs import FORM
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
    done = refsim(f"shaders {OWN}/wrong q8ta_conv2d_pw --limit 3")
    (command,) = re.findall("to tell them apart: refsim (.*)", done.out)
    told = refsim(command)
    assert told.status == 1 and f"spv:{OWN / 'wrong'}: yours: pointwise" in told.out
    causes = re.search("likely cause:\n  1. (.*)\n  2. (.*)\n", told.out)
    assert causes is not None and causes[1].endswith("(predicts every byte)")
    assert "contradicts" in causes[2], "the other cause is refuted"


@pytest.mark.few(1)
@needs_modules
@pytest.mark.parametrize("executors", ["{}", "cpu,{}"])
def test_a_case_that_the_kernel_refuses_is_no_success(executors: str, refsim) -> None:
    name = f"spv:{OWN / 'right'}"
    line = f"replay q8ta_conv2d_pw/0617 -x {executors.format(name)}"
    done = refsim(line)
    assert done.status == 2 and "ours: q8ta_conv2d_pw (" in done.out
    assert done.err.startswith(f"refsim: executor {name}: not one of its own kernels ran; got ")
    found = refsim(f"{line} --json").json
    assert found["same"] is False and found["status"] == 2 and found["error"]["type"] == "IncompleteError"


class Picky:
    """Kernels of another package that take no call."""

    def refusal(self, call):
        return "never heard of it"

    def run(self, call, inputs):
        raise AssertionError("it refuses everything")


class Theirs(PluginExecutor):
    def source(self, call) -> Source:
        return Source(YOURS, ("k",))


class Limited(Executor):
    def __init__(self, why: str | None) -> None:
        self.why = why

    def refusal(self, call) -> str | None:
        return self.why

    def run(self, launch, inputs):
        raise AssertionError


def test_so_it_is_for_kernels_of_another_package(monkeypatch: pytest.MonkeyPatch, refsim) -> None:
    from refsim.cli import replay

    monkeypatch.setattr(replay, "executor_named", lambda name: PluginExecutor(Picky(), name))
    refused = refsim(f"replay {UNARY.name}/0003 -x picky")
    assert refused.status == 2 and "got never heard of it, need a call that it takes" in refused.err


@pytest.mark.parametrize(
    ("executor", "runs"),
    [(PluginExecutor(Picky(), "picky"), False), (Theirs(Picky(), "theirs"), True), (Limited(None), True),
     (Limited("too large"), False)],
)  # fmt: skip
def test_what_an_executor_runs(executor: Executor, runs: bool) -> None:
    assert executor.runs(open_case(f"{UNARY.name}/0003").bound.call) is runs


# --- the operator behind a difference ----------------------------------------------------------------------


@pytest.fixture
def two_wrong(miscomputed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The emulated executor gives a wrong byte in a relu, and writes nothing in a sum."""
    miscomputed("q8ta_relu", lambda out: np.bitwise_xor.at(out.words, 0, 1))
    miscomputed("q8ta_add", lambda out: out.words.fill(0))
    monkeypatch.chdir(tmp_path)


@pytest.mark.long
def test_each_wrong_operator_has_a_command_that_explains_it(two_wrong: None, refsim, mixed: str) -> None:
    line = f"bisect {mixed} -x cpu:emulated"
    done = refsim(f"{line} --html page.html")
    assert "wrong: node 4 q8ta_relu" in done.out and "wrong: node 6 q8ta_add" in done.out
    ((node, command),) = re.findall(r"^explain node (\d+ \S+): refsim (.*)$", done.out, re.M)
    assert node == "6 q8ta_add" and command.endswith(" --node 0:6") and "--html" not in command
    again = refsim(command)
    assert again.status == 1 and "node 6 q8ta_add, computed from its dumped inputs: " in again.out
    assert "1. nothing written: " in again.out and "nothing written" not in done.out
    assert re.findall(r"^explain node (\d+)", again.out, re.M) == ["4"]
    report = refsim(f"{line} --node delegate0_v66 --json").json["report"]
    assert "node 6 q8ta_add" in report["title"] and report["causes"][0]["name"] == "nothing written"
    assert "node 3" in refsim(f"{line} -n 0:3").out, "one that is right has a report too"
    refsim(f"{line} -n 0:99").refused("0:99")


@pytest.mark.long
def test_a_run_that_differs_names_the_command_that_finds_the_operator(two_wrong: None, refsim, mixed) -> None:
    def step(line: str) -> str:
        done = refsim(f"run {line}")
        assert done.status == 1
        (command,) = re.findall(r"^which operator.*: refsim (.*)$", done.out, re.M)
        return command

    model, _, io = mixed.split()
    command = step(f"{mixed} -x cpu,cpu:emulated")
    found = refsim(command)
    assert command.startswith("compare ") and found.status == 1 and "node 4 q8ta_relu" in found.out
    refsim(f"run {mixed} --dump . dump -x cpu:emulated")
    command = step(f"{mixed} --golden dump")
    found = refsim(command)
    assert command.endswith(" --actual dump") and found.status == 1
    assert "wrong: node 6 q8ta_add" in found.out
    command = step(f"{model} --random 3 --target mali --expect {io}")
    assert command == f"bisect {model} --random 3 --target mali --actual DIR"
    done = refsim(f"run {model} --random 3 --expect {io}")
    assert "\nDIR: refsim run --dump writes one; of a run on a device, refsim expose and then" in done.out
    same = refsim(f"run {mixed} -x cpu --expect {io}")
    assert same.status == 0 and "which operator" not in same.out


# --- outputs of exposed files ------------------------------------------------------------------------------


def judging(done, io: str) -> list[str]:
    """The words of the command that `expose` printed, with the outputs of a simulated device."""
    (command,) = re.findall(r"^then: refsim (.*)$", done.out, re.M)
    assert done.out.splitlines()[-1].startswith("OUTPUTS: ") and done.out.endswith(f"{FORM}\n")
    words = command.replace("IN.npz", io).split()
    inputs = [np.load(io)["in0"]]
    for at, word in enumerate(words):
        if word.startswith("OUTPUTS"):
            exposed = words[1] if words[at - 1] == "--outputs" else words[at - 1]
            words[at] = f"{exposed}.npz"
            arrays(words[at], Runtime(Path(exposed).read_bytes()).run(inputs))
    return words


@pytest.mark.parametrize("options", ["", "--chunk 5", "--value delegate0_v66", "--value ."])
def test_what_expose_says_next_judges_the_run(options: str, refsim, mixed: str, tmp_path: Path) -> None:
    model, _, io = mixed.split()
    words = judging(refsim(f"expose {model} -o {tmp_path}/m.pte {options}"), io)
    found = refsim(*words)
    assert found.status == 0, found.err
    said = " ".join(found.out.split())
    # the inputs of an operator whose value alone is exposed are not there: it is compared with the exact run
    alone = "v66" in options
    assert ("compared with the exact run" if alone else "operators are right") in said, found.out
    assert ("--partial" in words) == alone
    assert words.count("--more") == (2 if "--chunk" in options else 0)
    assert FORM in " ".join(refsim("triage --help").out.split())


def test_triage_says_which_parts_are_missing(refsim, mixed: str, tmp_path: Path) -> None:
    model, _, io = mixed.split()
    words = judging(refsim(f"expose {model} -o {tmp_path}/m.pte --chunk 5"), io)
    at = words.index("--more")
    one, two = refsim(*words[:at]), refsim(*words[:at], *words[at + 3 :])
    for done, parts in ((one, "parts 2, 3 of 3"), (two, "part 2 of 3")):
        assert done.status == 2
        assert f"need {parts}, each with --more EXPOSED OUTPUTS, or --partial" in done.err
    for name in (words[at - 1], words[at + 5]):  # the outputs of each part that was given
        assert f"not checked: {name} does not say" in two.out
    outputs = dict(np.load(words[at - 1]))
    held = max(outputs, key=lambda name: (outputs[name].dtype == np.int32, name))
    outputs[held].view(np.uint8).reshape(-1)[0] ^= 0x7F
    np.savez(words[at - 1], **outputs)
    wrong = refsim(*words[:at])
    assert wrong.status == 1
    assert "\nnot given: parts 2, 3 of 3, each with --more EXPOSED OUTPUTS\n" in wrong.out
