"""Run the bundled models and compare every buffer with what ET-VK's own runtime wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import click
import numpy as np

import refsim
from refsim.cli.kit.options import executors_option
from refsim.cli.kit.verb import verb
from refsim.cli.run import EXPECTED_NAMES
from refsim.core import choices
from refsim.core.errors import FormatError
from refsim.core.meanings import ComparedBytes, DifferentBytes
from refsim.core.result import Result, Same, Table, Text
from refsim.core.status import DIFFERENT, SAME
from refsim.device.complete import Completeness
from refsim.device.execution import Execution, execute
from refsim.device.ran_file import RunOutput, outputs_of, table
from refsim.formats import npz
from refsim.formats.dumps import Recorded
from refsim.graph.origin import Origins

PACKAGE = Path(refsim.__file__).parent
#: Where the models are: beside the modules of an installed refsim, or with the tests of a checkout.
FOLDERS = (PACKAGE / "bundled", PACKAGE.parent / "tests" / "data" / "models")
DEFAULT = "mixed_ops"


def bundled() -> dict[str, Path]:
    """The .pte files that have recorded buffers, by name."""
    for folder in FOLDERS:
        names = sorted(p.stem for p in folder.glob("*.pte") if (folder / f"{p.stem}.dump.zip").is_file())
        if names:
            return {name: folder / f"{name}.pte" for name in names}
    raise FormatError("demo", "no bundled models", need=f"*.pte in {FOLDERS[0]}")


@dataclass(frozen=True)
class DemoModel:
    """A bundled model against its recorded buffers."""

    model: Annotated[str, "The model's name."]
    operators: Annotated[int, "The operators."]
    buffers: Annotated[int, "Buffers compared."]
    bytes: ComparedBytes
    different: DifferentBytes
    not_compared: Annotated[Sequence[str], "Values that were not compared."]
    outputs_same: Annotated[bool, "Whether the outputs have the right bits."]
    ms: Annotated[Mapping[str, float], "Milliseconds by executor."]
    result: Execution
    outputs: Sequence[RunOutput]

    @property
    def same(self) -> bool:
        return self.outputs_same and self.bytes > 0 and not self.different and not self.not_compared

    def cells(self) -> tuple[object, ...]:
        outputs = "same bits" if self.outputs_same else "different"
        about = (self.model, self.operators, self.buffers, self.bytes, self.different)
        return (*about, outputs, sum(self.ms.values()))


@dataclass(frozen=True)
class Demonstrated(Result):
    """The bundled models against recorded buffers."""

    models: Annotated[Sequence[DemoModel], "The models, the one that was asked for first."]
    executors: str

    @property
    def same(self) -> Same:
        return all(one.same for one in self.models)

    @property
    def status(self) -> int:
        return SAME if self.same else DIFFERENT

    def text(self) -> Text:
        first = self.models[0]
        against, io = f"{first.model}.dump.zip", f"{first.model}.io.npz"
        yield f"{first.model}.pte, run on {self.executors}; every packed buffer against {against}"
        yield ""
        yield from table(first.result, against, Origins())
        yield from (one.text(io) for one in first.outputs)
        yield ""
        heads = ("model", "operators", "buffers", "bytes", "different", "outputs", "ms")
        yield Table(heads, [one.cells() for one in self.models])


@verb("demo", "mixed_ops")
@click.argument("name", default=DEFAULT)
@executors_option
def command(name: str, executors: str) -> Demonstrated:
    """Run the bundled models: NAME (mixed_ops) with a table of its operators, then one line per model."""
    models = bundled()
    if name not in models:
        raise FormatError("demo", "no such bundled model", got=name, need=choices.need(name, models))
    order = [name, *(other for other in models if other != name)]
    return Demonstrated([_shown(one, models[one], executors.split(",")) for one in order], executors)


def _shown(name: str, path: Path, executors: Sequence[str]) -> DemoModel:
    recorded = Recorded(path.with_name(f"{name}.dump.zip"))
    io_path = path.with_name(f"{name}.io.npz")
    model = refsim.load(path)
    inputs = npz.read_arrays(io_path, ("in",), model.input_shapes())
    result = execute(model, inputs, executors, recorded=recorded, repeat=2)
    outputs = next(iter(result.results.values()))
    wanted = npz.read_arrays(io_path, EXPECTED_NAMES, [(a.shape, a.dtype) for a in outputs])
    told = outputs_of(result, wanted)
    checks = [check for row in result.nodes for check in row.golden.values()]
    return DemoModel(
        name, len({row.at for row in result.nodes}), len(checks),
        sum(check.compared for check in checks), sum(check.different for check in checks),
        Completeness(recorded.path, result.needed, result.compared).not_compared,
        all(one.same for one in told) and not any(result.unwatched.values()),
        {e: float(np.sum([row.ms[e] for row in result.nodes])) for e in result.results}, result, told,
    )  # fmt: skip
