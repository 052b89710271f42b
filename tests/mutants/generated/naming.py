"""Whether a report named a generated mutant: its cause, or the region of the bytes that it makes wrong.

Nobody wrote down what a generated change does wrong. docs/mutants.md has the rules by which a report names it. Each
`Role` is a class of code; a change has the roles whose names occur in the expression that it changes. If none does, or
only a single letter, its statement tells them; then its function.
Apart from the name, the *place* that a report tells of a change in an emulated kernel or a shader is right or not
(`located`). No line of an emulated kernel is that of a native one, so nothing is said of those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mutants.generated.change import Change
from refsim.bytediff import Report
from refsim.bytediff.consensus import Agreed
from refsim.bytediff.facts import PADDING_ONLY
from refsim.bytediff.search.words import Place
from refsim.bytediff.within import tightest
from refsim.core.doing import INNERMOST
from refsim.exec import reads

OPERANDS = "operands"
#: What a kernel says that is asked what its outputs read; its words name an element that is read, and the right one.
ASKED = reads.NAME
#: So many wrong elements of a single case are enough to prove a cause that predicts every byte.
MANY = 16
#: What is said of a case that is wrong on several threads and right on one; what one thread alone does not run.
ALONE = "right on one thread"
TOGETHER = tuple(f"refsim/exec/cpu/{name}.py" for name in ("runner", "wake", "thread_pool"))
#: A device that was lost while a shader ran.
LOST = re.compile(r"DeviceError: (\w+): .*the device was lost")
#: Fewer wrong elements have no region.
FEW = 8
#: What the note of an error says that stopped a native kernel from being prepared, and where these kernels are.
PREPARED, NATIVE = (
    r"was prepared for the native route|the native route \S+ was asked|while the native kernel \S+ was written",
    "refsim/exec/cpu/",
)


#: What a report says where the emulated kernel is right and native ones are not; and the files of these.
WAY, KERNELS = (
    r"computed by the route [^;]*; right (by the emulated kernel|if every value is observed)",
    r"kernel of (refsim/exec/cpu/\w+/\S+?):",
)
#: What is said of a process that came to no good end while a kernel ran, and of a kernel that wrote outside.
ENDED = re.compile(r"no end:|signal \d+:|GuardError:")


@dataclass(frozen=True)
class Role:
    """A class of code: the ``names`` that tell it, the ``causes`` and ``values`` (of the pattern) that are of it."""

    name: str
    names: str
    causes: tuple[str, ...] = ()
    values: str = r"$^"

    def told(self, text: str) -> str:
        """The longest of its names that occurs in a text; "" if none does."""
        pattern = rf"(?:\b|_|(?<=[a-z]))(?P<name>{self.names})(?:\b|_|(?=[A-Z\d]))"
        return max((m["name"] for m in re.finditer(pattern, text, re.IGNORECASE)), key=len, default="")


_ONE_STEP, _SAME_STEP = r"off by one step only", r"every differing element is off by"

ROLES = (
    Role(
        "zero point", r"zps?|zero|zero_points?|wsums?|sums|border|splat|in_zp|shift(ed)?",
        (
            "zero point one off", "order of the epilogue", "edge of the input",
            "zero point not folded", "zero point folded twice", "border padded with 0", "zero point of rows",
            "weight sums over the wrong dimension", "weight sums of other outputs", "channel constants misplaced",
            "another tensor's quantization", "stale constant", "sums of groups doubled", "clamp order",
            "constants of other channels", "sums off by a constant", "another operation",
        ),
        _SAME_STEP,
    ),
    Role(
        "scale", r"scales?|inv|inverse|factor|alpha|multiplier|ratio",
        (
            "scale changed", "order of the epilogue", "another precision",
            "another tensor's quantization", "alpha ignored", "scale of another group", "scale of rows",
            "channel constants misplaced", "stale constant", "range of rows", "operands exchanged",
            "constants of other channels", "another operation",
        ),
    ),
    Role(
        "bias", r"bias(es)?|addend",
        (
            "bias changed", "order of the epilogue", "channel constants misplaced", "stale constant",
            "constants of other channels", "sums off by a constant", "another operation",
        ),
        _SAME_STEP,
    ),
    Role(
        "rounding", r"round\w*|rint|ties?|half|floor|trunc|magic|nearest|to_f32|fma|fused|precise|contract|wide|"
        r"float\d*|double",
        (
            "another precision", "order of the epilogue",
            "tie rule", "truncation", "fused multiply-add", "conversion out of range", "order of float sums",
            "clamp order", "another operation", "sums of 16 bits",
        ),
        _ONE_STEP,
    ),
    Role(
        "clamp", r"clamp\w*|relu|low|high|min|max|bounds?|limit|saturat\w*|narrow\w*|least|most",
        (
            "no clamp", "clamp order", "clamp bounds", "relu bound", "relu dropped or added",
            "conversion out of range", "another operation",
        ),
    ),
    Role(
        "window", r"stride\w*|dilation\w*|pad(ding)?s?|taps?\w*|kernel_?[hwsize]*|window\w*|hit|ih|iw|extent\w*|pool",
        (
            ASKED,
            "edge of the input", "input read at a neighbour", "products miscounted", "one coordinate for another",
            "taps exchanged", "words along K exchanged",
            "stride or dilation", "padding offset", "border padded with 0", "H and W exchanged",
            "reduction too short", "weights in another order",
        ),
    ),
    Role(
        "reduction", r"acc\w*|dot\w*|k4s?|k\d?|depth|total\w*|partial\w*|reduc\w*|sum|stage|run_\w*|group\w*|left",
        (
            ASKED,
            "products miscounted", "weights read at another stride", "words along K exchanged",
            "reduction too short", "float sum too short", "order of float sums", "sums of groups doubled",
            "unsigned lanes", "weights in another order", "scale of another group",
            "weights laid out for another kernel", "range of rows", "sums of 16 bits", "sums not reset",
            "sums begun anew", "weights of other channels", "lanes exchanged", "sums off by a constant",
        ),
    ),
    Role(
        "weights", r"weights?|nibbles?|int4|halves|panels?|prepack\w*",
        (
            ASKED,
            "weights read at another stride", "products miscounted", "taps exchanged",
            "words along K exchanged",
            "nibbles of other places",
            "weights in another order", "weights laid out for another kernel", "nibbles read wrong",
            "reduction too short", "unsigned lanes", "channel constants misplaced",
            "weight sums over the wrong dimension", "weights of other channels", "lanes exchanged",
        ),
    ),
    Role(
        "lanes", r"lanes?\w*|bytes?|shuffle|insert|extract|shr|sext|zext|quarters|zipped|unzip\w*|lane_of|words?_of",
        (
            ASKED,
            "sign smeared over a word", "words put together wrongly", "products miscounted", "nibbles of other places",
            "byte order", "lanes rotated", "unsigned lanes", "block transposed", "padding leaked",
            "nibbles read wrong", "lanes exchanged",
        ),
    ),
    Role(
        "address", r"at|to|source|word\w*|idx|\w*_idx|index|offsets?|place\w*|pointer|buf\w*|block\w*|hash\w*|"
        r"layout\w*|lines?|line_bytes|pitch|tiled?|texel|\w*_stride|strides|row|rows|column\w*|pixel\w*|coord|position\w*|quad\w*|nhwc|plane\w*",
        (
            ASKED,
            "values moved", "elements at another distance", "words of other places", "one coordinate for another",
            "input read at a neighbour",
            "lanes exchanged", "constants of other channels", "weights of other channels", "taps exchanged",
            "words along K exchanged",
            "nibbles of other places", "rows read at another stride",
            "weights read at another stride", "only a part is written",
            "rows apart", "lanes rotated", "byte order", "block transposed", "another layout's strides",
            "H and W exchanged", "C and another dim exchanged", "write out of bounds", "read out of bounds",
            "stale or foreign buffer", "padding leaked", "nothing written", "last tile missing", "batch ignored",
        ),
    ),
    Role(
        "dims", r"[whcn]|[oi][hwc]|width|height|channels?|batch|images?|out_[hwc]|extents?",
        (
            ASKED,
            "one coordinate for another", "input read at a neighbour", "edge of the input", "values moved",
            "elements at another distance", "words of other places", "weights of other channels",
            "weights read at another stride", "taps exchanged", "words along K exchanged",
            "rows read at another stride",
            "H and W exchanged", "C and another dim exchanged", "batch ignored", "another layout's strides",
            "rows apart", "last tile missing", "border padded with 0",
        ),
    ),
    Role(
        "batch", r"n|batch\w*|images?|out_image",
        ("one coordinate for another", "batch ignored", "values moved"),
    ),
    Role(
        "tail", r"tail\w*|rest|last|part\w*|count\w*|whole|full|edge|inside|remain\w*|mask\w*|spill\w*|direct|chunks?|"
        r"all_\w+|live",
        (
            ASKED,
            "edge of the input", "only a part is written", "last tile missing", "padding leaked",
            "write out of bounds", "read out of bounds", "reduction too short", "nothing written",
        ),
    ),
    Role(
        "dispatch", r"reached|grid|local\w*|LOCAL_[XYZ]|TILE_[XYZ]|global\w*|gl_\w+|invocation\w*|workgroup\w*|launch|"
        r"threads?|tasks?|jobs?|begin|end|first|shares?",
        (
            "only a part is written", "last tile missing", "nothing written", "write out of bounds",
            "read out of bounds", "batch ignored", "rows apart",
        ),
    ),
    Role(
        OPERANDS, r"a|b|x|y|operands?",
        ("operands exchanged", "alpha ignored", "another tensor's quantization", "another operation"),
    ),
    Role(
        "barrier", r"barrier|shared|tile_[ab]|partial",
        ("stale or foreign buffer", "float sum too short", "order of float sums", "range of rows",
         "reduction too short"),
    ),
    Role(
        "memory", r"lifetimes?|arena|place[ds]?|alias\w*|reuse\w*|free|objects?|temps?|scratch|buffers?|guards?",
        ("stale or foreign buffer", "write out of bounds", "read out of bounds", "padding leaked", "memory plan"),
    ),
    Role(
        "quantization", r"steps?|quantize\w*|dequantize\w*|q|real|values?|integers?",
        (
            "another precision", "order of the epilogue", "no clamp", "scale changed", "zero point one off",
            "another tensor's quantization", "clamp order", "clamp bounds", "conversion out of range",
            "zero point not folded", "zero point folded twice", "truncation", "tie rule", "quantized rows",
            "another operation",
        ),
    ),
)  # fmt: skip


def roles(change: Change) -> tuple[Role, ...]:
    """What the changed code is about: told by the changed expression, else its statement, else its function."""
    places = (f"{change.original} {change.replacement}", change.statement, change.scope)
    found: tuple[Role, ...] = ()
    for text in places:
        told = {role.name: role.told(text) for role in ROLES}
        found += tuple(role for role in ROLES if told[role.name] and role not in found)
        if any(len(name) > 1 for name in told.values()):  # single letters say little
            break
    return found


def cause(change: Change, texts: Iterable[str]) -> str:
    """The first of these names, or texts of errors, that is of a role of the change; "" if none is."""
    allowed = {name for role in roles(change) for name in role.causes}
    return next((text for text in texts if any(name in text for name in allowed)), "")


def named(change: Change, causes: Sequence[Agreed]) -> str:
    """The first of the first causes that names the change, by its class or by proof; "" if none does."""
    for row in causes:
        if _proved(row) or (_fits(row) and cause(change, [row.name])):
            return row.name
    return ""


def _proved(row: Agreed) -> bool:
    """Whether it predicts every byte of every wrong case, and these are no few."""
    return row.exact == row.of and (row.of > 1 or row.cause.differing >= MANY) and not row.cause.weak


def _fits(row: Agreed) -> bool:
    """Whether it explains most of what is wrong, and no right byte speaks against it."""
    return row.exact > 0 or (not row.cause.weak and 2 * row.cause.explained >= row.cause.differing)


#: Whether the place of one of the first causes is that of the change: it is, one of the edits with the same bytes is,
#: it is another, or no place was told. Of a shader's own lines a search for its repair may say the right one.
RIGHT, AMONG_EQUALS, ELSEWHERE, UNTOLD = "right", "among equals", "elsewhere", "untold"
BY_REPAIR = "by repair"
PLACES = (RIGHT, AMONG_EQUALS, BY_REPAIR, ELSEWHERE, UNTOLD)
#: A statement takes a few lines.
NEAR_LINES = 2


def located(change: Change, causes: Sequence[Agreed]) -> str:
    """What the first causes say of the changed place, its function or a line near it; "" where none could be told."""
    if not change.file.startswith(("refsim/ops/", "refsim/core/", "shaders/")):
        return ""
    told = [row.place for row in causes if row.place is not None]
    if any(_is_place(change, place) for place in told):
        return RIGHT
    if any(_beside_line(change, at) for place in told for at in place.others):
        return AMONG_EQUALS
    return ELSEWHERE if told else UNTOLD


def _is_place(change: Change, place: Place) -> bool:
    if any(_beside_line(change, at) for at in (str(place), place.called, place.shader)):
        return True
    stem, scope = Path(change.file).stem, change.scope.rpartition(".")[2]
    if Path(place.file).stem == place.function:  # the kernel itself
        return stem == place.function and scope in ("kernel", "main")
    same = place.function in (scope, re.sub("x?4$", "", scope))
    return same and (change.file == place.file or change.file.startswith("shaders/"))  # shaders name it alike


def _beside_line(change: Change, at: str) -> bool:
    """Whether a text ends in ``file:line``, in parentheses or not, and that is the changed line or near it."""
    found = re.search(r"([\w/.]+):(\d+)\)?$", at)
    return found is not None and found[1] == change.file and abs(int(found[2]) - change.line) <= NEAR_LINES


def region(change: Change, reports: Sequence[Report]) -> str:
    """What the reports say of where, or by how much, the wrong elements are; "" if that does not tell the change."""
    enough = [report for report in reports if report.differing >= FEW]
    found = [(tightest(report.evidence), report.facts) for report in enough]
    told = [str(region) for region, facts in found if region is not None and str(region) in facts[:1]]
    if told and 2 * len(told) > len(enough):
        return told[0]
    if all(report.pattern[:1] == (PADDING_ONLY,) for report in reports):
        return PADDING_ONLY
    return value(change, reports[0].pattern)


def value(change: Change, pattern: Sequence[str]) -> str:
    """The first line of a pattern that says of the wrong values what a role of the change decides; "" if none does."""
    for line in pattern:
        if any(re.search(role.values, line) for role in roles(change)):
            return line
    return ""


def place(change: Change, frames: Sequence[tuple[str, str]]) -> str:
    """The changed function, if it is one of the innermost (file, function) that an error came through; "" if not."""
    for file, function in list(reversed(frames))[:INNERMOST]:
        if file == change.file and function == change.scope.rpartition(".")[2]:
            return f"{file}: {function}"
    return ""


def prepared(change: Change, notes: str, frames: Sequence[tuple[str, str]]) -> str:
    """The sources of a native kernel whose preparation an error stopped, if the changed file is of them; "" if not."""
    if not re.search(PREPARED, notes):
        return ""
    inner = next((file for file, _ in reversed(list(frames)) if re.match(f"{NATIVE}\\w+/", file)), "")
    mine = _beside(change.file, inner) or _beside(inner, change.file)
    return f"preparing {inner}" if inner and mine else ""


def _beside(file: str, kernel_file: str) -> bool:
    """Whether a file writes a kernel of ``kernel_file``, or its arguments: `prepack.py` lies beside the kernel.

    So does `amx/tiles.py`, which writes what the kernel there calls.
    """
    mine, kernels = Path(file), Path(kernel_file)
    return mine == kernels or (mine.parent == kernels.parent and mine.name in ("prepack.py", "tiles.py"))


def error(change: Change, said: str, frames: Sequence[tuple[str, str]]) -> str:
    """What an error and its notes say of the changed code: a function, a kernel, who wrote it; "" if nothing."""
    return (
        place(change, frames)
        or prepared(change, said, frames)
        or written(change, said)
        or shader(change, said)
    )


def written(change: Change, said: str) -> str:
    """The changed function, if it is one of the innermost that wrote what LLVM refused; "" if not."""
    for line in re.findall(r"was written by ([^|\n]+)", said):
        writers = re.findall(r"(\S+\.py): (\w+)", line)
        found = place(change, [(file, function) for file, function in reversed(writers)])
        if found:
            return found
    return ""


def way(change: Change, said: str) -> str:
    """The native kernel by which a case is wrong, or has no end, and that lies beside the changed file; "" if none."""
    told = re.search(WAY, said)
    kernels = re.findall(KERNELS, told[0] if told else said if ENDED.match(said) else "")
    beside = (kernel for kernel in kernels if Path(kernel).parent == Path(change.file).parent)
    return next((f"wrong by {kernel}" for kernel in beside), "")


def together(change: Change, said: str) -> str:
    """What is said of a case that several threads alone get wrong, if the changed file is one that only they run."""
    return ALONE if ALONE in said and change.file in TOGETHER else ""


def shader(change: Change, said: str) -> str:
    """The shader during which a device was lost, if it is the changed file; "" if not."""
    found = LOST.search(said)
    return f"device lost in {found[1]}" if found and change.file == f"shaders/{found[1]}.comp" else ""
