"""Which target the buffers of a device's run are of: the one whose layouts they were recorded in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from refsim.core.counted import counted, form
from refsim.core.errors import FormatError
from refsim.exec.model import Model
from refsim.formats.dumps import Recorded, tensor_text, value_name
from refsim.formats.targets import TargetRow


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


def misfit(row: TargetRow, fits: Mapping[str, TargetFit], where: str) -> str:
    """What people should know where buffers do not fit the target that was taken; empty if all do.

    FormatError if none fits: it names the target that would.
    """
    own, best = fits[row.name], chosen(fits)
    if own.whole:
        return ""
    better = fits[best].fitting > own.fitting
    if not own.fitting:
        need = f"--target {best}, which {fits[best]} buffers fit" if better else "buffers of this file"
        what = f"no buffer fits target {row.name}: recorded with another shape or layout"
        raise FormatError(where, what, got=own.first, need=need)
    left = own.count - own.fitting
    text = f"{left} of {counted(own.count, 'buffer')} {form(left, 'does', 'do')} not fit target {row.name}"
    return f"{text}; {fits[best]} fit --target {best}" if better else text
