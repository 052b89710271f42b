"""The keys of a table of ``refsim.toml``: what each must be, and what it says. kernels.py reads the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from refsim.core.qmath import PROFILES

MAX_WORDS = 256
PADDING = ("defined", "any")


@dataclass(frozen=True)
class Key:
    """One key of a table: what it must be, and what it says. ``takes`` says whether a value is of its kind."""

    kind: str
    takes: Callable[[Any], bool]
    meaning: str
    required: bool = False


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _word(value: Any) -> bool:
    return _text(value) or _number(value)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value)) and len(value) <= MAX_WORDS


def _words(value: Any) -> bool:
    return isinstance(value, list) and all(map(_word, value)) and len(value) <= MAX_WORDS


def _named_words(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_word, value.values())) and len(value) <= MAX_WORDS


def _bindings(value: Any) -> bool:
    return isinstance(value, list) and 0 < len(value) <= MAX_WORDS and all(map(_binding, value))


def _binding(value: Any) -> bool:
    if isinstance(value, dict) and len(value) == 1:
        ((name, inside),) = value.items()
        return name in ("uniform", "buffer") and _words(inside) and bool(inside)
    return _text(value)


def _three(value: Any) -> bool:
    return _words(value) and len(value) == 3


def _layouts(value: Any) -> bool:
    return isinstance(value, dict) and all(_texts(row) and row for row in value.values())


def _weights(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_weight, value.values()))


def _weight(value: Any) -> bool:
    return _text(value) or (
        isinstance(value, dict)
        and set(value) <= {"order", "add"}
        and _text(value.get("order"))
        and value.get("add", 0) in (0, 128)
    )


#: The keys of an operator's table.
KEYS: Mapping[str, Key] = {
    "module": Key("a file name", _text, "the module, a `.spv` or `.wgsl` file in the same folder", True),
    "bindings": Key(
        "a list of words, or of `{ uniform = [WORD...] }` and `{ buffer = [WORD...] }`",
        _bindings,
        "what stands at binding 0, 1, ... of set 0",
        True,
    ),
    "launch": Key(
        '`"refsim"`',
        lambda value: value == "refsim",
        "the module is a build of refsim's own shader of the operator, called like that: `module` says the rest",
    ),
    "push": Key("a list of words", _words, "the push constants, 32 bits each, without holes"),
    "spec": Key(
        "a list of words; of WGSL a table: override constant = word",
        lambda value: _words(value) or _named_words(value),
        "specialization constants from id 0 on, or override constants by name",
    ),
    "global": Key(
        "three words, or one of the rules of [modules.md](modules.md#sizes)",
        lambda value: _text(value) or _three(value),
        "how many invocations are needed along x, y and z; or else `groups`",
    ),
    "groups": Key("three words", _three, "how many workgroups are dispatched along x, y and z"),
    "local": Key(
        "three numbers, or one of the rules of [modules.md](modules.md#sizes)",
        lambda value: _text(value) or (_three(value) and all(type(one) is int for one in value)),
        "the workgroup; without this key it is what the module itself declares. WGSL needs it",
    ),
    "layouts": Key(
        "a table: tensor = a list of layouts",
        _layouts,
        "the layouts that the kernel takes, for each tensor that is named; without this key, all of the operator's. "
        "Or one of another library, as `NC4HW4`: tensors of any layout are laid like that for the kernel",
    ),
    "takes": Key(
        "a list of comparisons",
        _texts,
        "what must hold of a call besides: `n == 1` for a kernel without batches, `x.c % 4 == 0`",
    ),
    "weights": Key(
        "a table: constant = an order of axes, or `{ order = ORDER, add = 128 }`",
        _weights,
        "how constants are packed; without this key they lie as refsim keeps them",
    ),
    "images": Key(
        "a list of words", _texts, "the bindings that are images: float tensors in 3-d, weights in 2-d"
    ),
    "dot_product": Key("true or false", _flag, "whether the module needs the device's integer dot product"),
    "rounding": Key(
        f"one of {', '.join(f'`{name}`' for name in PROFILES)}",
        lambda value: value in PROFILES if _text(value) else False,
        "numerics that the kernel may have besides those of the device: `nvidia` for one that uses fma()",
    ),
    "padding": Key(
        " or ".join(f"`{word}`" for word in PADDING),
        lambda value: value in PADDING if _text(value) else False,
        "`any` if the kernel leaves padding to chance; then it is not compared. `defined` if nothing is said",
    ),
}
#: Keys that say nothing of a WGSL kernel, whose tensors are flat buffers.
SPIRV_ONLY = ("launch", "push", "layouts", "images", "dot_product")
#: Keys that may stand beside ``launch``, which says all else.
LAUNCHED = ("module", "launch", "layouts", "takes", "dot_product")
