"""The option --target, and the model that it describes: layouts, kernels and numerics of a family of devices."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import click
import numpy as np

from refsim.check.run import refused
from refsim.check.runtime import DEFAULT as RELEASE
from refsim.check.runtime import runtime
from refsim.cli.kit.text import remark
from refsim.cli.kit.verb import Lacking
from refsim.core import choices
from refsim.core.counted import counted, form
from refsim.core.errors import GraphError, ShapeError
from refsim.core.qmath import Profile
from refsim.device.fitting import TargetFit, chosen, fit, misfit
from refsim.device.manifest import lost, source_of
from refsim.device.noticed import exposed
from refsim.exec.model import Model, load
from refsim.formats import npz
from refsim.formats.dumps import Recorded
from refsim.formats.targets import DEFAULT, TargetRow, distinct, named, targets
from refsim.graph.aliases import RUNTIME, read_as_another
from refsim.graph.shapes import zeros
from refsim.ops.base.target import Target

F = TypeVar("F", bound=Callable[..., Any])


class TargetType(click.ParamType):
    """A family of devices by its name."""

    name = "target"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TargetRow:
        return named(value) if isinstance(value, str) else value


def target_option(default: str = DEFAULT) -> Callable[[F], F]:
    """The option --target, which gives a row or None. ``default`` says in words what is taken without it."""
    text = (
        f"The family of devices: {', '.join(targets())}. It chooses layouts and kernels. [default: {default}]"
    )
    return click.option("--target", "family", type=TargetType(), metavar="NAME", help=text)


class InputShape(click.ParamType):
    """The sizes of an input, in0=1,3,23,32, or the number that it is, in1=5."""

    name = "shape"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, tuple[int, ...]]:
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"in(\d{1,3})=(\d{1,10}(?:[x,]\d{1,10}){0,15})", value)
        if found is None:
            self.fail(f"{value!r} is not the shape of an input, such as in0=1,3,32,32", param, ctx)
        return int(found[1]), tuple(int(part) for part in re.split("[x,]", found[2]))


def input_shape_option(what: str) -> Callable[[F], F]:
    """The option --shape, which may be repeated. ``what``: its help, from the first word on."""
    text = f"{what}: in0=1,3,23,32. Once for each input that is smaller than its bound."
    return click.option(
        "--shape", "given", type=InputShape(), multiple=True, metavar="INPUT=SIZES", help=text
    )


def at_shapes(model: Model, given: Sequence[tuple[int, tuple[int, ...]]], static: bool = False) -> Model:
    """The model at these shapes; an input that is not named has its bound. ``static``: a copy at the bound too."""
    border = model.border
    sizes = {number: row.sizes for number, row in enumerate(border)}
    arrays = [zeros(row.sizes, row.dtype) for row in border]
    for number, wanted in given:
        if number not in sizes:
            need = choices.listed(f"in{n}" for n in sizes) or "none: it has no inputs"
            raise ShapeError(model.path, "no such input", got=f"in{number}", need=need)
        dtype = border[number].dtype
        arrays[number] = zeros(wanted, dtype) if border[number].sizes else np.array(wanted[0], dtype)
    return model.static(arrays) if static else model.at(arrays)


#: What becomes of NaN where it is quantized.
NAN = "quantized they count as 0 here, and as anything on a device"


class GivenInputs:
    """The arrays of --input, or arrays drawn from the seed --random. Their shapes are those that a model runs at."""

    def __init__(self, path: str | None, seed: int | None) -> None:
        if (path is None) == (seed is None):
            both = ", not both" if path is not None else ""
            raise Lacking(f"give the inputs either with -i FILE or with --random SEED{both}")
        self.path, self.seed = path, seed
        self._read: list[np.ndarray] | None = None

    @property
    def words(self) -> list[str]:
        """The option that gives them."""
        return ["-i", self.path] if self.path is not None else ["--random", str(self.seed)]

    def of(self, model: Model) -> list[np.ndarray]:
        """The arrays, as many as the model takes."""
        if self.path is None:
            assert self.seed is not None
            return model.random_inputs(self.seed)
        if self._read is None:
            wanted = [None if row.dynamic else (row.sizes, row.dtype) for row in model.border]
            self._read = npz.read_arrays(self.path, ("in",), wanted)
            if nan := sum(int(np.count_nonzero(one != one)) for one in self._read):
                remark(f"{self.path}: {counted(nan, 'element')} {form(nan, 'is', 'are')} NaN; {NAN}")
        return self._read

    def at(self, model: Model) -> Model:
        """The model at the shapes of the inputs."""
        return model.at(self.of(model))


@dataclass
class Opened:
    """A model as a target runs it. ``fits``: how the recorded buffers fit each target that was tried."""

    model: Model
    row: TargetRow
    target_from: Annotated[str, "Where the target is from, in words."]
    runtime: Annotated[str, "The runtime: its name, or the file that describes it."]
    fits: dict[str, TargetFit] = field(default_factory=dict)

    @property
    def target(self) -> Annotated[str, "The family of devices whose layouts and kernels were taken."]:
        return self.row.name

    def line(self) -> str:
        """Which target was taken, and from what."""
        return f"target {self.row.name}, from {self.target_from}"

    def misfits(self, where: str) -> list[str]:
        """What people should know of buffers that do not fit; FormatError if none does."""
        return [text for text in (misfit(self.row, self.fits, where),) if text]


def _as_it_is(model: Model) -> Model:
    return model


def opened(
    file: str,
    family: TargetRow | None,
    profile: Profile | None = None,
    recorded: Recorded | None = None,
    runs: bool = True,
    shaped: Callable[[Model], Model] = _as_it_is,
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
