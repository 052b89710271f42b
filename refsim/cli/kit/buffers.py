"""What the verbs that compare buffers share: options, printing a report, inputs of a model, reading raw files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np

from refsim.bytediff import Report
from refsim.bytediff.html import render
from refsim.bytediff.invocations import Geometry
from refsim.bytediff.report import holds_elements
from refsim.bytediff.text import styled
from refsim.cli.kit.apart import Telling, say_lines
from refsim.cli.kit.given import hints
from refsim.cli.kit.text import not_written, remark, say, width, wrote
from refsim.cli.kit.verb import Lacking, Result
from refsim.core import atomic_write, choices
from refsim.core.buffer import PackedBuffer, naming
from refsim.core.counted import counted, form
from refsim.core.errors import FormatError, RawBufferError
from refsim.core.layout import FOREIGN, INT8_LAYOUTS, Layout
from refsim.core.status import DIFFERENT, SAME
from refsim.core.tensor import TensorDesc
from refsim.device import single_output
from refsim.device.bisect import launched_flat
from refsim.exec.executor import Executor
from refsim.exec.model import Model
from refsim.formats import npz
from refsim.formats.file import read_file
from refsim.formats.module_folder import SUFFIX
from refsim.ops.base.spec import Call

F = TypeVar("F", bound=Callable[..., Any])

#: Lines of a module's source that are named: a kernel has few that store.
MOST_STORES = 5
STYLES: dict[str, dict[str, Any]] = {
    "same": dict(fg="green"),
    "different": dict(fg="red", bold=True),
    "head": dict(bold=True),
    "cause": dict(fg="magenta"),
    "": {},
}


#: What becomes of NaN where it is quantized.
NAN = "quantized they count as 0 here, and as anything on a device"


def inputs_options(function: F) -> F:
    """The options --input and --random; a model needs one of them."""
    for option in (
        click.option(
            "--random", "seed", type=click.IntRange(0), help="Draw the inputs from this seed instead."
        ),
        click.option(
            "--input",
            "-i",
            "inputs",
            metavar="FILE",
            help="The inputs: an .npz with in0, in1..., or an .npy for a single input.",
        ),
    ):
        function = option(function)
    return function


def all_bytes_option(function: F) -> F:
    return click.option(
        "--all-bytes", is_flag=True, help="Also compare padding that a device may fill with anything."
    )(function)


def write_html(path: str | None, report: Report | None, remarks: Sequence[str] = ()) -> None:
    """Write the page, if it was asked for and there is something to show, and say which; ``remarks`` stand below its
    causes."""
    if path is not None and report is not None and report.differing:
        atomic_write.write(path, render(report, remarks=remarks).encode())
        wrote(path)
    elif path is not None:
        not_written(path, "there is no difference to show")


class GivenInputs:
    """The arrays of --input, or arrays drawn from the seed --random. Their shapes are those that a model runs at."""

    def __init__(self, path: str | None, seed: int | None) -> None:
        if (path is None) == (seed is None):
            both = ", not both" if path is not None else ""
            raise Lacking(f"give the inputs either with -i FILE or with --random SEED{both}")
        self.path, self.seed = path, seed
        self._read: list[np.ndarray] | None = None

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


def raw_file(path: str) -> np.ndarray:
    """The bytes of a file, uint8."""
    return np.frombuffer(bytes(read_file(path)), np.uint8)


def raw_buffer(path: str, shape: Sequence[int], layout: Layout) -> np.ndarray:
    """The bytes of a file that holds such a tensor, uint8; RawBufferError, which names it, if it is of another size.

    An array of its elements (int8) is given as it is, and a remark says that its padding is not compared.
    The file may also be the outputs of a run, as `refsim.device.single_output` takes them. FormatError for a folder,
    which names a buffer in it.
    """
    if Path(path).is_dir():
        size = TensorDesc(tuple(shape), layout).nbytes
        held = sorted(file for file in Path(path).glob("*.bin") if file.stat().st_size == size)
        raise FormatError(path, "a folder", need=f"one raw buffer{f', such as {held[0]}' if held else ''}")
    desc = TensorDesc(tuple(shape), layout)
    try:
        raw, chosen = single_output.read(path, desc)
        elements = holds_elements(raw, desc)
        with naming(path):
            if not elements:
                PackedBuffer.from_raw(raw, tuple(shape), layout)
    except RawBufferError as error:
        need = f"{error.need}{_as_large(path, desc)}"
        raise RawBufferError(
            error.where, error.what, got=error.got, need=need, hints=[*error.hints, *hints(path)]
        ) from error
    if chosen:
        remark(f"{path}: {chosen} was compared, the only one in it that is such a buffer")
    if elements:
        remark(f"{path}: an array holds no padding; its {counted(desc.numel, 'element')} were compared")
    return raw


def _as_large(path: str, desc: TensorDesc) -> str:
    """Which other layouts of the tensor have as many bytes as a file."""
    rows = [row for row in (*INT8_LAYOUTS, *FOREIGN) if desc.is_int8 and os.path.isfile(path)]
    size = os.path.getsize(path) if rows else 0
    fitting = [str(row) for row in rows if row != desc.layout and TensorDesc(desc.shape, row).nbytes == size]
    return (
        f"; {' and '.join(fitting)} of this shape have {counted(size, 'byte')}: --actual-layout"
        if fitting
        else ""
    )


def raw_files(paths: Sequence[str]) -> dict[str, np.ndarray]:
    return {path: raw_file(path) for path in paths}


def print_report(report: Report, telling: Telling | None = None) -> None:
    """Print a report in its styles; a pipe gets plain text.

    With ``telling``, also which causes predict the same bytes, and what tells them apart.
    """
    for line, style in styled(report, width(), choices.IN_JSON):
        say(line, **STYLES[style])
    if telling is not None:
        telling.say(report)


def launched(runner: Executor | None, call: Call) -> Geometry | None:
    """How the kernel that writes a call's output is launched, if that is not refsim's: an executor's, or upstream's."""
    last = None if runner is None else runner.written(call)
    return launched_flat(call) if last is None else Geometry.of(call, last)


def written_by(module: str, stores: Sequence[tuple[str, str]], suffix: str = SUFFIX) -> Iterator[str]:
    """The module that wrote an output, and the lines of its source that did, as lines of text."""
    if module:
        yield f"written by {module}{suffix}"
    for place, source in stores[:MOST_STORES]:
        yield f"stored at {place}" + (f": {source}" if source else "")
    if len(stores) > MOST_STORES:
        yield f"stored at {choices.more(len(stores) - MOST_STORES, choices.IN_JSON)}"


def compared(
    facts: Mapping[str, object],
    report: Report,
    html: str | None,
    notes: Sequence[tuple[str, bool]],
    last: str = "",
) -> Result:
    """The result for a buffer that came from elsewhere; its page is written.

    ``facts``: what the object begins with. ``notes``: (line, whether it ends in a command) to say below the report;
    ``last``: a line after them.
    """
    telling = Telling()
    write_html(html, report, [*telling.texts(report), *(line for line, _ in notes)])

    def show() -> None:
        print_report(report, telling)
        say_lines([*notes, *([(last, False)] if last else [])])

    content = {**facts, **report.as_json(), "apart": telling.as_json(report)}
    return Result(content, show, SAME if report.same else DIFFERENT)
