"""Which tests are tried on a change, and in what order: those of what was changed first."""

from __future__ import annotations

from functools import cache

from mutants.generated.targets import Area
from refsim.exec.cpu.amx import tiles
from refsim.exec.cpu.isa import cpu

#: Part of a path below refsim/exec/cpu -> tests of that part, in tests/exec/cpu; a blank parts a file from a filter.
_PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("amx/", ("test_parts.py pixels", "test_amx.py", "test_unit_sums.py amx")),
    ("gemm/", ("test_unit_sums.py",)),
    ("depthwise/", ("test_unit_sums.py", "test_parts.py windows")),
    (
        "winograd/",
        ("test_exact.py within", "test_bounds.py", "test_unit_sums.py winograd", "test_exact.py winograd"),
    ),
    ("dot.py", ("test_bounds.py", "test_unit_sums.py")),
    ("conv_problem.py", ("test_bounds.py",)),
    ("epilogue.py", ("test_bounds.py", "test_joined.py")),
    ("elementwise/", ("test_parts.py copied", "test_sums.py", "test_bounds.py", "test_two_inputs.py")),
    ("elementwise/lut.py", ("test_sums.py", "test_two_inputs.py")),
    ("relayout/", ("test_exact.py repack or within",)),
    ("routes.py", ("test_float_routes.py",)),
    ("groups/", ("test_float_routes.py", "test_bounds.py")),
    ("pool/", ("test_pool.py",)),
    ("wake.py", ("test_runner.py", "test_imports.py")),
    ("thread_pool.py", ("test_native.py helpers", "test_guards.py", "test_imports.py")),
    ("plan.py", ("test_plan.py",)),
    ("schedule.py", ("test_plan.py", "test_tables.py")),
    (
        "fusion.py",
        ("test_fusion.py", "test_plan.py", "test_tables.py", "test_two_inputs.py"),
    ),
)
#: The same for what the emulated kernels' sources hold besides them.
_FILES: dict[str, tuple[str, ...]] = {
    "refsim/ops/base/coopmat.py": ("tests/gpu/test_coop.py", "tests/gpu/test_shaders.py includes"),
    "refsim/ops/base/epilogue.py": ("tests/gpu/test_bounds_of_calls.py",),
    "refsim/core/index.py": ("tests/gpu/test_probe_index.py",),
    "refsim/core/launch.py": ("tests/core/test_launch.py",),
    "refsim/core/push.py": ("tests/core/test_push.py",),
    "refsim/core/qmath.py": ("tests/core/test_qmath.py",),
    "refsim/core/lifetimes.py": ("tests/core/test_lifetimes.py",),
    "refsim/graph/bytewise.py": ("tests/graph/test_bytewise.py", "tests/exec/cpu/test_tables.py"),
    **{
        f"shaders/include/{name}.glsl": ("tests/gpu/test_bounds_of_calls.py",)
        for name in ("qmath", "epilogue")
    },
    # what it computes for other weights and sums is asked for by defects and by the causes of wrong bytes alone
    "refsim/ops/base/group_linear.py": ("tests/ops/test_group_sums.py", "tests/bytediff/test_edits.py"),
}
#: What is tried first of all: what is chosen, whether every element is written, and each by one task.
_QUICK = {
    "native": (
        "tests/exec/cpu/test_plans.py",
        "tests/exec/cpu/test_buffers.py",
    ),
    "emulated": ("tests/ops/test_launches.py",),
    "shaders": ("tests/ops/test_arrays.py", "tests/ops/test_subscripts.py"),
}


@cache
def only_forced(file: str) -> bool:
    """Whether kernels of a file run here only where they are asked for: those of a matrix unit that is not there."""
    return file.startswith("refsim/exec/cpu/amx/") and tiles.why_not(cpu().isa) is not None


def tests(area: Area, file: str) -> tuple[str, ...]:
    """The tests that are tried for a file, its own ones first; what stands behind a blank filters them."""
    own = _FILES.get(file, ())
    for part, named in _PARTS:
        if file.startswith(f"refsim/exec/cpu/{part}"):
            own = tuple(f"tests/exec/cpu/{name}" for name in named)
    general = () if only_forced(file) else area.tests
    return tuple(dict.fromkeys((*_QUICK.get(area.name, ()), *own, *general)))
