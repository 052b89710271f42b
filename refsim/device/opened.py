"""A model as a family of devices runs it: the family that was given, or that of the buffers recorded there."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from refsim.check.run import refused
from refsim.check.runtime import DEFAULT as RELEASE
from refsim.check.runtime import runtime
from refsim.core.counted import counted, form
from refsim.core.errors import FormatError, GraphError
from refsim.core.meanings import DeviceFamily, FileName
from refsim.core.plain import FLAT
from refsim.core.qmath import Profile
from refsim.core.result import Result
from refsim.device.manifest import lost, source_of
from refsim.device.noticed import exposed
from refsim.exec.model import Model, load
from refsim.formats.dumps import Recorded, tensor_text, value_name
from refsim.formats.targets import DEFAULT, TargetRow, distinct, named
from refsim.graph.aliases import RUNTIME, read_as_another
from refsim.ops.base.target import Target


@dataclass(frozen=True)
class TargetFit:
    """How many buffers have the shapes and layouts of a model: ``fitting`` of ``count`` that are values of it.

    ``first`` says of the first that does not fit what it is and what it should be.
    """

    fitting: int
    count: int
    first: str = ""

    @property
    def whole(self) -> bool:
        return self.fitting == self.count

    def __str__(self) -> str:
        return f"{self.fitting} of {self.count}"


def fit(model: Model, recorded: Recorded) -> TargetFit:
    """How the recorded buffers fit the values of a model. No bytes are read."""
    fitting = count = 0
    first = ""
    for number, graph in model.graphs.items():
        for value, tensor in graph.tensors.items():
            entry, desc = recorded.entries.get(name := value_name(number, value)), tensor.desc
            if entry is None or desc is None:
                continue
            count += 1
            if entry.fits(desc):
                fitting += 1
            elif not first:
                there = tensor_text(entry.shape, entry.layout)
                first = f"{name} is {there} there and {tensor_text(desc.shape, desc.layout)} here"
    return TargetFit(fitting, count, first)


def chosen(fits: Mapping[str, TargetFit]) -> str:
    """The name under which most buffers fit, of equal ones the first."""
    return max(fits, key=lambda name: fits[name].fitting)


@dataclass
class Opened:
    """A model as a target runs it. ``fits``: how the recorded buffers fit each target that was tried."""

    model: Model
    row: TargetRow
    target_from: Annotated[str, "Where the target is from, in words."]
    runtime: Annotated[str, "The runtime: its name, or the file that describes it."]
    fits: dict[str, TargetFit] = field(default_factory=dict)

    @property
    def target(self) -> DeviceFamily:
        return self.row.name

    def line(self) -> str:
        """Which target was taken, and from what."""
        return f"target {self.row.name}, from {self.target_from}"

    def misfits(self, where: str) -> list[str]:
        """What people should know where buffers do not fit the target that was taken.

        FormatError if none fits: it names the target that would.
        """
        own, best = self.fits[self.row.name], chosen(self.fits)
        if own.whole:
            return []
        better = self.fits[best].fitting > own.fitting
        if not own.fitting:
            fits = f"--target {best}, which {self.fits[best]} buffers fit"
            what = f"no buffer fits target {self.row.name}: recorded with another shape or layout"
            raise FormatError(where, what, got=own.first, need=fits if better else "buffers of this file")
        left = own.count - own.fitting
        do = form(left, "does", "do")
        text = f"{left} of {counted(own.count, 'buffer')} {do} not fit target {self.row.name}"
        return [f"{text}; {self.fits[best]} fit --target {best}" if better else text]


@dataclass(frozen=True, kw_only=True)
class OpenedFile(Result):
    """What was found out about a file, as a target runs it."""

    file: FileName
    aimed: Annotated[Opened, FLAT]


def opened(
    file: str,
    family: TargetRow | None,
    profile: Profile | None = None,
    recorded: Recorded | None = None,
    runs: bool = True,
    shaped: Callable[[Model], Model] = lambda model: model,
    release: str = RELEASE,
) -> Opened:
    """Load a file for a target: the one that was given, else that of the recorded layouts, else the default.

    ``shaped`` gives the model at the shapes of a run, ``release`` names the runtime. ``profile`` stands in for the
    target's own. ``runs``: the file will be run here; GraphError for one that only ExecuTorch's runtime runs.
    """
    row = family or named(DEFAULT)
    source = "the default" if family is None else "--target"
    behaviour = runtime(release).behaviour
    if runs:
        _not_exposed(file)
        _taken(file, release)
    held = {
        row.name: Opened(shaped(_loaded(file, row.target(profile, behaviour), runs)), row, source, release)
    }
    if recorded is None:
        return held[row.name]
    fits = {row.name: fit(held[row.name].model, recorded)}
    for other in distinct() if not fits[row.name].whole else ():
        if other.mali != row.mali:
            held[other.name] = Opened(
                shaped(load(file, other.target(profile, behaviour), runs)), other, source, release
            )
            fits[other.name] = fit(held[other.name].model, recorded)
    found = held[row.name if family is not None else chosen(fits)]
    found.fits = fits
    if family is None and fits[found.row.name].fitting:
        found.target_from = f"the layouts of {fits[found.row.name]} buffers in {recorded.path}"
    return found


def _loaded(file: str, target: Target, runs: bool) -> Model:
    """The model. FormatError for one that cannot run here since it was exposed, and its manifest is gone."""
    try:
        model = load(file, target, runs)
        if runs:
            _own_memory(model)
        return model
    except GraphError as error:
        if runs and exposed(file):
            raise lost(file) from error
        raise


def _not_exposed(file: str) -> None:
    source = source_of(file)
    if source is not None:
        triage = f"refsim triage {shlex.quote(file)} -i IN.npz --outputs OUTPUTS"
        raise GraphError(
            file, "is exposed: only ExecuTorch's runtime on the device runs it, and refsim triage judges its outputs",
            need=f"{source}, of which it was made", hints=[triage],
        )  # fmt: skip


def _taken(file: str, release: str) -> None:
    """GraphError for a file that the runtime refuses to load, where a description says what that is."""
    if runtime(release).refusals and (found := refused(file, release)) is not None:
        check = f"refsim check {shlex.quote(file)} --runtime {shlex.quote(release)}"
        raise GraphError(
            file, f"the runtime {runtime(release).name} does not load it", got=found, hints=[check]
        )


def _own_memory(model: Model) -> None:
    """GraphError for a program that reads int8 buffers as words, or the other way round."""
    for number, graph in model.graphs.items():
        found = read_as_another(graph)
        if found is not None:
            raise GraphError(
                f"{model.path}: delegate {number}", "reads a value out of the memory of another",
                got=f"value {found[0]} in the memory of value {found[1]}", need=RUNTIME,
            )  # fmt: skip
