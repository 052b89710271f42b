"""Whether a report named a generated mutant: its cause, or the region of the code that it changes.

Nobody wrote down what a generated change does wrong, so the rule goes by what the changed code is about. Each `Role`
is a class of code: zero points, windows, addresses, the last tile. A change has the roles whose names occur in the
expression that it changes; if none does, in its statement; if none does, in its function. It is named

- by its cause, if one of the first three causes is of one of its roles, and
- by its region, if the pattern says of the wrong elements what code of its roles decides: a lane, the border, the
  last columns, a workgroup.

A change without any role is never named. Causes that predict every byte but are of another class do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mutants.generated.change import Change


@dataclass(frozen=True)
class Role:
    """A class of code: the ``names`` that tell it, the ``causes`` that are of it, the ``regions`` that it decides."""

    name: str
    names: str
    causes: tuple[str, ...] = ()
    regions: str = r"$^"

    def tells(self, text: str) -> bool:
        return (
            re.search(rf"(?:\b|_|(?<=[a-z]))(?:{self.names})(?:\b|_|(?=[A-Z\d]))", text, re.IGNORECASE)
            is not None
        )


_LANES, _SIZE_1 = r"only lane|% [24] in", r"only [nchw] = 0"
_TAIL = r"only [nchw] >= |everything after|the last\)|one block only"
_BORDER, _CHANNEL, _BATCH = r"borders only|only [hw] ", r"only c |one block only", r"only n "
_ROUNDING, _BOUNDS, _SIGN = (
    r"off by one step|-128 or 127",
    r"-128 or 127|every differing element is",
    r"negative",
)

ROLES = (
    Role(
        "zero point", r"zps?|zero|zero_points?|wsums?|sums|border|splat|in_zp|shift(ed)?",
        (
            "zero point one off", "order of the epilogue", "edge of the input",
            "zero point not folded", "zero point folded twice", "border padded with 0", "zero point of rows",
            "weight sums over the wrong dimension", "weight sums of other outputs", "channel constants misplaced",
            "another tensor's quantization", "stale constant", "sums of groups doubled", "clamp order",
        ),
        _BORDER + "|off by",
    ),
    Role(
        "scale", r"scales?|inv|inverse|factor|alpha|multiplier|ratio",
        (
            "scale changed", "order of the epilogue", "half precision",
            "another tensor's quantization", "alpha ignored", "scale of another group", "scale of rows",
            "channel constants misplaced", "stale constant", "range of rows", "operands exchanged",
        ),
        "always too|" + _CHANNEL,
    ),
    Role(
        "bias", r"bias(es)?|addend",
        (
            "bias changed", "order of the epilogue", "channel constants misplaced", "stale constant",
        ),
        _CHANNEL + "|always too|off by",
    ),
    Role(
        "rounding", r"round\w*|rint|ties?|half|floor|trunc|magic|nearest|to_f32|fma|fused|precise|contract|wide|"
        r"float\d*|double",
        (
            "half precision", "order of the epilogue",
            "tie rule", "truncation", "fused multiply-add", "conversion out of range", "order of float sums",
            "clamp order",
        ),
        _ROUNDING + "|negative",
    ),
    Role(
        "clamp", r"clamp\w*|relu|low|high|min|max|bounds?|limit|saturat\w*|narrow\w*|least|most",
        (
            "no clamp", "clamp order", "clamp bounds", "relu bound", "relu dropped or added",
            "conversion out of range",
        ),
        _BOUNDS + "|" + _TAIL + "|" + _SIGN + "|always too",
    ),
    Role(
        "window", r"stride\w*|dilation\w*|pad(ding)?s?|taps?\w*|kernel_?[hwsize]*|window\w*|hit|ih|iw|extent\w*|pool",
        (
            "edge of the input", "input read at a neighbour", "products miscounted", "one coordinate for another",
            "stride or dilation", "padding offset", "border padded with 0", "H and W exchanged",
            "reduction too short", "weights in another order",
        ),
        _BORDER,
    ),
    Role(
        "reduction", r"acc\w*|dot\w*|k4s?|k\d?|depth|total\w*|partial\w*|reduc\w*|sum|stage|run_\w*|group\w*|left",
        (
            "products miscounted", "weights read at another stride",
            "reduction too short", "float sum too short", "order of float sums", "sums of groups doubled",
            "unsigned lanes", "weights in another order", "scale of another group",
            "weights laid out for another kernel", "range of rows",
        ),
        _CHANNEL + "|workgroup|always too",
    ),
    Role(
        "weights", r"weights?|nibbles?|int4|halves|panels?|prepack\w*",
        (
            "weights read at another stride", "products miscounted",
            "weights in another order", "weights laid out for another kernel", "nibbles read wrong",
            "reduction too short", "unsigned lanes", "channel constants misplaced",
            "weight sums over the wrong dimension",
        ),
        _CHANNEL,
    ),
    Role(
        "lanes", r"lanes?\w*|bytes?|shuffle|insert|extract|shr|sext|zext|quarters|zipped|unzip\w*|lane_of|words?_of",
        (
            "sign smeared over a word", "products miscounted",
            "byte order", "lanes rotated", "unsigned lanes", "block transposed", "padding leaked",
            "nibbles read wrong",
        ),
        _LANES + "|" + _SIGN,
    ),
    Role(
        "address", r"at|to|source|word\w*|idx|\w*_idx|index|offsets?|place\w*|pointer|buf\w*|block\w*|hash\w*|"
        r"layout\w*|tiled?|texel|\w*_stride|strides|row|rows|column\w*|pixel\w*|coord|position\w*|quad\w*|nhwc|plane\w*",
        (
            "values moved", "one coordinate for another", "input read at a neighbour",
            "weights read at another stride", "only a part is written",
            "rows apart", "lanes rotated", "byte order", "block transposed", "another layout's strides",
            "H and W exchanged", "C and another dim exchanged", "write out of bounds", "stale or foreign buffer",
            "padding leaked", "nothing written", "last tile missing", "batch ignored",
        ),
        _LANES + "|" + _TAIL + "|only [nchw] ",
    ),
    Role(
        "dims", r"[whcn]|[oi][hwc]|width|height|channels?|batch|images?|out_[hwc]|extents?",
        (
            "one coordinate for another", "input read at a neighbour", "edge of the input", "values moved",
            "weights read at another stride",
            "H and W exchanged", "C and another dim exchanged", "batch ignored", "another layout's strides",
            "rows apart", "last tile missing", "border padded with 0",
        ),
        r"only [nchw] |% [24] in|" + _TAIL,
    ),
    Role(
        "batch", r"n|batch\w*|images?|out_image",
        ("one coordinate for another", "batch ignored"), _BATCH,
    ),
    Role(
        "tail", r"tail\w*|rest|last|part\w*|count\w*|whole|full|edge|inside|remain\w*|mask\w*|spill\w*|direct|chunks?|"
        r"all_\w+|live",
        (
            "edge of the input", "only a part is written", "last tile missing", "padding leaked",
            "write out of bounds", "reduction too short", "nothing written",
        ),
        _TAIL + r"|only [nchw] ",
    ),
    Role(
        "dispatch", r"reached|grid|local\w*|LOCAL_[XYZ]|TILE_[XYZ]|global\w*|gl_\w+|invocation\w*|workgroup\w*|launch|"
        r"threads?|tasks?|jobs?|begin|end|first|shares?",
        (
            "only a part is written", "last tile missing", "nothing written", "write out of bounds", "batch ignored",
            "rows apart",
        ),
        r"workgroup|" + _TAIL,
    ),
    Role(
        "operands", r"a|b|x|y|operands?",
        ("operands exchanged", "alpha ignored", "another tensor's quantization"), r"$^",
    ),
    Role(
        "barrier", r"barrier|shared|tile_[ab]|partial",
        ("stale or foreign buffer", "float sum too short", "order of float sums", "range of rows",
         "reduction too short"),
        r"workgroup",
    ),
    Role(
        "memory", r"lifetimes?|arena|place[ds]?|alias\w*|reuse\w*|free|objects?|temps?|scratch|buffers?",
        ("stale or foreign buffer", "write out of bounds", "padding leaked"),
        r"everything after",
    ),
    Role(
        "quantization", r"steps?|quantize\w*|dequantize\w*|q|real|values?|integers?",
        (
            "half precision", "order of the epilogue", "no clamp", "scale changed", "zero point one off",
            "another tensor's quantization", "clamp order", "clamp bounds", "conversion out of range",
            "zero point not folded", "zero point folded twice", "truncation", "tie rule", "quantized rows",
        ),
        _BOUNDS,
    ),
)  # fmt: skip


def roles(change: Change) -> tuple[Role, ...]:
    """What the changed code is about: told by the changed expression, else its statement, else its function."""
    places = (f"{change.original} {change.replacement}", change.statement, change.scope)
    for text in places:
        found = tuple(role for role in ROLES if role.tells(text))
        if found:
            return found
    return ()


def cause(change: Change, named: Iterable[str]) -> str:
    """The first of these causes, or texts of errors, that is of a role of the change; "" if none is."""
    allowed = {name for role in roles(change) for name in role.causes}
    return next((text for text in named if any(name in text for name in allowed)), "")


def region(change: Change, pattern: Sequence[str]) -> str:
    """The first line of the pattern that a role of the change decides; "" if none is."""
    for line in pattern:
        if any(re.search(role.regions, line) for role in roles(change)):
            return line
    return ""
