"""What a comparison left out: said by every verb that compares, and an error unless --partial allows it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from refsim.core import choices
from refsim.core.counted import counted, form
from refsim.core.errors import IncompleteError
from refsim.core.plain import FLAT
from refsim.core.result import Result, Same
from refsim.core.status import DIFFERENT, SAME
from refsim.device.opened import Opened, OpenedFile
from refsim.exec.model import Model
from refsim.exec.share import Share
from refsim.formats.dumps import Recorded, value_name
from refsim.formats.run_identity import identity

MOST_NAMED = 5


def unwatched_lines(apart: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Whether runs that nobody watches gave the outputs of those whose buffers were kept, by executor."""
    for executor, names in apart.items():
        which = f"DIFFERENT bits in {', '.join(names)}" if names else "the same bits"
        yield f"{executor}: outputs of a run that nobody watches: {which}"


def named(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    return choices.first(names, MOST_NAMED)


@dataclass
class Completeness:
    """Which of the buffers that a comparison needs it did compare.

    ``where`` is what they were compared with, ``needed`` the names of the run's int8 buffers. ``notes`` are sentences
    for people, ``fix`` what gives those that are not_compared, ``own`` whose kernels ran, of executors that bring some.
    """

    where: str
    needed: Sequence[str]
    compared: frozenset[str]
    partial: Annotated[bool, "Whether --partial was given."] = False
    notes: Annotated[list[str], "What people should know about the comparison."] = field(default_factory=list)
    fix: str = "all"
    own: Sequence[Share] = ()

    @property
    def kernels(
        self,
    ) -> Annotated[dict[str, Share], "Executors with kernels of their own: how many operators ran on these."]:
        return {one.executor: one for one in self.own}

    @property
    def not_compared(self) -> Annotated[list[str], "Int8 buffers of the run that were not compared."]:
        return [name for name in self.needed if name not in self.compared]

    @property
    def enough(self) -> bool:
        """Whether equal bytes say that the run is the same."""
        idle = any(one.idle for one in self.own)
        return bool(self.compared) and (self.partial or not self.not_compared) and not idle

    def lines(self) -> list[str]:
        """What people should know beside the result."""
        notes = [*self.notes, *filter(None, (one.line() for one in self.own))]
        if not self.not_compared:
            return notes
        left, of = len(self.not_compared), counted(len(self.needed), "int8 buffer")
        text = f"{left} of {of} {form(left, 'was', 'were')} not compared: {named(self.not_compared)}"
        return [*notes, text]

    def status(self, same: bool) -> int:
        """The exit status. IncompleteError if nothing differs, but too little was compared to say so."""
        if not same:
            return DIFFERENT
        if not self.compared:
            raise IncompleteError(
                self.where, "no buffer was compared", got="none of the run's buffers", need=named(self.needed)
            )
        for one in self.own:
            one.check()
        if not self.enough:
            left = self.not_compared
            raise IncompleteError(
                self.where, "does not hold all int8 buffers of the run", need=f"{self.fix}, or --partial",
                got=f"{len(self.needed) - len(left)} of {len(self.needed)}; {named(left)} not compared",
            )  # fmt: skip
        return SAME


@dataclass(frozen=True, kw_only=True)
class Complete(Result):
    """A comparison of buffers, which must be complete. ``differs``: something does."""

    whole: Annotated[Completeness, FLAT]
    differs: bool

    @property
    def same(self) -> Same:
        return not self.differs and self.whole.enough

    @property
    def status(self) -> int:
        return self.whole.status(not self.differs)


@dataclass(frozen=True, kw_only=True)
class CompleteComparison(OpenedFile, Complete):
    """A comparison of a file's buffers."""


def of_other_inputs(recorded: Recorded, model: Model, inputs: Sequence[np.ndarray]) -> bool:
    """Whether a buffer says that it is of this file and of other inputs."""
    run = identity(model.path, inputs)
    return any(entry.run.differs(run) == "inputs" for entry in recorded.entries.values())


def _drawn(recorded: Recorded, model: Model) -> int | None:
    """The seed that draws the inputs of the run of all buffers; None if they do not say one, or not of one run."""
    runs = {entry.run for entry in recorded.entries.values()}
    seed = next(iter(runs)).random if len(runs) == 1 else None
    if seed is None or identity(model.path, model.random_inputs(seed)).differs(next(iter(runs))):
        return None
    return seed


def check_run(
    recorded: Recorded,
    aimed: Opened,
    inputs: Sequence[np.ndarray],
    partial: bool,
    drawing: Callable[[int], str],
) -> list[str]:
    """What people should know about the run that buffers are of.

    IncompleteError if they say that they are of another file or other inputs, unless ``partial``; also with it, if none
    of them is a value of the file. ``drawing``: the command with inputs that are drawn from a seed.
    """
    model, fits = aimed.model, aimed.fits[aimed.row.name]
    other = recorded.other_run(identity(model.path, inputs))
    if other is not None and (not partial or not fits.fitting):
        what, need = "holds buffers of another run", f"buffers of {model.path} and these inputs"
        hints: list[str] = []
        if of_other_inputs(recorded, model, inputs):
            drawn = _drawn(recorded, model)
            hints = [] if drawn is None else [drawing(drawn)]
            need += ": the inputs of that run with " + ("-i" if drawn is None else f"--random {drawn}")
        else:
            need += ", or --partial"
        if not fits.fitting:
            hints = []
            need = f"buffers of {model.path}; none of these has the name, shape and layout of a value of it"
        elif fits.fitting < len(recorded.entries):
            only = f"{fits.fitting} of {counted(len(recorded.entries), 'buffer')} there"
            need = f"{need}; {only} {form(fits.fitting, 'has', 'have')} the name, shape and layout of a value of it"
        raise IncompleteError(recorded.path, what, got=other, need=need, hints=hints)
    notes = [] if other is None else [f"{recorded.path} holds buffers of another run: {other}"]
    notes += [f"{recorded.path}: the sidecar says that {what}" for what in recorded.misnamed()]
    unsaid: dict[tuple[str, ...], list[str]] = {}
    for what in recorded.unsaid():
        unsaid.setdefault(tuple(recorded.silent(what)), []).append(what)
    for some, kinds in unsaid.items():
        where = f"{named(some)} in {recorded.path}" if some else recorded.path
        do, are = form(len(some) or 1, "does", "do"), form(len(some) or 1, "it is", "they are")
        notes.append(f"not checked: {where} {do} not say of which {' and of which '.join(kinds)} {are}")
    if bare := recorded.without_sidecar(values(model)):
        lie, what = (
            form(len(bare), "lies", "lie"),
            form(len(bare), "sidecar that says what it is", "sidecars"),
        )
        notes.append(
            f"not read: {named([f'{name}.bin' for name in bare])} {lie} in {recorded.path} without "
            f"{named([f'{name}.json' for name in bare])}, the {what}"
        )
    return notes


def values(model: Model) -> list[str]:
    """The names of all values of a file, as buffers have them."""
    return [value_name(number, value) for number, graph in model.graphs.items() for value in graph.tensors]


def strangers(model: Model, dumped: Recorded) -> list[str]:
    """What people should know about buffers of a dump that no value of the file has."""
    others = sorted(set(dumped.entries) - {*values(model)})
    if not others:
        return []
    what = form(len(others), "is no value", "are no values")
    near = meant(others, model, dumped.entries)
    return [f"not compared: {named(others)} in {dumped.path} {what} of {model.path}{near}"]


def fix_of(recorded: Recorded | None, model: Model) -> str:
    """What gives the buffers that a dump lacks: its sidecars, where the bytes are there."""
    bare = [] if recorded is None else recorded.without_sidecar(values(model))
    beside = [f"{name}.json beside {name}.bin" for name in bare]
    return f"all, with {named(beside)}" if bare else "all"


def meant(strangers: Sequence[str], model: Model, held: Collection[str]) -> str:
    """``; did you mean delegate0_v74?`` of values that a dump names without their delegate, or with a slip.

    ``held``: what the dump has, of which none is meant; empty where nothing is like it.
    """
    known = [name for name in values(model) if name not in held]
    written = {value_name(number, value) for number, node in model.nodes() for value in node.outputs}
    near = [name for one in strangers for name in known if name.endswith(f"_{one}")]
    near = near or [
        name for one in strangers if (name := choices.nearest(one, [n for n in known if n in written]))
    ]
    return choices.asked(named(list(dict.fromkeys(near)))) if near else ""
