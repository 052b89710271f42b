"""The table of what people write wrong in a kernel, as patterns: see `refsim.bytediff.search.patterns`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from refsim.bytediff.search.patterns import ANY, Pattern
from refsim.bytediff.search.site import Alternative, KernelSite
from refsim.core import layout
from refsim.ops.base import epilogue

#: Kind of edit, what the right value must be, an argument that the function has: what is right -> what is wrong.
RULES = """\
unsigned: (_a ^ _b) - _c -> _a
order, float: _a * _b * _c -> _c * _a * _b ; _c * _b * _a
order, float: _a * inv -> _a / (np.float32(1.0) / inv)
order, float: _s[_t] + _s[_t + _h] -> _s[2 * _t] + _s[2 * _t + 1]
order, float: _f(_q - _z) * _s -> _f(_q) * _s - _f(_z) * _s ; _f(_q) * _s - _f(_z)
order, float, with a_scale: _f(_q - _z) * b_scale -> _f(_q) * b_scale - _f(_z) * a_scale
order, float: _t * (_d := _f(_q - _z) * _s) -> _f(_q) * _t * _s - _f(_z) * _t * _s ; _f(_q) * _t * _s - _f(_z)
order, float: _t * (_d := _f(_q - _z) * _s) -> (_f(_q) * _t - _f(_z)) * _s ; (_f(_q) * _s - _f(_z)) * _t
order, float, with a_scale: _t * (_d := _f(_q - _z) * b_scale) -> _f(_q) * _t * b_scale - _f(_z) * a_scale

operand: _a + _b ; _a * _b ; _a & _b ; _a | _b -> _a ; _b
operand: _a - _b ; _a // _b ; _a % _b ; _a / _b -> _a
joined, whole: ((_k * _x + _a) * _y + _b) * _z + _c -> \
    ((_k * _x + _a) * _z + _c) * _y + _b ; ((_k * _y + _b) * _x + _a) * _z + _c ; \
    ((_k * _y + _b) * _z + _c) * _x + _a ; ((_k * _z + _c) * _x + _a) * _y + _b ; \
    ((_k * _z + _c) * _y + _b) * _x + _a
parentheses, whole: _a * _b + _c -> (_a + _c) * _b
parentheses, whole: _a * _b - _c -> (_a - _c) * _b
operands exchanged: _a - _b -> _b - _a
operands exchanged: _a // _b -> _b // _a
operands exchanged: _a % _b -> _b % _a
operands exchanged: _a / _b -> _b / _a
rounded up, whole: _a // _b -> (_a + _b - 1) // _b
operand, whole: (_v := (_a + _b) // _c * _d) ; (_v := (_a + _e - _b) // _c * _d) -> _a
constant, whole: _a % _b -> 0 ; _a % 2
sign: _a - _b -> -(_a - _b)
operand, float: hi - lo -> np.float32(2.0) * max(-lo, hi)
type, float: _a + _b ; _a * _b ; _a - _b -> edit_half(_)
type, whole: _a + _b ; _a * _b ; _a - _b -> edit_saturated16(_) ; edit_wrapped16(_)
type: np.float32 -> np.float64
one off: zero -> zero + 1 ; zero - 1
scaled bias, float, with in_scale: bias -> bias * in_scale
relu, with acc: acc -> max(acc, 0)
relu, with t: t -> max(t, 0)
index: _a[_i] -> _a[_i + 1] ; _a[_i - 1]
total, whole: acc[_i] -> edit_saturated16(_) ; edit_wrapped16(_) ; edit_half_sum(_)
compare: _a < _b -> _a < _b - 1
condition: _a if _c else _b -> _b if _c else _a
condition, as test: _a -> True ; False ; not _a
sign, as grown: _a -> -_a
type, whole, as added: _a -> edit_saturated16(_into + _) - _into ; edit_wrapped16(_into + _) - _into
condition: (_x, _y, (_y >= 0) & (_y < _h) & (_x >= 0) & (_x < _w)) -> \
    (min(max(_x, 0), _w - 1), min(max(_y, 0), _h - 1), True) # the nearest element of the image

call: np.maximum(_a, _b) -> _a ; _b ; np.minimum(_a, _b)
call: np.minimum(_a, _b) -> _a ; _b ; np.maximum(_a, _b)
call: np.rint(_a) -> np.trunc(_a) ; np.floor(_a) ; edit_half_up(_a) ; edit_half_away(_a) ; edit_half_cast(_a)
call: np.rint(_a) -> np.ceil(_a) ; _a
call: round_half(_a, _r) -> np.trunc(_a) ; np.floor(_a) ; edit_half_up(_a) ; edit_half_away(_a) ; edit_half_cast(_a)
call: round_half(_a, _r) -> np.ceil(_a) ; np.rint(_a) ; _a
call: np.floor(_a) -> np.rint(_a) ; np.trunc(_a)
call: np.trunc(_a) -> np.rint(_a) ; np.floor(_a)
call: np.abs(_a) ; flush(_a, *_r) ; bounded(_a, *_r) ; clamp(_a, *_r) -> _a
call: wrap32(_a) -> _a ; edit_wrapped16(_a) ; edit_saturated16(_a)
call: min(*_r) -> max(*_r)
bound, float: np.maximum(_a, _b) -> np.maximum(_a, np.float32(0.0))
bound, float: np.minimum(_a, _b) -> np.minimum(_a, np.float32(0.0))
bound, float, with zp, with inv: np.maximum(_a, _b) -> np.maximum(_a, np.float32(-zp) / inv)
bound, float, with zp, with inv: np.maximum(_a, _b) -> np.maximum(_a, np.float32(zp) / inv)
bound, float, with in_zp, with in_scale: np.maximum(_a, _b) -> np.maximum(_a, np.float32(-in_zp) * in_scale)
bound, float, with in_zp, with in_scale: np.maximum(_a, _b) -> np.maximum(_a, np.float32(in_zp) * in_scale)
bound, float: np.maximum(_a, _f(0.0)) -> np.minimum(_, np.float32(6.0)) ; np.maximum(_a, _a * np.float32(0.01))

lanes: lane(_w, _l) -> lane(_w, 3 - _l) ; lane(_w, _l ^ 1) ; lane(_w, _l ^ 2)
lanes: insert(_w, _l, _v) -> insert(_w, 3 - _l, _v) ; insert(_w, _l ^ 1, _v) ; insert(_w, _l ^ 2, _v)
repeated, whole: lane(_w, _l) -> lane(_w, _l - (_l == 3)) ; lane(_w, _l + (_l == 0))
repeated, whole: lane(_w, _l) -> lane(_w, _l - (_l == 1)) ; lane(_w, _l + (_l == 2))
unsigned: lane(_w, _l) -> _ & 255 ; _ + 128

relu: requant(*_r) ; requant_added(*_r) ; to_int8(*_r) ; to_int8_added(*_r) ; bounded(*_r) -> max(_, 0)
relu: requant_added(_y, *_r) -> _ if _y > 0 else 0
relu: requant(_y, _i, _zp, _g) ; requant_added(_y, _i, _zp, _g) -> max(_, _zp) ; max(_, _zp + _zp)
relu: to_int8(_y, _zp, _g) ; to_int8_added(_y, _zp, _g) -> max(_, _zp) ; max(_, _zp + _zp)
type, float: f32(_a) ; as_f32(_a) ; np.float32(_a) ; requant(*_r) ; mul_add(*_r) -> edit_half(_)

constant: clamp(_v, *_r) -> clamp(_v, 0, 255) ; clamp(_v, -127, 127)
subtracted: clamp(_q + _z, *_r) ; clamp(wrap32(_q + _z), *_r) -> _ - _z
tie, with y: clamp(_q + _z, *_r) ; clamp(wrap32(_q + _z), *_r) -> clamp(np.int32(np.rint(y + np.float32(_z))), *_r)
clamped twice: clamp(_q + _z, *_r) ; clamp(wrap32(_q + _z), *_r) -> clamp(clamp(_q, *_r) + _z, *_r)
constant: clamp(_q + _z, _l, _h) -> clamp(_q + _z, _l + _z, _h) ; clamp(_q + _z, _l, _h + _z)
constant: clamp(wrap32(_q + _z), _l, _h) -> clamp(wrap32(_q + _z), _l + _z, _h) ; clamp(wrap32(_q + _z), _l, _h + _z)

fused: mul_add(_a, _b, _c, *_r) -> edit_fused(_a, _b, _c) ; _a * _b + _c
order: mul_add(_a, _b, _c, *_r) -> (_a + _c) * _b
operand: mul_add(_a, _b, _c, *_r) -> _a * _b ; _a + _c
operator: mul_add(_a, _b, _c, *_r) -> _a * _b - _c
order: mul_add(_a, _b * _d, _c, *_r) -> mul_add(_a * _b, _d, _c, *_r) ; mul_add(_a, _b, _c, *_r) * _d
order: mul_add(_a, _b * _d, _c, *_r) -> mul_add(_a * _d, _b, _c, *_r) ; mul_add(_a, _d, _c, *_r) * _b
order: mul_add(_f(_q - _z), _s, _c, *_r) -> _f(_q) * _s - _f(_z) * _s + _c ; _f(_q) * _s - _f(_z) + _c
order, with b_scale: mul_add(_f(_q - _z), a_scale, _c, *_r) -> _f(_q) * a_scale - _f(_z) * b_scale + _c
order: mul_add(_a, _b, (_c := _s * (_t := _u * _v)), *_r) -> _s * mul_add(_a, _b, _u * _v, *_r)
order: mul_add(_a, _b, (_c := _s * (_t := _u * _v)), *_r) -> mul_add(_a, _b * _s, _u * _v, *_r)
folded, float: mul_add(-f32(_a), f32(_b), f32(_c), _r) -> f32(_c + -_a * _b)
folded, float: f32(wrap32(_a - _f(_b) * _c)) -> f32(_a) - f32(_f(_b)) * f32(_c)
order: _scaled((_t := mul_add(_a, _b, _c, _g)), _s, *_r) -> _scaled(_c, _s, *_r) + _a * _b
order: _scaled((_t := mul_add(_a, _b, _c, _g)), _p * _q, *_r) -> _scaled(_c, _p * _q, *_r) + _a * _b * _p
order: _scaled((_t := mul_add(_a, _b, _c, _g)), _p * _q, *_r) -> _scaled(_c, _p * _q, *_r) + _a * _b * _q
order: _scaled((_t := f32(wrap32(_a - _b))), _s, *_r) -> _scaled(f32(_a), _s, *_r) - f32(_b)
order: _scaled((_t := f32(wrap32(_a - _b))), _p * _q, *_r) -> _scaled(f32(_a), _p * _q, *_r) - f32(_b) * _p
order: _scaled((_t := f32(wrap32(_a - _b))), _p * _q, *_r) -> _scaled(f32(_a), _p * _q, *_r) - f32(_b) * _q

loop: range(_e) -> range(_e - 1) ; range(_e + 1) ; range(1, _e) ; range(_e - 1, -1, -1)
loop: range(_e) -> range(_e // 2 * 2) ; range(_e // 4 * 4) ; range(_e // 8 * 8) ; range(_e // 16 * 16)
last turn: range(_e) -> range(_e - 1, _e)
loop: range(_b, _e) -> range(_b, _e - 1) ; range(_b, _e + 1) ; range(_b + 1, _e) ; range(_e - 1, _b - 1, -1)
loop: range(_b, _e) -> range(_b, _b + (_e - _b) // 2 * 2) ; range(_b, _b + (_e - _b) // 4 * 4)
loop: range(_b, _e) -> range(_b, _b + (_e - _b) // 8 * 8) ; range(_b, _b + (_e - _b) // 16 * 16)
last turn: range(_b, _e) -> range(_e - 1, _e)
loop: range(_b, _e, _s) -> range(_s, _e, _s) ; range(_b, _e - _e % _s, _s) ; range(_b, _e - _s, _s)

relu: _finish(_scaled(_t, _s, bias, _g), _i, _z, _g) -> \
    _finish(max(_scaled(_t, _s, np.float32(0.0), _g), np.float32(0.0)) + (bias if _g & HAS_BIAS else np.float32(0.0)), \
    _i, _z, _g & ~RELU) \
    if _g & RELU else _ # relu before the bias is added
relu: _finish(int_real(_a, _w, _p, _s, _x, bias, _g), _i, _z, _g) -> \
    _finish(max(int_real(_a, _w, _p, _s, _x, np.float32(0.0), _g), np.float32(0.0)) \
    + (bias if _g & HAS_BIAS else np.float32(0.0)), _i, _z, _g & ~RELU) \
    if _g & RELU else _ # relu before the bias is added
arguments exchanged, whole: buf_idx(_m, _t, _l, _w, _h, _c, _i) -> \
    buf_idx(_m, _t, _l, _w, (_i * _m[_t + C] + _c) * _m[_t + H] + _h, 0, 0) # rows of all planes in one
arguments exchanged, whole: word_idx(_m, _t, _l, _w, _h, _c, _i) -> \
    word_idx(_m, _t, _l, _w, (_i * _m[_t + C] + _c) * _m[_t + H] + _h, 0, 0) # rows of all planes in one
"""

#: What a wrong kernel may lack, where it was edited in place.
LACKING = """\
missing, whole, as place: _a -> 4 * _a
missing, whole, as place: _n -> (_n + 3) // 4 * 4
missing, whole: _a * _b + _c -> _a * (_b + _c)
missing, whole: _a * _b - _c -> _a * (_b - _c)
missing, whole: _a * _b * _d + _c -> _a * (_b * _d + _c)
missing, whole, as byte: _a -> min(max(_a, -128), 127)
"""
#: Names of other modules that alternatives use.
_WORDS = {"C": layout.C, "H": layout.H, "HAS_BIAS": epilogue.HAS_BIAS, "RELU": epilogue.RELU}


def _by_root(table: str) -> dict[str, list[Pattern]]:
    found = defaultdict[str, list[Pattern]](list)
    for pattern in (one for row in table.splitlines() if row for one in Pattern.of(row)):
        for root in pattern.roots:
            found[root].append(pattern)
    return found


TABLES = _PATTERNS, _OF_LACKING = tuple(map(_by_root, (RULES, LACKING)))


def written(site: KernelSite, table: Mapping[str, list[Pattern]] = _PATTERNS) -> Iterator[Alternative]:
    """What the table has for a node."""
    roots = (ANY, type(site.node).__name__, site.called(site.node))
    for pattern in (row for root in dict.fromkeys(roots) for row in table.get(root, ())):
        yield from pattern.alternatives(site, _WORDS)


def lacking(site: KernelSite) -> Iterator[Alternative]:
    """What a wrong kernel lacks there."""
    yield from written(site, _OF_LACKING)
