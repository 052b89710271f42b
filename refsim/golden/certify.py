"""What a device made of the corpus: every case of a folder of programs, judged by the outputs of a run.

Each output is compared with the definition, in all bytes that ET-VK's kernels define. Where it differs, the numerics
profiles and the defects that upstream's kernels have on every device are tried before it is called wrong.
`page` is the certificate for people.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Annotated, Any

import numpy as np

import refsim
from refsim.bytediff import diff
from refsim.bytediff.findings import Difference
from refsim.bytediff.rank import Cause
from refsim.core import choices
from refsim.core.buffer import FILL, PackedBuffer
from refsim.core.counted import counted
from refsim.core.errors import FormatError, LimitError, RefsimError, ShapeError
from refsim.core.html import rendered
from refsim.core.meanings import BestProfile, CaseName, FolderName
from refsim.core.no_clobber import free
from refsim.core.plain import FLAT
from refsim.core.qmath import CANONICAL, PROFILES
from refsim.core.result import MOST_SHOWN, Result, Table, Text, rest
from refsim.core.status import DIFFERENT
from refsim.core.status import SAME as RIGHT
from refsim.device import outputs
from refsim.formats.file import meant, quote
from refsim.formats.reading import json_file, reading
from refsim.golden.apart import KernelCauses, WrongCase, likely, of_kernels, table_of
from refsim.golden.judge import KNOWN_DEFECT, LEGAL, SAME, WRONG, Judged, judged, same
from refsim.golden.programs import KIND, MANIFEST, MAX_BYTES, SCHEMA, described
from refsim.golden.store import DigestEntry, digest, parse
from refsim.golden.told import kernels_text
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import check_case
from refsim.ops.base.target import Behaviour

#: How a case can come out, best first.
MISSING = "missing"
VERDICTS = (SAME, LEGAL, KNOWN_DEFECT, WRONG, MISSING)
NEED = "what refsim golden export wrote"
#: The folder that the documentation's example writes.
EXAMPLE = "out/corpus"


@dataclass(frozen=True)
class Verdict:
    """How one case came out, and what is known of a wrong one, or why there was nothing to compare."""

    case: CaseName
    bound: BoundCase
    judged: Annotated[Judged, FLAT]
    differing: Annotated[int, "Elements that differ."] = 0
    pattern: Annotated[Sequence[str], "What they have in common, in sentences."] = ()
    first: Annotated[Sequence[Difference], "The first of them."] = ()
    causes: Annotated[Sequence[Cause], "The likely causes, best first."] = ()
    unfit: Annotated[
        str, "Why the output cannot be compared: it is of another size, or damaged; else empty."
    ] = ""
    otherwise: Annotated[str, "Of a legal case: which profile the others fit; else empty."] = ""

    @property
    def arguments(self) -> Annotated[str, "The call, as text."]:
        return str(self.bound.case)

    @property
    def verdict(self) -> str:
        return self.judged.verdict

    @property
    def op(self) -> str:
        return self.bound.case.op

    @property
    def layouts(self) -> str:
        call = self.bound.call
        return " ".join((*(str(desc.layout) for desc in call.descs.values()), "->", str(call.out.layout)))


@dataclass(frozen=True)
class Certificate:
    """The verdicts on all cases, and the profile that explains most of them.

    ``about`` is what the user says of the device.
    """

    about: Annotated[Mapping[str, str], "What was said of the device."]
    profile: BestProfile
    verdicts: tuple[Verdict, ...]

    @property
    def right(
        self,
    ) -> Annotated[bool, "Whether all ran and nothing is wrong but what is wrong on every device."]:
        ran = all(row.verdict in (SAME, LEGAL, KNOWN_DEFECT) for row in self.verdicts)
        return ran and bool(self.verdicts)

    @property
    def cases(self) -> Annotated[int, "How many cases."]:
        return len(self.verdicts)

    @property
    def operators(self) -> Annotated[dict[str, dict[str, int]], "Cases by operator and verdict."]:
        found: dict[str, dict[str, int]] = {}
        for row in self.verdicts:
            found.setdefault(row.op, dict.fromkeys(VERDICTS, 0))[row.verdict] += 1
        return found

    @property
    def known(self) -> Annotated[dict[str, str], "What each known defect is."]:
        found = (row.judged.known for row in self.verdicts)
        return {defect.name: defect.note for defect in found if defect}

    @property
    def deviations(
        self,
    ) -> Annotated[list[Verdict], "Every case whose bytes are not the definition's, worst first."]:
        order = [WRONG, MISSING, KNOWN_DEFECT, LEGAL]
        found = [row for row in self.verdicts if row.verdict in order]
        return sorted(found, key=lambda row: order.index(row.verdict))

    @cached_property
    def causes(self) -> Annotated[list[KernelCauses], "What is wrong with each kernel."]:
        found: dict[tuple[str, str], list[WrongCase]] = {}
        for row in self.verdicts:
            if row.verdict == WRONG:
                case = WrongCase(row.case, tuple(row.causes), not row.unfit, row.bound)
                found.setdefault((row.op, ""), []).append(case)
        return of_kernels(found)


# --- the folder ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class File:
    """One program of a folder, and its cases in the order of its outputs."""

    name: str
    cases: tuple[DigestEntry, ...]


def read(folder: str | os.PathLike[str]) -> tuple[File, ...]:
    """The programs of a folder that `refsim golden export` wrote. FormatError for any other, or a damaged one."""
    where = os.fspath(Path(folder) / MANIFEST)
    if not os.path.exists(where):
        raise _no_corpus(os.fspath(folder))
    content = json_file(where, NEED)
    head = (
        {key: content.get(key) for key in ("kind", "schema", "fill")}
        if isinstance(content, dict)
        else content
    )
    if head != {"kind": KIND, "schema": SCHEMA, "fill": FILL}:
        raise FormatError(where, "not the manifest of a corpus", got=quote(head), need=f"kind {KIND!r}")
    with reading(where, "damaged", NEED):
        return tuple(_file(row, where) for row in content["files"])


def _no_corpus(folder: str) -> FormatError:
    """The folder that was probably meant, else that of the documentation's example; else the command that makes one."""
    there = os.path.lexists(folder)
    known = "" if there else meant(folder)
    if not known and os.path.exists(os.path.join(EXAMPLE, MANIFEST)):
        known = choices.asked(EXAMPLE)
    hints = [] if known else [f"refsim golden export --pte {free(EXAMPLE)}"]
    return FormatError(
        folder, f"holds no {MANIFEST}" if there else "no such folder", need=NEED + known, hints=hints
    )


def _file(row: Mapping[str, Any], where: str) -> File:
    name = str(row["file"])
    if os.path.basename(name) != name or not name.endswith(".pte"):
        raise FormatError(where, "not the name of a program", got=quote(name), need="NAME.pte")
    named = [(str(case["case"]), json.dumps(case["line"])) for case in row["cases"]]
    lines = (parse(one.partition("/")[0], line, f"{where}: {name}: {quote(one)}") for one, line in named)
    return File(name, tuple(lines))


# --- the outputs -----------------------------------------------------------------------------------------


def check(
    files: Sequence[File],
    folder: str | os.PathLike[str],
    about: Mapping[str, str],
    step: Callable[[], None] = lambda: None,
    runtime: Behaviour = Behaviour(),  # noqa: B008
) -> Certificate:
    """Judge the outputs in a folder; ``step`` is called after each case. ``runtime``: the one that ran the programs.

    The outputs of NAME.pte are NAME.npz, a folder NAME, or NAME-0.bin and so on. Cases of a program without outputs
    are ``missing``; one whose output is of another size is ``wrong``, as are all of a program with another number of
    outputs. FormatError or ShapeError if none of several outputs fits, or if there are none at all.
    """
    outputs.check_folder(folder)
    found: list[Verdict] = []
    unfit: list[RefsimError] = []
    for file in files:
        bounds = [_bound(entry) for entry in file.cases]
        arrays = _outputs(folder, file, bounds)
        unfit += [one for one in arrays or () if isinstance(one, RefsimError)]
        for number, (entry, bound) in enumerate(zip(file.cases, bounds, strict=True)):
            array = None if arrays is None else arrays[number]
            if array is None:
                found.append(Verdict(entry.name, bound, Judged(MISSING)))
            elif isinstance(array, RefsimError):
                found.append(Verdict(entry.name, bound, Judged(WRONG), unfit=str(array)))
            else:
                target = replace(bound.call.target, runtime=runtime)  # its kernel, and its defects alone
                found.append(_judged(entry, replace(bound, call=replace(bound.call, target=target)), array))
            step()
    if all(row.verdict == MISSING for row in found):
        raise outputs.none_of(folder, [file.name.removesuffix(".pte") for file in files])
    if len(unfit) > 1 and all(row.verdict == MISSING or row.unfit for row in found):
        raise unfit[0]
    profile = _profile(found)
    return Certificate(dict(about), profile, tuple(_settled(row, profile) for row in found))


def _bound(entry: DigestEntry) -> BoundCase:
    """The case; FormatError if its bytes are no longer those that it was exported with, or if no file could hold it."""
    check_case(entry.case)
    elements = [prod(shape) for shape, _ in entry.case.inputs.values() if all(type(n) is int for n in shape)]
    if sum(elements) > MAX_BYTES:
        raise LimitError(
            entry.name,
            "too large for a program",
            got=counted(sum(elements), "element"),
            need=f"<= {MAX_BYTES}",
        )
    bound = bind(entry.case)
    if bound.call.out.nbytes > MAX_BYTES:
        raise LimitError(
            entry.name, "too large for a program", got=bound.call.out, need=f"<= {counted(MAX_BYTES, 'byte')}"
        )
    now = digest(bound.call, bound.call.expected(bound.inputs))
    if now != entry.sha256:
        raise FormatError(
            entry.name,
            "was exported with another meaning",
            got=now[:16],
            need=f"{entry.sha256[:16]}: export again",
        )
    return bound


def _outputs(
    folder: str | os.PathLike[str], file: File, bounds: Sequence[BoundCase]
) -> list[outputs.Either] | None:
    """An array for each case of a program, or why its file holds none; None if the folder has none of this program."""
    declared = [described(bound.call) for bound in bounds]
    try:
        return outputs.each_beside(folder, file.name.removesuffix(".pte"), declared)
    except (FormatError, ShapeError) as error:  # another number of outputs
        return [error] * len(bounds)


# --- the verdict -----------------------------------------------------------------------------------------


def _judged(entry: DigestEntry, bound: BoundCase, array: np.ndarray) -> Verdict:
    """Same, legal under some profiles, a known defect, or wrong: then also in which pattern, and likely why."""
    out = bound.call.out
    if out.is_int8:
        actual = PackedBuffer.from_raw(np.ascontiguousarray(array).view(np.uint8), out.shape, out.layout)
    else:
        actual = PackedBuffer.pack(array, out.layout)
    found = Verdict(entry.name, bound, judged(bound, actual))
    if found.verdict != WRONG:
        return found
    report = diff(bound.call.expected(bound.inputs), actual, call=bound, device=True, limit=1)
    unwritten = out.is_int8 and bool((actual.raw == FILL).all())
    pattern = ["nothing was written"] if unwritten else report.pattern
    return replace(
        found, differing=report.differing, pattern=pattern, first=report.differences, causes=report.causes
    )


def _profile(rows: Sequence[Verdict]) -> str:
    """The profile under which most cases come out: of those with other bytes, and of those with the same."""
    explained = Counter(name for row in rows if row.verdict == LEGAL for name in row.judged.profiles)

    def score(name: str) -> int:
        """Less the cases with the canonical bytes that have other bytes under this profile."""
        right = (row.bound for row in rows if row.verdict == SAME and name != CANONICAL.name)
        wrong = sum(not same(one, one.call.expected(one.inputs), PROFILES[name]) for one in right)
        return explained[name] - wrong

    names = [CANONICAL.name, *(name for name in PROFILES if explained[name] and name != CANONICAL.name)]
    return max(names, key=score) if explained else CANONICAL.name


def _settled(row: Verdict, profile: str) -> Verdict:
    """A case that is legal under other profiles only is wrong on a device of this one."""
    if row.verdict == LEGAL and profile not in row.judged.profiles:
        return replace(row, otherwise=f"the other cases fit {profile}")
    return row


MEANINGS = {
    SAME: "every byte that the kernel defines is the definition's",
    LEGAL: "other bytes, which a device may write that rounds as a profile says",
    KNOWN_DEFECT: "the bytes of a defect that ExecuTorch's runtime has on every device",
    WRONG: "bytes that nothing of this explains, or an output of another size",
    MISSING: "the program of this case gave no outputs",
}


def verdict(certificate: Certificate) -> str:
    """The one sentence that the page begins with."""
    total = len(certificate.verdicts)
    count = {name: sum(row.verdict == name for row in certificate.verdicts) for name in VERDICTS}
    said = [f"{count[name]} {name}" for name in VERDICTS if count[name]]
    right = "all right" if certificate.right else "not all right"
    return f"{counted(total, 'case')}, {right}: {', '.join(said)}"


def what(row: Verdict) -> Iterator[str]:
    """What there is to say about a case that is not the same."""
    if row.verdict == LEGAL:
        yield f"legal under {', '.join(row.judged.profiles)}" + (
            f"; {row.otherwise}" if row.otherwise else ""
        )
    elif row.verdict == KNOWN_DEFECT:
        yield row.judged.known.note if row.judged.known else ""
    elif row.verdict == MISSING:
        yield "no outputs"
    elif row.unfit:
        yield row.unfit
    else:
        yield f"{row.differing} differ; {'; '.join(row.pattern)}"
        yield from likely(row.causes)


def page(certificate: Certificate) -> str:
    """The page as HTML. MissingDependencyError without jinja2."""
    return rendered(
        "certificate",
        "refsim.golden",
        "certificate.html",
        certificate=certificate,
        verdict=verdict(certificate),
        verdicts=VERDICTS,
        meanings=MEANINGS,
        deviations=certificate.deviations,
        what=what,
        causes=table_of(certificate.causes),
        version=refsim.__version__,
    )


@dataclass(frozen=True)
class JudgedDevice(Result):
    """What a device made of exported cases."""

    folder: FolderName
    outputs: Annotated[str, "The outputs."]
    found: Annotated[Certificate, FLAT]

    @property
    def status(self) -> int:
        return RIGHT if self.found.right else DIFFERENT

    def text(self) -> Text:
        found = self.found
        columns = ("operator", *(f"{name} count" for name in VERDICTS))
        yield Table(columns, [(op, *counts.values()) for op, counts in found.operators.items()])
        rows = found.deviations
        told = [row for row in rows if row.verdict == WRONG]
        told = told or [row for row in rows if row.verdict == LEGAL]
        for row in told[:MOST_SHOWN]:
            yield f"{row.case} {row.layouts}: {'; '.join(what(row))}"
            yield f"  {row.bound.case.configuration}"
        yield from rest(len(told))
        yield from kernels_text(found.causes)
        yield from (f"known defect {name}: {text}" for name, text in found.known.items())
        yield f"profile {found.profile}; {verdict(found)}"
