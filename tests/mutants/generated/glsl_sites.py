"""Changes of GLSL sources, found among their tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mutants.generated.change import Change
from mutants.generated.words import COMMUTE, NOTHING, exchanged, other_numbers

_TOKEN = re.compile(
    r"(?P<skip>\s+|//[^\n]*|/\*.*?\*/|\\\n)"
    r"|(?P<directive>\#[ \t]*(?:version|extension|include|pragma|ifdef|ifndef|if|elif|else|endif|undef)[^\n]*)"
    r"|(?P<define>\#[ \t]*define\s+\w+(?:\([^)]*\))?)"
    r"|(?P<float>\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+)"
    r"|(?P<number>0[xX][0-9a-fA-F]+u?|\d+u?)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign><<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^]=|[-+*/%&|^<>=!~?:;,.(){}\[\]])",
    re.DOTALL,
)

_SIGNS = {
    "+": ("-",), "-": ("+",), "*": ("+",), "/": ("*", "%"), "%": ("/",), "<<": (">>",), ">>": ("<<",),
    "&": ("|",), "|": ("&",), "^": ("|",), "+=": ("-=", "="), "-=": ("+=",), "*=": ("+=",), "|=": ("&=",),
    "&=": ("|=",), "<<=": (">>=",), ">>=": ("<<=",),
}  # fmt: skip
_COMPARED = {
    "<": ("<=", ">"), "<=": ("<",), ">": (">=", "<"), ">=": (">",), "==": ("!=",), "!=": ("==",),
}  # fmt: skip
_JOINED = {"&&": "||", "||": "&&"}
_TYPES = {
    "int": ("uint",), "uint": ("int",), "min": ("max",), "max": ("min",), "ivec4": ("uvec4",), "uvec2": ("ivec2",),
    "roundEven": ("round", "floor", "trunc"), "round": ("roundEven",), "floor": ("ceil",), "trunc": ("floor",),
    "floatBitsToInt": ("int",), "bitfieldExtract": ("bitfieldReverse",), "precise": ("",),
}  # fmt: skip
#: What may not stand before a binary `-` or `+`.
_UNARY_AFTER = frozenset(
    ("return", *"(,=[{;:?<>+-*/%&|^!", "+=", "-=", "*=", "<=", ">=", "==", "!=", "&&", "||", "<<", ">>")
)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    begin: int
    end: int


_Found = tuple[int, int, str, str]


def changes(file: str, source: str) -> Iterator[Change]:
    """Every change of a shader or of what shaders include."""
    tokens = [
        _Token(str(match.lastgroup), match.group(), match.start(), match.end())
        for match in _TOKEN.finditer(source)
        if match.lastgroup not in ("skip", "directive", "define")
    ]
    seen: set[tuple[int, int, str]] = set()
    for rule in (_operators, _constants, _names, _conditions, _arguments, _statements):
        for begin, end, replacement, kind in rule(tokens, source):
            if source[begin:end] != replacement and (begin, end, replacement) not in seen:
                seen.add((begin, end, replacement))
                first, last = _statement(tokens, begin)
                text = source[first:last]
                yield Change(file, source, begin, end, replacement, kind, _scope(source, begin), text)


def _statement(tokens: Sequence[_Token], begin: int) -> tuple[int, int]:
    """The statement that holds a place: up to the nearest `;` or brace on both sides."""
    at = next((i for i, token in enumerate(tokens) if token.end > begin), len(tokens) - 1)
    first = at
    while first > 0 and tokens[first - 1].text not in (";", "{", "}"):
        first -= 1
    last = at
    while last < len(tokens) - 1 and tokens[last].text not in (";", "{", "}"):
        last += 1
    return tokens[first].begin, tokens[last].end


_FUNCTION = re.compile(r"^(?:#define\s+(\w+)|[a-z]\w*\s+(\w+)\([^;]*\)\s*\{)", re.MULTILINE)


def _scope(source: str, at: int) -> str:
    """The function or macro whose head stands last before a place."""
    name = ""
    for match in _FUNCTION.finditer(source, 0, at):
        name = match.group(1) or match.group(2)
    return name


def _operators(tokens: Sequence[_Token], source: str) -> Iterator[_Found]:
    for (before, token), behind in zip(pairwise(tokens), tokens[2:], strict=False):
        if token.text == "+" and behind.text == NOTHING:
            continue
        if token.kind != "sign" or (token.text in "+-*" and before.text in _UNARY_AFTER):
            continue
        for other in _SIGNS.get(token.text, ()):
            yield token.begin, token.end, other, "operator"
        for other in _COMPARED.get(token.text, ()):
            yield token.begin, token.end, other, "compare"
        if token.text in _JOINED:
            yield token.begin, token.end, _JOINED[token.text], "condition"


def _constants(tokens: Sequence[_Token], source: str) -> Iterator[_Found]:
    for before, token in pairwise(tokens):
        if before.text in ("binding", "INPUT", "OUTPUT") or token.kind not in ("number", "float"):
            continue
        if token.kind == "float":
            for real in (f"(2.0 * {token.text})", "0.0", f"(-{token.text})"):
                yield token.begin, token.end, real, "constant"
            continue
        unsigned = token.text.endswith("u")
        value = int(token.text.rstrip("u"), 0)
        for other in other_numbers(value):
            if other >= 0 or not unsigned:
                text = f"{other}u" if unsigned else str(other)
                yield token.begin, token.end, f"({text})" if other < 0 else text, "constant"


def _names(tokens: Sequence[_Token], source: str) -> Iterator[_Found]:
    known = {token.text for token in tokens if token.kind == "name"}
    for token in tokens:
        if token.kind != "name":
            continue
        for other in exchanged(token.text):
            # names of the same file, components of vectors, and push words, which are declared elsewhere
            if other in known or (len(other) == 1 and source[token.begin - 1] == ".") or token.text.isupper():
                yield token.begin, token.end, other, "index"
        for other in _TYPES.get(token.text, ()):
            yield token.begin, token.end, other, "type"


def _conditions(tokens: Sequence[_Token], source: str) -> Iterator[_Found]:
    for at, token in enumerate(tokens[:-1]):
        if token.text == "if" and tokens[at + 1].text == "(":
            close = _closing(tokens, at + 1)
            begin, end = tokens[at + 1].begin, tokens[close].end
            for text in (f"(!{source[begin:end]})", "(true)", "(false)"):
                yield begin, end, text, "condition"
        if token.text == "for" and tokens[at + 1].text == "(":
            close = _closing(tokens, at + 1)
            ends = [i for i in range(at, close) if tokens[i].text == ";"]
            if len(ends) == 2 and ends[1] - ends[0] > 3:  # one turn less
                last = tokens[ends[1] - 1]
                yield last.end, last.end, " - 1", "constant"


def _arguments(tokens: Sequence[_Token], source: str) -> Iterator[_Found]:
    for at, token in enumerate(tokens[:-1]):
        if (
            token.kind != "name"
            or tokens[at + 1].text != "("
            or token.text in ("for", "if", "while", "layout")
        ):
            continue
        parts = _parts(tokens, at + 1)
        for (a, b), (c, d) in pairwise(parts[1:] if token.text in COMMUTE else parts):
            first, second = source[a:b], source[c:d]
            yield a, d, second + source[b:c] + first, "arguments"


def _statements(tokens: Sequence[_Token], source: str) -> Iterator[_Found]:
    """Statements that stand alone: barriers, stores and sums; and neighbours exchanged."""
    depth, begin = 0, 0
    simple: list[tuple[int, int, str]] = []
    for at, token in enumerate(tokens):
        depth += (token.text == "(") - (token.text == ")")
        if token.text in ("{", "}") or (
            token.text == ")" and depth == 0 and tokens[begin].text in ("if", "for")
        ):
            begin = at + 1
        elif token.text == ";" and depth == 0:
            inside = tokens[begin : at + 1]
            begin = at + 1
            if (
                not inside
                or inside[0].kind != "name"
                or inside[0].text in ("return", "const", "else", "struct")
            ):
                continue
            a, b = inside[0].begin, token.end
            text = source[a:b]
            if inside[0].text in ("barrier", "memoryBarrierShared", "groupMemoryBarrier"):
                yield a, b, ";", "barrier"
            elif inside[0].text not in _DECLARED and inside[1].text in ("[", "=", "+=", "-=", ".", "(", "|="):
                yield a, b, ";", "removed"
                if simple and source[simple[-1][1] : a].isspace():
                    c, d, before = simple[-1]
                    if _name(before) in text or _name(text) in before:
                        yield c, b, text + source[d:a] + before, "order"
            simple.append((a, b, text))


_DECLARED = frozenset((
    "int", "uint", "float", "bool", "ivec2", "ivec3", "ivec4", "uvec2", "uvec4", "vec2", "vec3", "vec4",
    "precise", "shared", "layout",
))  # fmt: skip


def _name(text: str) -> str:
    found = re.match(r"\w+", text)
    return found.group() if found else " "


def _closing(tokens: Sequence[_Token], at: int) -> int:
    """The place of the parenthesis that closes the one at ``at``."""
    depth = 0
    for i in range(at, len(tokens)):
        depth += (tokens[i].text == "(") - (tokens[i].text == ")")
        if depth == 0:
            return i
    return len(tokens) - 1


def _parts(tokens: Sequence[_Token], at: int) -> list[tuple[int, int]]:
    """Where the arguments lie that stand between the parenthesis at ``at`` and its end."""
    close, depth, found = _closing(tokens, at), 0, []
    begin = at + 1
    for i in range(at + 1, close + 1):
        depth += (tokens[i].text in "([{") - (tokens[i].text in ")]}") if i < close else 0
        if (tokens[i].text == "," and depth == 0) or i == close:
            if i > begin:
                found.append((tokens[begin].begin, tokens[i - 1].end))
            begin = i + 1
    return found
