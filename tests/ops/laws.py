"""The law of every operator, and a command that checks it on exactly one random configuration.

python tests/ops/laws.py OP SEED [--profile NAME] [--mali] [--layouts IN,...,OUT]
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from refsim.core.buffer import PackedBuffer, guarded
from refsim.core.layout import Layout
from refsim.core.qmath import PROFILES
from refsim.core.rng import Rng
from refsim.exec.cpu import EmulatedExecutor
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target

EXECUTOR = EmulatedExecutor()
Layouts = tuple[Layout, ...]


def sampled(name: str, seed: int, layouts: Layouts | None = None) -> Case:
    """The random configuration of a seed, in other layouts if any are given."""
    case = OPS[name].sample(Rng(seed))
    if layouts is None:
        return case
    inputs = {
        key: (shape, str(row))
        for (key, (shape, _)), row in zip(case.inputs.items(), layouts[:-1], strict=True)
    }
    return replace(case, inputs=inputs, out_layout=str(layouts[-1]))


def check_case(case: Case, target: Target, rerun: str, poison: int | None = None) -> PackedBuffer:
    """define + pack == emulated kernel in every byte, nothing beside the buffers or in the inputs touched.

    With ``poison`` (a seed) the kernel sees random bytes in the padding of its inputs, and must not care.
    """
    bound = bind(case, target)
    expected = bound.call.expected(bound.inputs)
    inputs = bound.inputs
    if poison is not None:
        rng = np.random.default_rng(poison)
        inputs = {name: buffer.poison(rng) for name, buffer in inputs.items()}
        if bound.call.padding.copied:
            expected = bound.call.expected(inputs)
    before = {name: buffer.raw.copy() for name, buffer in inputs.items()}
    with guarded(case.op, *inputs.values()):
        actual = EXECUTOR.run_call(bound.call, inputs)
    actual.check_guards(case.op)
    for name, raw in before.items():
        assert np.array_equal(inputs[name].raw, raw), f"wrote to its input {name}: {case}\nrerun: {rerun}"
    assert actual.desc == expected.desc
    wrong = np.flatnonzero(actual.raw != expected.raw)
    assert not wrong.size, (
        f"{wrong.size} of {expected.raw.size} bytes differ, first at byte {wrong[0]}: "
        f"define {expected.raw[wrong[0]]:#04x}, kernel {actual.raw[wrong[0]]:#04x}\n{case}\nrerun: {rerun}"
    )
    return expected


def check(
    name: str,
    seed: int,
    profile: str = "canonical",
    mali: bool = False,
    layouts: Layouts | None = None,
    poison: bool = True,
) -> PackedBuffer:
    """The law on the random configuration of a seed, with clean and with poisoned padding."""
    rerun = f"python tests/ops/laws.py {name} {seed} --profile {profile}"
    rerun += " --mali" if mali else ""
    rerun += f" --layouts {','.join(map(str, layouts))}" if layouts else ""
    case, target = sampled(name, seed, layouts), Target(PROFILES[profile], mali)
    if poison:
        check_case(case, target, rerun, poison=seed)
    return check_case(case, target, rerun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("op", choices=list(OPS))
    parser.add_argument("seed", type=int)
    parser.add_argument("--profile", choices=list(PROFILES), default="canonical")
    parser.add_argument("--mali", action="store_true")
    parser.add_argument("--layouts", help="of the inputs, then the output's")
    given = parser.parse_args()
    from refsim.core.layout import layout

    rows = tuple(map(layout, given.layouts.split(","))) if given.layouts else None
    check(given.op, given.seed, given.profile, given.mali, rows)
    print("the same bytes:", sampled(given.op, given.seed, rows))


if __name__ == "__main__":
    main()
