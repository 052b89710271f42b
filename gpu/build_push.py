"""Write shaders/include/push/: what each kernel is launched with, as GLSL; ``--check`` compares instead of writing.

NAME.comp includes ``include/push/NAME.glsl``. There stand a constant for each push word, which is the offset that the
emulated kernel reads at, and the specialization constants with their ids. Both follow from the operator's rows
(`refsim.core.push`). ``launch.glsl`` holds what is the same for every kernel. No compiler is needed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from refsim.core.buffer import GUARD_WORDS
from refsim.core.launch import PLANE_ROW
from refsim.core.push import (
    LAUNCH,
    MAX_PUSH_WORDS,
    TENSOR,
    PushWords,
    SpecWords,
    float32,
    hashed,
    int32,
    tensor,
    uint32,
)
from refsim.ops.base import conv, coopmat, linear
from refsim.ops.base.registry import OPS
from refsim_gpu import float_words

SHADERS = Path(__file__).resolve().parent.parent / "shaders"
FOLDER = SHADERS / "include" / "push"
HEAD = "// Written by python -m refsim_gpu.build_push from {source}; do not edit.\n"

#: The rows of the probes, which are no operators.
PROBES: dict[str, tuple[PushWords, SpecWords]] = {
    "probe/index": (PushWords(tensor("META"), int32("COUNT")), SpecWords(uint32("HASH"))),
    "probe/qmath": (PushWords(int32("COUNT"), float32("INV"), int32("ZP"), float32("SCALE")), SpecWords()),
    "probe/walk": (
        PushWords(tensor("OUT"), *(int32(f"RADIX_{what}") for what in ("W", "H", "C", "N", "LANES"))),
        SpecWords(hashed("OUT")),
    ),
}

#: The kernels on cooperative matrices: the push words of operators, and specialization words of their own.
COOP: dict[str, tuple[PushWords, SpecWords]] = {
    "coop/conv": (conv.PUSH, coopmat.SPEC),
    "coop/linear": (linear.PUSH, coopmat.SPEC),
}


def offsets(push: PushWords) -> str:
    """A constant for each place that a kernel reads, and for each bit with a name."""
    lines = []
    for field in push.fields:
        note = "" if field.type.glsl == "int" else f"  // {field.type.glsl}"
        lines += [f"const int {name} = {push.at[name]};{note}\n" for name in field.constants]
        lines += [f"const int {name} = {bit};  // in {field.name}\n" for name, bit in field.bits.items()]
    return "".join(lines)


def constants(spec: SpecWords) -> str:
    """A specialization constant for each word."""
    lines = []
    for field in spec.fields:
        kind = field.type.glsl
        default = str(bool(field.default)).lower() if kind == "bool" else str(field.default)
        for name in field.constants:
            lines.append(f"layout(constant_id = {spec.ids[name]}) const {kind} {name} = {default};\n")
        lines += [
            f"const {kind} {name} = {value};  // of {field.name}\n" for name, value in field.bits.items()
        ]
    return "".join(lines)


def launch() -> str:
    """What is the same for every kernel."""
    local = ", ".join(f"local_size_{axis}_id = {LAUNCH.ids[f'LOCAL_{axis.upper()}']}" for axis in "xyz")
    places = ", ".join(f"{part.removeprefix('_')} = {place}" for place, part in enumerate(TENSOR.parts))
    return (
        "// where a tensor's sizes and strides stand among its words\n"
        f"const int {places};\n"
        f"const int GUARD_WORDS = {GUARD_WORDS}, PLANE_ROW = {PLANE_ROW};\n"
        f"layout(push_constant) uniform Push {{ int push[{MAX_PUSH_WORDS}]; }};\n"
        f"layout({local}) in;\n"
        "#ifndef REFSIM_LOCAL_X  // a build for one tile has these as literals\n"
        f"{constants(LAUNCH)}"
        "#endif\n"
    )


def texts() -> dict[Path, str]:
    """What each file should say."""
    rows = {name: (op.kernel.push, op.kernel.spec) for name, op in OPS.items() if op.kernel is not None}
    sources = {name: f"PUSH and SPEC of refsim/ops/{name}.py" for name in rows}
    sources |= dict.fromkeys(PROBES, "PROBES in gpu/build_push.py")
    sources |= dict.fromkeys(COOP, "COOP in gpu/build_push.py")
    sources |= dict.fromkeys(float_words.ROWS, "ROWS in gpu/float_words.py")
    files = {FOLDER / "launch.glsl": HEAD.format(source="refsim/core/push.py") + launch()}
    for name, (push, spec) in (rows | PROBES | COOP | float_words.ROWS).items():
        files[FOLDER / f"{name}.glsl"] = HEAD.format(source=sources[name]) + offsets(push) + constants(spec)
    return files


def build(check: bool) -> list[str]:
    """Names of the files that were written, or (``check``) that are missing, differ or belong to no kernel."""
    wanted = texts()
    changed = [
        path
        for path, text in wanted.items()
        if not path.is_file() or path.read_text(encoding="ascii") != text
    ]
    orphans = [path for path in FOLDER.rglob("*.glsl") if path not in wanted]
    if not check:
        for path in changed:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path], encoding="ascii", newline="\n")
        for path in orphans:
            path.unlink()
    return [str(path.relative_to(SHADERS)) for path in sorted(changed + orphans)]


def main(arguments: list[str]) -> int:
    check = "--check" in arguments
    changed = build(check)
    for name in changed:
        print(f"{'stale' if check else 'written'} {name}")
    return int(check and bool(changed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
