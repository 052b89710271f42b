"""One test over all operators: define + pack == emulated kernel, byte for byte, whatever the configuration.

REFSIM_RANDOM=2000 runs that many random configurations per operator instead of the few that are usual.
"""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
import pytest
from examples import some
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from laws import EXECUTOR, Layouts, check, check_case, sampled

from refsim.bytediff.search.device import DeviceEdit
from refsim.core.buffer import ByteKind
from refsim.core.errors import RefsimError
from refsim.core.layout import PACKED_4W, Layout
from refsim.core.qmath import CANONICAL, PROFILES, Profile, f32, requant
from refsim.core.rng import Rng
from refsim.golden.rules import RULES
from refsim.golden.rules import case as corpus_case
from refsim.ops.base.arg import Kind
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case, CaseFeatures, ErrorCase
from refsim.ops.base.conv import ConvParams
from refsim.ops.base.padding import OnDevice
from refsim.ops.base.registry import OPS, kernel_of
from refsim.ops.base.spec import OpSpec
from refsim.ops.base.target import Target
from refsim.ops.base.traits import BY_ROWS, INTEGER_SUMS, QUANTIZERS, WINDOWED, Affine, Family

EXAMPLES = int(os.environ.get("REFSIM_RANDOM", "40"))
CASES = [
    pytest.param(case, id=f"{name}-{number}")
    for name, op in OPS.items()
    for number, case in enumerate(some(op))
]
ERROR_CASES = [
    pytest.param(case, id=f"{name}-{number}")
    for name, op in OPS.items()
    for number, case in enumerate(op.cases.refused)
]
COMBINATIONS = [
    pytest.param(name, rows, id=f"{name}-{'-'.join(map(str, rows))}")
    for name in OPS
    for rows in OPS[name].layouts
]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("case", CASES)
def test_case(case: Case, profile: str, request: pytest.FixtureRequest) -> None:
    rerun = f"python -m pytest '{request.node.nodeid}'"
    check_case(case, Target(PROFILES[profile]), rerun)
    check_case(case, Target(PROFILES[profile]), rerun, poison=1)


@pytest.mark.parametrize("case", ERROR_CASES)
def test_error_case(case: ErrorCase) -> None:
    with pytest.raises(case.error) as caught:
        bind(case.case)
    assert type(caught.value) is case.error
    assert issubclass(case.error, RefsimError)
    assert case.match in str(caught.value)


@pytest.mark.parametrize("name", OPS)
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # a smaller seed is not a smaller case
    suppress_health_check=[HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**63 - 1))
def test_random(name: str, seed: int) -> None:
    for profile in PROFILES:
        check(name, seed, profile, mali=bool(seed & 1))


def seeds_with_padding(name: str, rows: Layouts) -> list[int]:
    """The first seeds whose inputs have padding in these layouts."""
    found = []
    for seed in range(40):
        inputs = bind(sampled(name, seed, rows)).inputs.values()
        if any((buffer.kinds() != ByteKind.VALUE).any() for buffer in inputs):
            found.append(seed)
        if len(found) == 3:
            break
    return found


def can_be_padded(op: OpSpec, row: Layout) -> bool:
    """Not where channels or columns come in fours, and there are no outer blocks."""
    in_fours = op.family in BY_ROWS or (op.family in WINDOWED and not op.any_channels)
    return row.packed_int8 and not (in_fours and row.outer_block == 1)


@pytest.mark.parametrize(("name", "rows"), COMBINATIONS)
def test_layouts(name: str, rows: Layouts) -> None:
    """Every legal combination of layouts, with random bytes in the padding of the inputs."""
    seeds = seeds_with_padding(name, rows)
    plain = any(arg.plain for arg in OPS[name].of_kind(Kind.INPUT))
    assert bool(seeds) == (plain or can_be_padded(OPS[name], rows[0]))
    for seed in seeds or range(3):
        check(name, seed, layouts=rows)


# --- profiles --------------------------------------------------------------------------------------------

#: what each profile changes, so that a profile which is silently dropped fails: a product and a sum in one rounding,
#: and denormal inputs
SENSITIVE = {
    "nvidia": lambda op: (
        (op.cases.constants or len(op.of_kind(Kind.INPUT)) > 1 or op.family in QUANTIZERS)
        and op.family is not Family.LOOKUP  # which has a product alone
    ),
    "lavapipe": lambda op: (
        op.takes_floats and op.family not in (Family.ROW_RANGE, Family.WEIGHT_ONLY, Family.LOOKUP)
    ),
}
TIE_AWAY = Profile("away", tie="away")


@pytest.mark.parametrize(
    ("profile", "name"), [(p, name) for p, test in SENSITIVE.items() for name, op in OPS.items() if test(op)]
)
def test_profile_matters(profile: str, name: str) -> None:
    """Some byte of some random configuration, or of some case of the corpus, is another one under the profile."""
    changed = 0
    for seed in range(400):
        case = sampled(name, seed)
        case = corpus_case(name, seed % RULES[name].count) if seed % 2 else case
        plain, other = (bind(case, Target(p)) for p in (CANONICAL, PROFILES[profile]))
        changed += plain.call.expected(plain.inputs) != other.call.expected(other.inputs)
        if changed:
            return
    raise AssertionError(f"{name} computes the same under {profile} in 400 configurations")


@pytest.mark.parametrize("name", [n for n, op in OPS.items() if any(a.name.endswith("zp") for a in op.args)])
def test_ties_away(name: str) -> None:
    """A profile that is not among the named ones is honoured too."""
    for seed in range(20):
        case = sampled(name, seed)
        check_case(case, Target(TIE_AWAY), f"python tests/ops/laws.py {name} {seed} (profile: tie away)")


# --- what a kernel may touch ------------------------------------------------------------------------------


class Bounded:
    """Words that refuse an index outside them; a compiled kernel would read past the end in silence."""

    def __init__(self, words: np.ndarray) -> None:
        self.words = words.tolist()
        self.size = len(self.words)
        self.written: Counter[int] = Counter()

    def _at(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise IndexError(f"word {index} of {self.size}")
        return int(index)

    def __getitem__(self, index: int) -> int:
        return self.words[self._at(index)]

    def __setitem__(self, index: int, value: int) -> None:
        at = self._at(index)
        self.written[at] += 1
        self.words[at] = int(value)


def interpreted(case: Case) -> None:
    """Run a case's kernels as plain Python over bounded words; the same bytes as compiled, each word once."""
    bound = bind(case)
    words = {name: Bounded(b.words) for name, b in bound.inputs.items()}
    words |= {name: Bounded(w) for name, w in bound.call.const_words().items()}
    for step in bound.call.dispatches():
        launch = step.launch
        push = np.array(launch.push, np.uint32).view(np.int32).tolist()
        out = Bounded(np.zeros(launch.out.words, np.int32))
        x, y, z = launch.reached
        kernel = kernel_of(launch.shader).run.py_func
        with np.errstate(all="ignore"):
            kernel((z, y, x), list(launch.spec), push, *(words[n] for n in step.inputs), out)
        assert set(out.written.values()) <= {1}, f"{launch.shader} writes a word twice: {case}"
        words[step.output] = out
    raw = np.array(words["out"].words, np.int64).astype(np.uint32).view(np.uint8)
    expected = bound.call.expected(bound.inputs)
    assert np.array_equal(raw, expected.raw), str(case)
    # a fresh buffer is zeroed, so that padding words of 0 may be left alone; words with values may not
    valued = (bound.call.expected(bound.inputs).kinds().reshape(-1, 4) == ByteKind.VALUE).any(1)
    assert set(np.flatnonzero(valued)) <= set(words["out"].written), (
        f"a word of values is not written: {case}"
    )


@pytest.mark.parametrize("case", CASES)
def test_kernel_as_plain_python(case: Case) -> None:
    interpreted(case)


@pytest.mark.parametrize("name", OPS)
def test_kernel_as_plain_python_on_small_configurations(name: str) -> None:
    done = 0
    for seed in range(200):
        case = sampled(name, seed)
        if bind(case).call.out.nbytes <= 512:
            interpreted(case)
            done += 1
        if done == 4:
            return
    raise AssertionError(f"only {done} small configurations of {name}")


@pytest.mark.parametrize("word", [5000, -5000])
@pytest.mark.parametrize("name", OPS)
def test_no_index_is_made_of_what_a_search_takes_for_numbers(name: str, word: int) -> None:
    """It runs compiled kernels with such push words changed, which do not look where they read and write."""
    bound = next(b for seed in range(200) if (b := bind(sampled(name, seed))).call.out.nbytes <= 512)
    words = {each: Bounded(b.words) for each, b in bound.inputs.items()}
    words |= {each: Bounded(w) for each, w in bound.call.const_words().items()}
    for step in bound.call.dispatches():
        kernel, (x, y, z) = kernel_of(step.launch.shader), step.launch.reached
        push = np.array(step.launch.push, np.uint32).view(np.int32).tolist()
        for at, field in enumerate(kernel.push.names):
            if DeviceEdit("", "", push={field: word}).keeps_indices:
                push[at] = word
        out = words[step.output] = Bounded(np.zeros(step.launch.out.words, np.int32))
        with np.errstate(all="ignore"):
            kernel.run.py_func((z, y, x), list(step.launch.spec), push, *(words[n] for n in step.inputs), out)


@pytest.mark.parametrize(
    "name",
    [name for name, op in OPS.items() if op.family in INTEGER_SUMS and op.family is not Family.DEPTHWISE],
)
def test_padding_of_constants_is_never_read(name: str) -> None:
    """Rows and columns that pad a constant to a multiple of 4 may hold anything."""
    op, seen = OPS[name], 0
    for seed in range(30):
        case = sampled(name, seed)
        params = op.make_params(case.params)
        bound = bind(case)
        shapes = {key: desc.shape for key, desc in bound.call.descs.items()}
        consts = op.cases.constants(params, shapes, CaseFeatures(case, style=case.style), Rng(case.seed))
        out = bound.call.out.shape[op.channel_dim]
        dirty = {}
        for arg in op.of_kind(Kind.CONST):
            value = consts[arg.name]
            if value is not None and arg.channels is not None and value.shape[arg.channels] > out:
                value = value.copy()
                index = [slice(None)] * value.ndim
                index[arg.channels] = slice(out, None)
                value[tuple(index)] = np.nan if value.dtype == np.float32 else 77
                seen += 1
            dirty[arg.name] = value
        call = op.bind(params, bound.call.descs, dirty, case.out_layout, out_shape=bound.call.out.shape)
        expected = bound.call.expected(bound.inputs)
        assert call.expected(bound.inputs) == expected
        assert EXECUTOR.run_call(call, bound.inputs) == expected
    assert seen, f"no constant of {name} had padding"


# --- the padding table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPS)
def test_untouched_words_stay_zero(name: str) -> None:
    """What a device leaves untouched is the zero of a fresh buffer here, unless it says otherwise."""
    for seed in range(30):
        bound = bind(sampled(name, seed))
        if not bound.call.out.is_int8:
            continue
        word = bound.call.padding.word
        if word.on_device is OnDevice.UNTOUCHED and OPS[name].family is not Family.QUANTIZE:
            assert word.value == 0


def test_every_operator_has_all_its_parts() -> None:
    for name, op in OPS.items():
        assert op.name == name
        assert callable(op.define)
        assert (op.kernel is None) != (op.expand is None), f"{name}: a kernel or an expansion, not both"
        assert op.cases.refused, f"{name}: refuses nothing"
        assert len(op.of_kind(Kind.OUTPUT)) == 1
        names = [a.name for a in op.args]
        assert len(set(names)) == len(names)
        for case in (op.cases.example, op.cases.bench):
            assert bind(case).call.op is op


def test_serialized_names_are_unique() -> None:
    named = [op.serialized for op in OPS.values() if op.serialized]
    assert len(set(named)) == len(named)
    for op in OPS.values():
        if op.serialized:
            assert OPS.serialized(op.serialized) is op


# --- what operators say of themselves ---


INT8_TO_INT8 = (Family.ELEMENTWISE, Family.SHUFFLE)
EACH = pytest.mark.parametrize("name", OPS)


@EACH
def test_the_family_fits_the_arguments(name: str) -> None:
    op = OPS[name]
    (x, *_) = op.of_kind(Kind.INPUT)
    assert issubclass(op.params, ConvParams) == (op.family in WINDOWED)
    floats = (Family.GROUP_LINEAR, Family.WEIGHT_ONLY, Family.LOOKUP)
    assert (op.cases.constants is not None) == (op.family in (*INTEGER_SUMS, *floats))
    # a linear operator may quantize its input in a step of its own
    first = op.family is Family.FLOAT_LINEAR and op.expand is not None
    assert op.takes_floats == (op.family in (*QUANTIZERS, Family.ROW_RANGE, *floats) or first)
    assert op.takes_floats == all(not row.packed_int8 for row in x.layouts)
    floats_out = (Family.DEQUANTIZE, Family.FLOAT_LINEAR, *floats)
    if op.family is not Family.ROW_RANGE:  # scales are floats, zero points int8
        assert all(row.packed_int8 for row in op.output.layouts) == (op.family not in floats_out)
    assert x.contiguous == (op.family is Family.STAGE_IN)
    assert op.output.contiguous == (op.family is Family.STAGE_OUT)
    assert all(arg.layouts == (PACKED_4W,) for arg in op.args if arg.contiguous)
    assert (op.channel_dim == -1) == (op.family in (Family.LINEAR, Family.FLOAT_LINEAR, *floats))


@EACH
def test_the_epilogue_is_said_where_a_sum_ends(name: str) -> None:
    op = OPS[name]
    assert (op.epilogue is not None) == (op.family in INTEGER_SUMS and not op.picks)
    assert not op.picks or op.expand is not None


@EACH
def test_arithmetic_as_stated(name: str) -> None:
    """``affine`` predicts what ``define`` gives, wherever each value has to go."""
    op = OPS[name]
    assert op.affine is None or op.family in INT8_TO_INT8
    for case in some(op) if op.affine is not None else ():
        bound = bind(case)
        arrays = {key: buffer.unpack() for key, buffer in bound.inputs.items()}
        assert op.affine is not None
        affine = op.affine(bound.call.params)
        values = next(iter(arrays.values())) if affine is None else computed(affine, list(arrays.values()))
        defined = bound.call.define(arrays)
        if op.family is Family.SHUFFLE:
            values, defined = np.sort(values, axis=None), np.sort(defined, axis=None)
        assert np.array_equal(values, defined), case


def computed(affine: Affine, arrays: list[np.ndarray]) -> np.ndarray:
    """The bytes that an `Affine` stands for, by its own words."""
    total = np.zeros(arrays[0].shape, np.float32)
    for term, q in zip(affine.terms, arrays, strict=True):
        total += np.float32(term.factor) * (f32(q.astype(np.int32) - term.zp) * np.float32(term.scale))
    total = np.maximum(total, np.float32(0.0)) if affine.relu else total
    return requant(total, affine.inv, affine.zp, CANONICAL.flags).astype(np.int8)  # type: ignore[no-any-return]
