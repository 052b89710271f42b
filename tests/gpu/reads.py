"""Shaders that count what they read or write outside of their buffers: rewritten sources, and an executor for them.

What lies behind a tensor is a guard word, which a kernel may read and throw away: no byte shows it. Where the tensor
ends with the memory of a process, it is a fault all the same. So every subscript of a buffer is checked, and those that
lie outside are counted in one more buffer, with the place in the sources of one of them.

How often each buffer and each array that a workgroup shares is asked for is counted as well, and how far the array is
used. Words that are fetched twice, or singly instead of four at once, change no byte, only how long a kernel takes.

python tests/gpu/reads.py --write   writes tests/data/reads.txt anew, after a kernel was changed on purpose.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from examples import small

from refsim.core.buffer import PackedBuffer
from refsim.core.counted import counted
from refsim.core.launch import Launch
from refsim.exec.executor import Executor
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim_gpu import build_shaders, spirv
from refsim_gpu.executor import KomputeExecutor
from refsim_gpu.pipelines import guarded_words, output_memory, padded_push, take_output

#: A buffer as `shaders/include/launch.glsl` declares it: binding, name, words of an element.
_BUFFER = re.compile(
    r"layout\(std430, set = 0, binding = (\d+)\)\s*(?:readonly )?buffer (\w+)_buffer \{ (?:int|ivec([24])) [^}]*\};"
)
#: An array that the invocations of a workgroup share.
_SHARED = re.compile(r"^shared \w+ (\w+)\[")
_LINE = re.compile(r'^#line (\d+) "(.*)"$')
#: Words of the record: how many subscripts were outside; of the first one its site, itself, and what was allowed.
COUNT, SITE, AT, SIZE, WORDS = range(5)
#: Words of each site behind these: how often it was reached, the element behind the last one, and how many there are.
REACHED, BEHIND, THERE, EACH_SITE = range(4)
_CHECK = """
layout(std430, set = 0, binding = {binding}) buffer watch_buffer {{ uint watch[]; }};
int watched(int at, int size, uint site) {{
    uint own = 4u + 3u * site;
    atomicAdd(watch[own], 1u);
    if (at >= 0 && at < size) {{
        atomicMax(watch[own + 1u], uint(at) + 1u);
        watch[own + 2u] = uint(size);
        return at;
    }}
    if (atomicAdd(watch[0], 1u) == 0u) {{
        watch[1] = site;
        watch[2] = uint(at);
        watch[3] = uint(size);
    }}
    return 0;
}}
"""
FILE = Path(__file__).parents[1] / "data" / "reads.txt"
#: Cases of the corpus for each operator, evenly apart, of small tensors.
EACH, MOST_WORDS = 8, 8000


def rewritten(source: str) -> tuple[str, list[str]]:
    """A preprocessed source with its subscripts of buffers checked, and (place in the sources, buffer) of each.

    Allowed are the words between the guard words; a buffer's last three may be those that fill up its last vector.
    """
    declared = list(_BUFFER.finditer(source))
    sizes = {match[2]: f"{match[2]}.length() - GUARD_WORDS / {match[3] or 1}" for match in declared}
    shared = {match[1] for line in source.split("\n") if (match := _SHARED.match(line)) is not None}
    sizes |= {name: f"int({name}.length())" for name in shared}
    binding = 1 + max(int(match[1]) for match in declared)
    named = re.compile(rf"\b({'|'.join(sizes)})\[")
    sites: list[str] = []

    def checked(text: str, place: str) -> str:
        """A line, or a part of one, with every subscript in it checked."""
        made, at = list[str](), 0
        while (match := named.search(text, at)) is not None:
            close = _closing(text, match.end())
            name, inner = match[1], checked(text[match.end() : close], place)
            sites.append(f"{name} in {place}")
            made += [text[at : match.end()], f"watched(int({inner}), {sizes[name]}, "]
            made.append(f"{len(sites) - 1}u)")
            at = close
        return "".join((*made, text[at:]))

    lines, file, number, begun = list[str](), "", 0, False
    for line in source.split("\n"):
        if (match := _LINE.match(line)) is not None:
            file, number = match[2].replace(str(build_shaders.SHADERS), "shaders"), int(match[1]) - 1
        if _SHARED.match(line):
            lines += [] if begun else [_CHECK.format(binding=binding)]
            begun = True
            lines.append(line)
        elif _BUFFER.search(line):
            lines += [] if begun else [_CHECK.format(binding=binding)]
            lines.append(line)
            begun = True
        else:
            lines.append(checked(line, f"{file}:{number}"))
        number += 1
    return "\n".join(line for line in lines if not _LINE.match(line)), sites


def _closing(text: str, at: int) -> int:
    """The bracket that ends the subscript which begins here."""
    depth = 1
    while depth:
        depth += {"[": 1, "]": -1}.get(text[at], 0)
        at += 1
    return at - 1


@cache
def built(shader: str, variant: str, dot: bool) -> tuple[bytes, tuple[str, ...]]:
    """The SPIR-V of a shader's rewritten source, and where its subscripts stand."""
    source = build_shaders.SHADERS / f"{shader}.comp"
    options = ["--target-env=vulkan1.1", f"-I{build_shaders.SHADERS}", *([] if dot else ["-DREFSIM_NO_DOT"])]
    for row in OPS[shader].variants if shader in OPS else ():
        if row.name == variant:
            options += [f"-D{key}={value}" for key, value in row.definitions.items()]
    with tempfile.TemporaryDirectory() as scratch:
        text, made, binary = (Path(scratch) / name for name in ("all.comp", "watched.comp", "watched.spv"))
        build_shaders.run_tool(shader, "glslc", *options, "-E", "-o", str(text), str(source))
        code, sites = rewritten(text.read_text())
        made.write_text(code)
        build_shaders.run_tool(shader, "glslc", options[0], "-o", str(binary), str(made))  # -O may fuse
        return spirv.pin_rounding(binary.read_bytes()), tuple(sites)


class Reached(NamedTuple):
    """How often a dispatch asked for a buffer or a shared array, the element behind the last one, and all there are.

    ``place``: the source that asks most often.
    """

    shader: str
    name: str
    place: str
    times: int
    behind: int
    there: int


def _reached(shader: str, sites: Sequence[str], counts: np.ndarray) -> Iterator[Reached]:
    names = [site.partition(" in ")[0] for site in sites]
    for name in sorted(set(names)):
        rows = [number for number, other in enumerate(names) if other == name]
        most = max(rows, key=lambda number: int(counts[number, REACHED]))
        times, behind, there = int(counts[rows, REACHED].sum()), *(int(n) for n in counts[rows].max(0)[1:])
        yield Reached(shader, name, sites[most].partition(" in ")[2].rpartition(":")[0], times, behind, there)


class Watching(KomputeExecutor):
    """Runs every step with its subscripts checked; ``outside``: what they did, a line for each step that did."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.outside: list[str] = []
        self.reached: list[Reached] = []

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        """One step at a time, each over its own tensors."""
        return Executor.run_prepared(self, self.pipelines.chosen(prepared), inputs)

    def run(self, launch: Launch, inputs: Sequence[np.ndarray]) -> PackedBuffer:
        device, out = self.device, PackedBuffer(launch.out)
        code, sites = built(launch.shader, launch.variant, self.pipelines.use_dot)
        memory = [
            *map(guarded_words, inputs),
            output_memory(out),
            np.zeros(WORDS + EACH_SITE * len(sites), np.uint32),
        ]
        tensors = [device.tensor(words) for words in memory]
        spec = (*launch.local, *launch.tile, *launch.spec)
        kernel = device.algorithm(
            code, tensors, launch.grid, spec, padded_push(launch), local=launch.local, where=launch.shader
        )
        device.run(device.recorded(device.kp.OpTensorSyncDevice(tensors)), where=launch.shader)
        fetch = device.kp.OpTensorSyncLocal(tensors[-2:])
        device.run(device.recorded(device.dispatch(kernel), fetch), where=launch.shader)
        take_output(out, tensors[-2].data())
        record = np.array(tensors[-1].data(), np.uint32).view(np.int32)
        name = f"{launch.shader}.{launch.variant}".rstrip(".")
        self.reached += _reached(name, sites, record[WORDS:].reshape(-1, EACH_SITE))
        if record[COUNT]:
            self.outside.append(
                f"read out of bounds: {name}: {counted(int(record[COUNT]), 'subscript')} outside of a buffer, one of "
                f"{sites[record[SITE]]}: element {record[AT]} of {record[SIZE]}"
            )
        return out


@dataclass
class Ran:
    """What the shaders of some cases did: outside of their buffers, and within them, a line for each dispatch."""

    outside: list[str]
    reached: list[Reached]
    lines: list[str]


def ran(executor: Watching, op: str, count: int) -> Ran:
    """What the shaders of some cases do; their bytes are right either way."""
    made = Ran([], [], [])
    chosen = [bound for _, bound in small(op, count, MOST_WORDS)]
    assert len(chosen) == count
    for bound in chosen:
        executor.outside.clear()
        executor.reached.clear()
        assert executor.run_call(bound.call, bound.inputs) == bound.call.expected(bound.inputs), bound.case
        made.outside += executor.outside
        made.reached += executor.reached
        shaders = dict.fromkeys(row.shader for row in executor.reached)
        for shader in shaders:
            asked = [row for row in executor.reached if row.shader == shader and row.times]
            told = " ".join(f"{row.name}={row.times}" for row in asked)
            made.lines.append(f"{op} {bound.call.out}: {shader} {told}")
    return made


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        raise SystemExit(__doc__)
    with Watching(int(os.environ.get("REFSIM_DEVICE", "0"))) as watching:
        lines = [line for name in OPS for line in ran(watching, name, EACH).lines]
    FILE.write_text("\n".join(lines) + "\n")
