"""Which native kernel computes a call: a table of rules, tried in order; the last one is the emulated kernel.

A rule looks at `Facts` and either gives the jobs' builder or says why it does not apply, so that a choice can be
printed (`refsim inspect --plan`), tested and overruled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from refsim.core.errors import ParameterError
from refsim.core.qmath import CANONICAL
from refsim.exec.cpu.conv_problem import WINDOW_OPS, Window, window
from refsim.exec.cpu.depthwise import prepack as depthwise
from refsim.exec.cpu.dot import DPBUSD, MADDUBS, MADDWD, MADDWD8
from refsim.exec.cpu.elementwise import fma, lut
from refsim.exec.cpu.elementwise import prepack as elementwise
from refsim.exec.cpu.elementwise.prepack import Elementwise
from refsim.exec.cpu.gemm import prepack as gemm
from refsim.exec.cpu.isa import Isa, cpu
from refsim.exec.cpu.job import Job
from refsim.exec.cpu.quantize import prepack as quantize
from refsim.exec.cpu.relayout import prepack as repack
from refsim.exec.cpu.winograd import prepack as winograd
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call


@dataclass(frozen=True)
class Facts:
    """What rules look at. ``call`` is the kernel whose bytes are wanted: a q8ta_conv2d has become its choice.

    ``forced``: one route is asked for, whether or not it is thought to be the fastest.
    """

    call: Call
    isa: Isa
    threads: int
    forced: bool = False

    @cached_property
    def window(self) -> Window:
        return window(self.call)

    @cached_property
    def elementwise(self) -> Elementwise:
        return elementwise.describe(self.call)

    @cached_property
    def tables(self) -> Elementwise | str:
        return elementwise.refuses(self.elementwise) or lut.find(self.elementwise, self.isa)

    @cached_property
    def fused(self) -> Elementwise | str:
        return elementwise.refuses(self.elementwise) or fma.find(self.elementwise, self.isa)

    @property
    def out_pixels(self) -> int:
        out = self.window.out
        return out.images * out.rows * out.pixels


@dataclass(frozen=True)
class Rule:
    """``refuses`` says why the rule does not apply, or None; ``lower`` makes the jobs."""

    route: str
    ops: frozenset[str]
    refuses: Callable[[Facts], str | None]
    lower: Callable[[Facts], tuple[Job, ...]]


@dataclass(frozen=True)
class Choice:
    """A rule applied to a call; ``passed`` are the rules before it with their reasons."""

    rule: Rule | None
    facts: Facts
    passed: tuple[tuple[str, str], ...]

    @property
    def route(self) -> str:
        return self.rule.route if self.rule else EMULATED

    def jobs(self) -> tuple[Job, ...] | None:
        """The jobs, prepacked now; None for the emulated kernel."""
        return self.rule.lower(self.facts) if self.rule else None


EMULATED = "emulated"


def _gemv(facts: Facts) -> tuple[Job, ...]:
    dot = DPBUSD if facts.isa.dpbusd else MADDWD8
    return (gemm.lower(facts.call.op.name, facts.window, facts.isa, dot, facts.threads),)


def _gemm(facts: Facts) -> tuple[Job, ...]:
    dot = DPBUSD if facts.isa.dpbusd else MADDWD
    return (gemm.lower(facts.call.op.name, facts.window, facts.isa, dot, facts.threads),)


def _bytes_refused(facts: Facts) -> str | None:
    if not facts.isa.maddubs:
        return f"{facts.isa.name} has no such products"
    if facts.forced:
        return None
    return f"{facts.isa.name} has better ones" if facts.isa.dpbusd else gemm.slower(facts.window, facts.isa)


def _gemm_bytes(facts: Facts) -> tuple[Job, ...]:
    return (gemm.lower(facts.call.op.name, facts.window, facts.isa, MADDUBS, facts.threads),)


def _winograd(m: int) -> tuple[Callable[[Facts], str | None], Callable[[Facts], tuple[Job, ...]]]:
    def refuses(facts: Facts) -> str | None:
        window = facts.window
        return winograd.refuses(window, m) or (
            None if facts.forced else winograd.slower(window, facts.isa, m)
        )

    return refuses, lambda f: (winograd.lower(f.call.op.name, f.window, f.isa, f.threads, m),)


def _found(
    find: Callable[[Facts], Elementwise | str],
) -> tuple[Callable[[Facts], str | None], Callable[[Facts], tuple[Job, ...]]]:
    """A faster way that has been found for an operation on elements, or has not."""

    def refuses(facts: Facts) -> str | None:
        found = find(facts)
        return found if isinstance(found, str) else None

    def lower(facts: Facts) -> tuple[Job, ...]:
        found = find(facts)
        assert not isinstance(found, str)
        return (elementwise.lower(found, facts.isa),)

    return refuses, lower


def _always(facts: Facts) -> str | None:
    return None


_PER_ELEMENT = frozenset({"q8ta_add", "q8ta_relu", "q8ta_clone"})
_QUANTIZERS = frozenset({"q8ta_quantize", "q8ta_dequantize"})

RULES: tuple[Rule, ...] = (
    Rule(
        "depthwise",
        frozenset({"q8ta_conv2d_dw"}),
        lambda facts: depthwise.refuses(facts.call),
        lambda facts: (depthwise.lower(facts.call, facts.isa, facts.threads),),
    ),
    Rule("winograd4", WINDOW_OPS, *_winograd(4)),
    Rule("winograd2", WINDOW_OPS, *_winograd(2)),
    Rule("gemv", WINDOW_OPS, lambda f: None if f.out_pixels == 1 else "more than one output pixel", _gemv),
    Rule("gemm8", WINDOW_OPS, _bytes_refused, _gemm_bytes),
    Rule("gemm", WINDOW_OPS, _always, _gemm),
    Rule(
        "tables",
        frozenset({"q8ta_add", "q8ta_relu", "q8ta_pixel_shuffle"}),
        *_found(lambda facts: facts.tables),
    ),
    Rule("fused", frozenset({"q8ta_add"}), *_found(lambda facts: facts.fused)),
    Rule(
        "flat",
        _PER_ELEMENT,
        lambda facts: elementwise.flat_refuses(facts.elementwise),
        lambda facts: (elementwise.flat(facts.elementwise, facts.isa),),
    ),
    Rule(
        "repack",
        frozenset({"q8ta_clone", "nchw_to_int8x4", "int8x4_to_nchw"}),
        lambda facts: repack.same_refuses(facts.call),
        lambda facts: (repack.same(facts.call),),
    ),
    Rule(
        "rows",
        frozenset({"q8ta_add", "q8ta_relu", "q8ta_pixel_shuffle"}),
        lambda facts: elementwise.rows_refuses(facts.elementwise),
        lambda facts: (elementwise.rows(facts.elementwise, facts.isa),),
    ),
    Rule(
        "cross",
        frozenset({"q8ta_clone", "nchw_to_int8x4", "int8x4_to_nchw"}),
        lambda facts: repack.cross_refuses(facts.call),
        lambda facts: (repack.lower(facts.call),),
    ),
    Rule(
        "along",
        _QUANTIZERS,
        lambda facts: quantize.along_refuses(facts.call),
        lambda facts: (quantize.along(facts.call, facts.isa),),
    ),
    Rule(
        "across",
        _QUANTIZERS,
        lambda facts: quantize.across_refuses(facts.call),
        lambda facts: (quantize.across(facts.call, facts.isa),),
    ),
    Rule(
        "chained",
        _QUANTIZERS,
        lambda facts: quantize.chained_refuses(facts.call),
        lambda facts: quantize.chained(facts.call, facts.isa),
    ),
)


def choose(
    call: Call,
    threads: int = 1,
    force: Mapping[str, str] | None = None,
    avoid: Mapping[str, str] | None = None,
) -> Choice:
    """The first rule that applies. ``force`` maps an operator, or ``*``, to the only route it may take.

    A forced route that does not apply leaves the emulated kernel. ParameterError for an unknown operator, or a
    route that it never takes. ``avoid`` maps routes that are not wanted to the reason.
    """
    asked = call.op.name
    if call.op.name == "q8ta_conv2d":  # a composite of one part: the kernel that upstream would pick
        assert call.op.expand is not None
        call = call.op.expand(call)[0].call
    wanted = _forced((call.op.name, asked, ANY), force or {})
    facts = Facts(call, cpu().isa, threads, wanted is not None)
    passed: list[tuple[str, str]] = []
    for rule in RULES:
        if call.op.name not in rule.ops:
            continue
        reason = f"{wanted} is forced" if wanted not in (None, rule.route) else (avoid or {}).get(rule.route)
        reason = reason or _refusal(rule, facts)
        if reason is None:
            return Choice(rule, facts, tuple(passed))
        passed.append((rule.route, reason))
    return Choice(None, facts, tuple(passed))


def _refusal(rule: Rule, facts: Facts) -> str | None:
    if facts.call.target.profile.flags != CANONICAL.flags:
        return f"profile {facts.call.target.profile.name}: native kernels are canonical"
    return rule.refuses(facts)


#: Stands for every operator where routes are asked for.
ANY = "*"


def _forced(names: Sequence[str], force: Mapping[str, str]) -> str | None:
    """The route asked for under the first of these names that has one."""
    for name, route in force.items():
        if name not in OPS and name != ANY:
            raise ParameterError(
                f"route {route}", "of an unknown operator", got=name, need=f"{', '.join(OPS)} or {ANY}"
            )
        # a composite takes the routes of the kernels that it may become
        every = name == ANY or OPS[name].expand is not None
        known = {rule.route for rule in RULES if every or name in rule.ops} | {EMULATED}
        if route not in known:
            raise ParameterError(f"route of {name}", "unknown", got=route, need=", ".join(sorted(known)))
    return next((force[name] for name in names if name in force), None)
