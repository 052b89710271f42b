"""Which native kernel computes a call: a table of rules, tried in order. Where none applies, the emulated kernel runs.

A rule says which operators it is for, by what they say of themselves (`refsim.ops.base.traits`), and why it does not
apply to a call. So a choice can be printed (`refsim inspect --plan`), tested and overruled. docs/performance.md says
what each route is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from refsim.core import choices, doing
from refsim.core.errors import ParameterError
from refsim.core.qmath import CANONICAL
from refsim.exec.cpu.amx import prepack as amx
from refsim.exec.cpu.amx import tiles
from refsim.exec.cpu.conv_problem import ConvProblem, conv_problem
from refsim.exec.cpu.depthwise import prepack as depthwise
from refsim.exec.cpu.dot import DPBUSD, MADDUBS, MADDWD, MADDWD8, Dot
from refsim.exec.cpu.elementwise import fma, lut
from refsim.exec.cpu.elementwise import prepack as elementwise
from refsim.exec.cpu.elementwise.prepack import Elementwise
from refsim.exec.cpu.gemm import prepack as gemm
from refsim.exec.cpu.groups import prepack as groups
from refsim.exec.cpu.isa import Isa, cpu
from refsim.exec.cpu.job import Job
from refsim.exec.cpu.quantize import prepack as quantize
from refsim.exec.cpu.relayout import prepack as relayout
from refsim.exec.cpu.winograd import prepack as winograd
from refsim.ops.base.arg import Kind
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call, OpSpec, Part
from refsim.ops.base.traits import QUANTIZERS, Family

EMULATED = "emulated"
#: The matrix unit's tiles, and the same kernel with the tiles' instructions emulated.
AMX, AMX_EMULATED = "amx", "amx_emulated"
LUT, FMA, LINEAR, VIA_NHWC = "lut", "fma", "linear", "via_nhwc"

#: Routes that store constants in a larger form than the graph does.
LARGER = ("winograd4", "winograd2")

#: Routes whose kernels can look the bytes that they make up in a table.
JOINS = ("depthwise", AMX, AMX_EMULATED, *LARGER, "gemv", "gemm8", "gemm", LUT)

#: Stands for every operator where routes are asked for.
ANY = "*"


@dataclass(frozen=True)
class RouteContext:
    """What rules look at. ``call``: whose bytes are wanted; never an operator that only picks another one.

    ``forced``: one route is asked for, whether or not it is thought to be the fastest. ``table``: what each byte of the
    result becomes, int8 (256); only for routes among `JOINS`. ``elsewhere``: the processor is not this machine's, and
    its system grants all that it has.
    """

    call: Call
    isa: Isa
    threads: int
    forced: bool = False
    table: np.ndarray | None = None
    elsewhere: bool = False

    @cached_property
    def conv(self) -> ConvProblem:
        return replace(conv_problem(self.call), table=self.table)

    @cached_property
    def elementwise(self) -> Elementwise:
        return elementwise.describe(self.call)

    @cached_property
    def lut(self) -> Elementwise | str:
        return elementwise.why_not(self.elementwise) or lut.find(self.elementwise, self.isa)

    @cached_property
    def fma(self) -> Elementwise | str:
        return elementwise.why_not(self.elementwise) or fma.find(self.elementwise, self.isa)

    @property
    def out_pixels(self) -> int:
        out = self.conv.out
        return out.images * out.rows * out.pixels


Takes = Callable[[OpSpec], bool]
WhyNot = Callable[[RouteContext], str | None]
Made = Job | tuple[Job, ...]
Lower = Callable[[RouteContext], Made]


@dataclass(frozen=True)
class RouteRule:
    """``takes``: whether an operator may ever go this way; ``why_not``: why a call does not, or None.

    ``lower`` makes the jobs of a call that does. ``profiles``: whether the bytes are right under every profile, because
    the kernel follows it or because it changes nothing there; other kernels are canonical.
    """

    route: str
    takes: Takes
    why_not: WhyNot
    lower: Lower
    profiles: bool = False


@dataclass(frozen=True)
class RouteChoice:
    """A rule applied to a call; ``rejected`` are the rules before it, each with its reason."""

    rule: RouteRule | None
    context: RouteContext
    rejected: tuple[tuple[str, str], ...]

    @property
    def route(self) -> str:
        return self.rule.route if self.rule else EMULATED

    def then(self, table: np.ndarray) -> RouteChoice:
        """The same, and then a table of 256 bytes."""
        assert self.route in JOINS
        return replace(self, context=replace(self.context, table=table))

    def jobs(self) -> tuple[Job, ...] | None:
        """The jobs, prepacked now; None for the emulated kernel. An error there has a note that names the route."""
        if self.rule is None:
            return None
        with doing.noted(f"while {_told(self.context.call)} was prepared for the native route {self.route}"):
            made = self.rule.lower(self.context)
            return (made,) if isinstance(made, Job) else made


def _told(call: Call) -> str:
    """An operator with its tensors and constants."""
    tensors = [f"{name} {desc}" for name, desc in call.tensors.items()]
    tensors += [f"{name} {list(value.shape)}" for name, value in call.consts.items() if value is not None]
    return f"{call.op.name} ({', '.join(tensors)})"


# --- which operators -------------------------------------------------------------------------------------


def _of(*families: Family) -> Takes:
    """Operators of these families."""
    return lambda op: op.family in families


def _nibbles(family: Family) -> Takes:
    """Operators of a family that have 4-bit weights in groups."""
    return lambda op: op.family is family and op.int4 is not None


def _affine(inputs: int) -> Takes:
    """Operators of at most so many inputs whose bytes are an affine function of each element."""
    return lambda op: op.affine is not None and len(op.of_kind(Kind.INPUT)) <= inputs


def _sums(op: OpSpec) -> bool:
    """Operators that add up two scaled inputs."""
    return _affine(2)(op) and len(op.of_kind(Kind.INPUT)) == 2


def _in_place(op: OpSpec) -> bool:
    """Operators of which every output byte depends on the input bytes at the same place, or is one of them."""
    return op.family is Family.RELAYOUT or (_affine(2)(op) and op.family is Family.ELEMENTWISE)


def _multiplies(op: OpSpec) -> bool:
    """Operators with one product per weight, whose sums end in one of the two epilogues."""
    floats = op.family is Family.FLOAT_LINEAR and op.epilogue is not None and not op.takes_floats
    return _MATRIX(op) or floats


def _in_steps(op: OpSpec) -> bool:
    """Composite operators whose steps are computed one after the other, each by a route of its own."""
    return op.family is Family.FLOAT_LINEAR and op.expand is not None


_MATRIX = _of(Family.CONVOLUTION, Family.LINEAR)
_MOVES = _of(Family.RELAYOUT, Family.STAGE_IN, Family.STAGE_OUT)
_QUANTIZERS = _of(*QUANTIZERS, Family.DEQUANTIZE)


# --- which calls -----------------------------------------------------------------------------------------


def _always(ctx: RouteContext) -> str | None:
    return None


#: The dot product of the matrix products of each route, which suits a processor.
DOTS: Mapping[str, Callable[[Isa], Dot]] = {
    "gemv": lambda isa: DPBUSD if isa.dpbusd else MADDWD8,
    "gemm8": lambda isa: MADDUBS,
    "gemm": lambda isa: DPBUSD if isa.dpbusd else MADDWD,
}


def _asked(why_not: Callable[[Call], str | None]) -> WhyNot:
    """A reason that the call alone says."""
    return lambda ctx: why_not(ctx.call)


def _made(lower: Callable[[Call, Isa], Made]) -> Lower:
    """What is made of the call alone."""
    return lambda ctx: lower(ctx.call, ctx.isa)


def _problem(lower: Callable[..., Job], **how: bool | int) -> Lower:
    """What is made of a convolution problem."""
    return lambda ctx: lower(ctx.call.op.name, ctx.conv, ctx.isa, ctx.threads, **how)


def _gemm(route: str) -> Lower:
    """The matrix product of a route."""
    return lambda ctx: gemm.lower(ctx.call.op.name, ctx.conv, ctx.isa, DOTS[route](ctx.isa), ctx.threads)


def _amx_why_not(ctx: RouteContext) -> str | None:
    reason = tiles.lacking(ctx.isa) if ctx.elsewhere else tiles.why_not(ctx.isa)
    return reason or (None if ctx.forced else amx.slower(ctx.conv, ctx.isa))


def _gemm8_why_not(ctx: RouteContext) -> str | None:
    if not ctx.isa.maddubs:
        return f"{ctx.isa.name} has no such products"
    if ctx.forced:
        return None
    return f"{ctx.isa.name} has better ones" if ctx.isa.dpbusd else gemm.slower(ctx.conv, ctx.isa)


def _winograd(m: int) -> tuple[WhyNot, Lower]:
    def why_not(ctx: RouteContext) -> str | None:
        reason = winograd.why_not(ctx.conv, m)
        return reason or (None if ctx.forced else winograd.slower(ctx.conv, ctx.isa, m))

    return why_not, _problem(winograd.lower, m=m)


def _found(find: Callable[[RouteContext], Elementwise | str]) -> tuple[WhyNot, Lower]:
    """A faster way to compute elements: ``find`` gives it, or says that there is none."""

    def why_not(ctx: RouteContext) -> str | None:
        found = find(ctx)
        return found if isinstance(found, str) else None

    def lower(ctx: RouteContext) -> Job:
        found = find(ctx)
        assert not isinstance(found, str)
        if ctx.table is not None:
            found = lut.then(found, ctx.table)
        return elementwise.lower(found, ctx.isa)

    return why_not, lower


def _parts(ctx: RouteContext) -> list[tuple[Part, RouteChoice]]:
    assert ctx.call.op.expand is not None
    isa = ctx.isa if ctx.elsewhere else None
    return [(part, choose(part.call, ctx.threads, isa=isa)) for part in ctx.call.op.expand(ctx.call)]


def _steps_why_not(ctx: RouteContext) -> str | None:
    slow = [part.call.op.name for part, choice in _parts(ctx) if choice.rule is None]
    return f"no native kernel for {', '.join(slow)}" if slow else None


def _steps(ctx: RouteContext) -> tuple[Job, ...]:
    """The jobs of each step, with what lies between them under names of their own."""
    made: list[Job] = []
    for number, (part, choice) in enumerate(_parts(ctx)):
        for job in choice.jobs() or ():
            within = {name: f"{number}.{name}" for name, _ in job.temps}
            renamed = job.renamed(**part.inputs, **within, out=part.output)
            if part.output != "out":
                renamed = replace(renamed, temps=(*renamed.temps, (part.output, part.call.out.nbytes)))
            made.append(renamed)
    return tuple(made)


RULES: tuple[RouteRule, ...] = (
    RouteRule("depthwise", _of(Family.DEPTHWISE), _always, _problem(depthwise.lower)),
    RouteRule(AMX, _multiplies, _amx_why_not, _problem(amx.lower, emulated=False)),
    RouteRule(
        AMX_EMULATED,
        _multiplies,
        lambda ctx: None if ctx.forced else "slow: only where it is asked for",
        _problem(amx.lower, emulated=True),
    ),
    RouteRule("winograd4", _MATRIX, *_winograd(4)),
    RouteRule("winograd2", _MATRIX, *_winograd(2)),
    RouteRule(
        "gemv",
        _multiplies,
        lambda ctx: None if ctx.out_pixels == 1 else "more than one output pixel",
        _gemm("gemv"),
    ),
    RouteRule("gemm8", _multiplies, _gemm8_why_not, _gemm("gemm8")),
    RouteRule("gemm", _multiplies, _always, _gemm("gemm")),
    RouteRule("groups", _of(Family.GROUP_LINEAR), _asked(groups.why_not), _made(groups.lower)),
    RouteRule("row_range", _of(Family.ROW_RANGE), _always, _made(groups.ranges)),
    RouteRule(
        "float_groups",
        _nibbles(Family.WEIGHT_ONLY),
        lambda ctx: groups.floats_why_not(ctx.call, ctx.isa),
        _made(groups.floats),
        profiles=True,
    ),
    RouteRule("lookup", _nibbles(Family.LOOKUP), _always, _made(groups.lookup), profiles=True),
    RouteRule(LUT, _affine(2), *_found(lambda ctx: ctx.lut)),
    RouteRule(FMA, _sums, *_found(lambda ctx: ctx.fma)),
    RouteRule(
        LINEAR,
        _in_place,
        lambda ctx: elementwise.linear_why_not(ctx.elementwise),
        lambda ctx: elementwise.linear(ctx.elementwise, ctx.isa),
    ),
    RouteRule("repack", _MOVES, _asked(relayout.repack_why_not), lambda ctx: relayout.repack(ctx.call)),
    RouteRule(
        VIA_NHWC,
        _affine(2),
        lambda ctx: elementwise.via_nhwc_why_not(ctx.elementwise),
        lambda ctx: elementwise.via_nhwc(ctx.elementwise, ctx.isa),
    ),
    RouteRule(
        "transpose", _MOVES, _asked(relayout.transpose_why_not), lambda ctx: relayout.transpose(ctx.call)
    ),
    RouteRule("contiguous", _QUANTIZERS, _asked(quantize.contiguous_why_not), _made(quantize.contiguous)),
    RouteRule("strided", _QUANTIZERS, _asked(quantize.strided_why_not), _made(quantize.strided)),
    RouteRule("via_4c", _QUANTIZERS, _asked(quantize.via_4c_why_not), _made(quantize.via_4c)),
    RouteRule("steps", _in_steps, _steps_why_not, _steps),
)


# --- the choice ------------------------------------------------------------------------------------------


def choose(
    call: Call,
    threads: int = 1,
    force: Mapping[str, str] | None = None,
    avoid: Mapping[str, str] | None = None,
    isa: Isa | None = None,
) -> RouteChoice:
    """The first rule that applies. ``force`` maps an operator, or ``*``, to the only route it may take.

    A forced route that does not apply leaves the emulated kernel. ParameterError for an unknown operator, or a
    route that it never takes. ``avoid`` maps routes that are not wanted to the reason. ``isa`` is another processor
    than this one, to ask what would be chosen there.
    """
    asked = call.op.name
    if call.op.picks:  # one part: the operator that upstream would pick
        assert call.op.expand is not None
        call = call.op.expand(call)[0].call
    wanted = _forced((call.op.name, asked, ANY), force or {})
    ctx = RouteContext(call, isa or cpu().isa, threads, wanted is not None, elsewhere=isa is not None)
    rejected: list[tuple[str, str]] = []
    told = _told(call)
    for rule in RULES:
        if not rule.takes(call.op):
            continue
        reason = f"{wanted} is forced" if wanted not in (None, rule.route) else (avoid or {}).get(rule.route)
        if reason is None:
            with doing.noted(f"while the native route {rule.route} was asked whether it takes {told}"):
                reason = _why_not(rule, ctx)
        if reason is None:
            return RouteChoice(rule, ctx, tuple(rejected))
        rejected.append((rule.route, reason))
    return RouteChoice(None, ctx, tuple(rejected))


def others(call: Call, route: str) -> Iterator[str]:
    """The routes that a call may also take, but for one and what is emulated."""
    known = [rule.route for rule in RULES if rule.route not in (route, AMX_EMULATED)]
    return (name for name in known if choose(call, force={ANY: name}).route == name)


def _why_not(rule: RouteRule, ctx: RouteContext) -> str | None:
    if not rule.profiles and ctx.call.target.profile.flags != CANONICAL.flags:
        return f"profile {ctx.call.target.profile.name}: this kernel is canonical"
    return rule.why_not(ctx)


def _forced(names: Sequence[str], force: Mapping[str, str]) -> str | None:
    """The route asked for under the first of these names that has one."""
    for name, route in force.items():
        if name not in OPS and name != ANY:
            raise ParameterError(
                f"route {route}",
                "of an unknown operator",
                got=name,
                need=choices.need(name, OPS, f"or {ANY}"),
            )
        # a composite takes the routes of the kernels that it may become
        every = name == ANY or OPS[name].expand is not None
        known = {rule.route for rule in RULES if every or rule.takes(OPS[name])} | {EMULATED}
        if route not in known:
            raise ParameterError(
                f"route of {name}", "unknown", got=route, need=choices.need(route, sorted(known))
            )
    return next((force[name] for name in names if name in force), None)
