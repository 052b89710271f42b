"""Compile native kernels, each when it is first needed, and keep the machine code on disk.

An entry is named by the kernel and its variant; its directory (refsim.core.cache) after the sources of this package,
LLVM's version, and the processor with its features. Entries are written to a temporary name and renamed, and carry a
digest of their own, so that several processes may share the cache and a damaged entry is compiled again.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from refsim.core import cache as cache_entries
from refsim.core import doing
from refsim.exec.cpu.ir import REMARK, ModuleText
from refsim.exec.cpu.isa import cpu

Variant = int | str | bool
#: Builders write the function `name` into the module; the keywords are the variant.
Builder = Callable[..., None]

_lock = threading.Lock()
_addresses: dict[str, int] = {}
#: The module that writes each kernel.
_modules: dict[str, str] = {}


def address(build: Builder, **variant: Variant) -> int:
    """Entry point of a kernel: from memory, from the cache on disk, or compiled now."""
    name = "_".join([build.__name__, *(f"{key}{value}" for key, value in variant.items())])
    found = _addresses.get(name)
    if found is None:
        with _lock:
            found = _addresses.get(name)
            if found is None:
                _modules[name] = build.__module__
                found = _addresses[name] = _link(name, build, variant)
    return found


def name_of(entry: int) -> str:
    """The name and variant of a kernel by its entry point."""
    return next(name for name, found in _addresses.items() if found == entry)


def told(entries: Iterable[int]) -> str:
    """Kernels by their entry points, each with the file that writes it."""
    names = dict.fromkeys(map(name_of, entries))
    return ", ".join(doing.kernel(_modules[name], name) for name in names)


def assembly(build: Builder, **variant: Variant) -> str:
    """The machine code as text, for looking inside."""
    return _machine().emit_assembly(_optimized("kernel", build, variant))


def _link(name: str, build: Builder, variant: dict[str, Variant]) -> int:
    # the cache's name is of this package's sources: kernels from elsewhere may have changed
    kept = build.__module__.startswith(__package__)
    path = directory() / f"{name}.o"
    code = cache_entries.read(path) if kept else None
    if code is None:
        written = f"while the native kernel {name} was written ({build.__module__})"
        with doing.compiling(name), doing.noted(written):
            code = _object(name, build, variant)
        if kept:
            cache_entries.write(path, code)
    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return int(engine.get_function_address(name))


def _object(name: str, build: Builder, variant: dict[str, Variant]) -> bytes:
    return _machine().emit_object(_optimized(name, build, variant))


def _optimized(name: str, build: Builder, variant: dict[str, Variant]) -> llvm.ModuleRef:
    module = ModuleText()
    build(module, name, **variant)
    try:
        parsed = llvm.parse_assembly(str(module))
        parsed.triple = _machine().triple
        parsed.data_layout = str(_machine().target_data)
        parsed.verify()
    except RuntimeError as error:
        _note_writers(error, name, build, variant)
        raise
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    # the kernels are vectors already, and unrolled where it pays
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = False
    builder = llvm.create_pass_builder(_machine(), tuning)
    builder.getModulePassManager().run(parsed, builder)
    return parsed


#: Lines that LLVM refused and whose writers are told.
MOST_REFUSED = 3


def _note_writers(error: RuntimeError, name: str, build: Builder, variant: dict[str, Variant]) -> None:
    """Let LLVM's error say which functions wrote what it refuses: the kernel is written once more, with remarks."""
    remarked = ModuleText(remarks=True)
    build(remarked, name, **variant)
    lines = str(remarked).splitlines()
    numbers = [int(n) - 1 for n in re.findall(r"<string>:(\d+):", str(error))]
    refused = [lines[n] for n in numbers if n < len(lines)]
    for text in dict.fromkeys(map(str.strip, str(error).splitlines())):
        # LLVM prints an instruction in its own way: the result's name is the same, or that of the function
        begin = re.match(r"%\w+ = ", text) or re.search(r"@[\w.]+", text)
        refused += [line for line in lines if begin and re.search(rf"{re.escape(begin[0])}.*{REMARK}", line)][
            :1
        ]
    for line in list(dict.fromkeys(refused))[:MOST_REFUSED]:
        code, _, writers = line.partition(REMARK)
        if writers:
            doing.note(error, f"`{code.strip()}` was written by {writers}")


@cache
def _machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=cpu().name, features=cpu().features, opt=3, jit=True)


@cache
def _engine() -> llvm.ExecutionEngine:
    empty = llvm.parse_assembly("")
    empty.triple = _machine().triple
    target = llvm.Target.from_default_triple()
    own = target.create_target_machine(cpu=cpu().name, features=cpu().features, opt=3, jit=True)
    return llvm.create_mcjit_compiler(empty, own)  # the engine takes its machine over


# --- the cache on disk -----------------------------------------------------------------------------------


@cache
def directory() -> Path:
    """Where compiled kernels are kept."""
    versions = f"{llvmlite.__version__} {llvm.llvm_version_info} {cpu().name} {cpu().features}"
    return cache_entries.directory("native", versions, Path(__file__).parent)
