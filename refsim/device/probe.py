"""A probe that is a handful of programs: written for any ExecuTorch runtime, and read back as a numerics profile.

No program takes inputs. The first output of each is its stamp, numbers that only this program gives; so outputs of
another program, or of another version of refsim, are refused. An answer counts if every element of every output is
what that answer says. Anything else leaves the question open, and then there is no profile.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

import numpy as np

from refsim.core.errors import FormatError
from refsim.core.qmath import Profile, known
from refsim.device import outputs
from refsim.device.measurements import (
    CONVERSION,
    DIVISION,
    EXPRESSION,
    FUSED,
    INPUTS,
    MOST_ULPS,
    RESULTS,
    TIES,
    Measurement,
    measurements,
)
from refsim.formats.pte.edit import Described, single_delegate
from refsim.formats.vkgraph.edit import GraphEditor

#: No answer predicts all elements; the program gave no outputs.
MIXED, MISSING = "mixed", "not run"
IEEE = "IEEE"
STAMP = 8


@dataclass(frozen=True)
class ProbeProgram:
    """One file: its name without the suffix, its bytes, the questions that it asks, and its stamp."""

    name: str
    data: bytes
    asks: tuple[Measurement, ...]
    stamp: np.ndarray

    @property
    def declared(self) -> list[Described]:
        """Dtype and shape of each output."""
        shapes = [step.shape for ask in self.asks for step in ask.steps]
        return [("float32", shape) for shape in ((STAMP,), *shapes)]


@dataclass(frozen=True)
class Answer:
    """The answer to one question. ``known`` False: it is open."""

    asked: Measurement
    answer: str
    known: bool = True


@dataclass(frozen=True)
class Answers:
    """All answers of one device."""

    answers: tuple[Answer, ...]

    @property
    def by_question(self) -> Annotated[dict[str, str], "Question -> answer."]:
        return {row.asked.name: row.answer for row in self.answers}

    def __getitem__(self, name: str) -> str:
        return self.by_question[name]

    @property
    def remarks(self) -> Annotated[list[str], "What was answered, and what no profile has."]:
        rows = (
            ((FUSED, EXPRESSION), "fma() is {}, a * b + c {}"),
            ((INPUTS, RESULTS), "denormal inputs are {}, denormal results {}"),
        )
        found = [text.format(self[a], self[b]) for (a, b), text in rows if self._apart(a, b)]
        return [*found, *(["round() takes halves up"] if self[TIES] == "up" else [])]

    @property
    def unknown(self) -> Annotated[list[str], "The questions that stay open, and why."]:
        why = {MISSING: "its program gave no outputs", MIXED: "no answer predicts every element"}
        return [f"{row.asked.question}: {why[row.answer]}" for row in self.answers if not row.known]

    def _apart(self, a: str, b: str) -> bool:
        return self[a] != self[b] and not {self[a], self[b]} & {MIXED, MISSING}

    def profile(self, name: str = "measured") -> Profile | None:
        """The known profile with these answers, else a new one called ``name``; None where a field is not decided."""
        undecided = any(row.answer in (MIXED, MISSING) for row in self.answers if row.asked.name != DIVISION)
        if undecided or self.remarks:
            return None
        fused, flushes = self[FUSED] == "fused", self[INPUTS] == "flushed"
        return known(Profile(name, fused, self[TIES], flushes, self[CONVERSION]))

    def rows(self) -> list[tuple[str, str, str]]:
        """(question, answer, what it decides) as text."""
        return [(row.asked.question, row.answer, row.asked.decides) for row in self.answers]


# --- programs --------------------------------------------------------------------------------------------


@cache
def programs() -> tuple[ProbeProgram, ...]:
    """The programs of a probe; the same bytes every time."""
    return tuple(_program(name, asks) for name, asks in measurements().items())


def _program(name: str, asks: Sequence[Measurement]) -> ProbeProgram:
    recipe = hashlib.sha256(_written(asks, np.zeros(STAMP, np.float32))).digest()
    stamp = np.frombuffer(recipe, np.uint16)[:STAMP].astype(np.float32)
    return ProbeProgram(name, _written(asks, stamp), tuple(asks), stamp)


def _written(asks: Sequence[Measurement], stamp: np.ndarray) -> bytes:
    graph = GraphEditor()
    held = graph.prepack(graph.constant(stamp), graph.tensor("float32", stamp.shape))
    graph.output(graph.clone(held, graph.tensor("float32", stamp.shape)))
    steps = [step for ask in asks for step in ask.steps]
    for step in steps:
        graph.output(step.write(graph))
    described: list[Described] = [("float32", shape) for shape in (stamp.shape, *(s.shape for s in steps))]
    return single_delegate(graph.blob(), [], described)


def files() -> dict[str, bytes]:
    """The content of a folder of programs, by name."""
    return {f"{program.name}.pte": program.data for program in programs()}


# --- outputs ---------------------------------------------------------------------------------------------


def read(folder: str | os.PathLike[str]) -> Answers:
    """The answers in the outputs of a folder: of NAME.pte those in NAME.npz, a folder NAME, or NAME-0.bin and so on.

    Questions of a program without outputs stay open. FormatError, ShapeError or LimitError for outputs that are not
    those of the program, or if there are none at all.
    """
    outputs.check_folder(folder)
    answers: list[Answer] = []
    for program in programs():
        arrays = outputs.beside(folder, program.name, program.declared)
        answers += _answers(program, arrays, os.fspath(Path(folder) / program.name))
    if all(row.answer == MISSING for row in answers):
        raise outputs.none_of(folder, [program.name for program in programs()])
    return Answers(tuple(answers))


def _answers(program: ProbeProgram, arrays: Sequence[np.ndarray] | None, where: str) -> list[Answer]:
    if arrays is None:
        return [Answer(ask, MISSING, False) for ask in program.asks]
    stamp, *rest = arrays
    if not np.array_equal(_words(stamp), _words(program.stamp)):
        what = "not the outputs of this program: its first output is another"
        raise FormatError(
            where, what, got=_short(stamp), need=f"{_short(program.stamp)}; write the programs again"
        )
    found, held = [], iter(rest)
    for ask in program.asks:
        got = [next(held) for _ in ask.steps]
        answer = _quotients(ask, got[0]) if ask.name == DIVISION else _verdict(ask, got)
        found.append(Answer(ask, answer, answer != MIXED))
    return found


def _verdict(ask: Measurement, got: Sequence[np.ndarray]) -> str:
    """The answer that predicts every bit of every output."""
    expected: Mapping[str, np.ndarray] = ask.steps[0].expected
    for name in expected:
        pairs = zip(ask.steps, got, strict=True)
        if all(name in s.expected and np.array_equal(_words(s.expected[name]), _words(g)) for s, g in pairs):
            return name
    return MIXED


def _quotients(ask: Measurement, got: np.ndarray) -> str:
    """How many quotients differ from IEEE division, and by how many units in the last place at most."""
    apart = np.abs(_words(ask.steps[0].expected[IEEE]).astype(np.int64) - _words(got))
    if not apart.any():
        return IEEE
    if apart.max() > MOST_ULPS:
        return MIXED
    return f"{np.count_nonzero(apart)} of {apart.size} quotients differ, by at most {apart.max()} ulp"


def _words(array: np.ndarray) -> np.ndarray:
    """The bits of floats; both zeros are the same."""
    words = np.ascontiguousarray(array, np.float32).reshape(-1).view(np.int32)
    return np.where(words == np.int32(-(2**31)), np.int32(0), words)


def _short(stamp: np.ndarray) -> str:
    return " ".join(f"{value:g}" for value in stamp[:3])
