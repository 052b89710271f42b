"""The option --target, and the model that it describes: layouts, kernels and numerics of a family of devices."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
import numpy as np

from refsim.cli.kit.text import remark
from refsim.cli.kit.verb import Lacking
from refsim.core import choices
from refsim.core.counted import counted, form
from refsim.core.errors import ShapeError
from refsim.exec.model import Model
from refsim.formats import npz
from refsim.formats.targets import DEFAULT, TargetRow, named, targets
from refsim.graph.shapes import zeros

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
