"""A user's build, as `refsim shaders` and its tests hold it: the folder, the executor that runs it, and the cases."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from refsim.bytediff.invocations import Geometry
from refsim.core import choices
from refsim.core.counted import counted
from refsim.core.errors import (
    FormatError,
    MissingDependencyError,
    ParameterError,
    RefsimError,
    UnknownOperatorError,
)
from refsim.core.qmath import CANONICAL, PROFILES, Profile
from refsim.core.result import Part
from refsim.exec.executor import Executor
from refsim.exec.isolated import IsolatedExecutor
from refsim.formats import kernels, profiles, wgsl
from refsim.formats.file import read_file
from refsim.formats.module_folder import SUFFIX
from refsim.formats.wgsl import Source
from refsim.golden.store import default_root
from refsim.modules import CASES, SECONDS, executors, inventory
from refsim.modules.folder import SPIRV, WGSL, Folder
from refsim.modules.trial import ModuleTrial
from refsim.modules.verification import Stage, Verification, stages
from refsim.ops.base.module_call import (
    DeclaredInterface,
    Host,
    HostFeatures,
    ModuleDispatch,
    WrittenOutput,
    dispatches,
    output_binding,
    packing_dispatches,
    why_not,
    written,
)
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call
from refsim.ops.base.target import Behaviour
from refsim.spirv.lines import stored
from refsim.spirv.module import Module
from refsim.spirv.own import is_own
from refsim.spirv.reflect import interface

MOST_NAMES = 5
#: Where a user finds the operators that modules of ExecuTorch's names compute.
LISTED = "refsim shaders --help lists all"
OWN = "is one of refsim's own modules"


#: Prints something before the verdict.
Say = Callable[[Iterable[Part]], None]


@dataclass(frozen=True)
class Repairing:
    """How long a search for a repair may take, and what keeps the module with the first one, None without.

    ``always``: search every wrong operator, or only those of which no cause predicts the wrong cases. ``most``: try no
    more edits, so that a busy machine says the same.
    """

    seconds: float = SECONDS
    always: bool = True
    most: int | None = None
    keep: Callable[[bytes | None], None] = lambda spirv: None


@dataclass(frozen=True)
class Request:
    """What is verified of the modules in a folder: all that refsim knows, or ``operators``, on a device by its number.

    ``count``, ``pattern``, ``sanitized`` and ``repeats`` are as for `Verification`. ``profile`` stands in for the
    numerics of the device, ``runtime`` for the one that the modules show. ``again``: options that a rerun of a case
    needs. ``everything``: go on behind a wrong case; ``limit``: differences that a report shows.
    """

    folder: str
    operators: Sequence[str] = ()
    count: int = CASES
    pattern: str = ""
    profile: Profile | None = None
    device: int = 0
    variant: str = ""
    images: bool = False
    sanitized: int = 0
    repeats: int = 0
    runtime: Behaviour | None = None
    again: Sequence[str] = ()
    everything: bool = False
    limit: int = 10
    repair: Repairing | None = None
    verbose: bool = False
    say: Say = lambda text: None


class Build:
    """The modules of a folder, and what is verified of them on which device.

    ``operators`` are those that the modules compute, or those of them that the user named.
    """

    def __init__(self, request: Request, executor: Executor) -> None:
        self.request, self.path, self.executor = request, request.folder, executor
        self.inside, self.own = kernels.rows_of(self.path)
        self.flat = kernels.is_wgsl(self.own)
        self.folder = Folder(self.inside, inventory.known(self.own), WGSL if self.flat else SPIRV)
        self._theirs = {shader.name for row in self.own.values() for shader in row.shaders}
        self.modules: dict[str, Module] = {}
        self.sources: dict[str, Source] = {}
        self.interfaces: dict[str, DeclaredInterface] = {}
        self.damaged: dict[str, str] = {}
        self.read(self.folder.names())
        self.operators = self._operators()
        self.device = executor.device_info()  # the device opened meanwhile
        self.features = HostFeatures.of(self.device, request.variant, request.images)
        own_numerics = request.profile or profiles.profile(self.device.numerics)
        self.profiles = tuple(dict.fromkeys((CANONICAL, own_numerics)))
        self.verification: Verification

    @property
    def suffix(self) -> str:
        """How the modules' files end."""
        return self.folder.kind.suffix

    def read(self, names: Collection[str]) -> None:
        """Read these modules of the folder again."""
        for name in names:
            for held in (self.modules, self.sources, self.interfaces, self.damaged):
                held.pop(name, None)
            if name not in self.folder.watched or name not in self.folder.names():
                continue
            where = f"{name}{self.suffix}"
            try:
                data = bytes(read_file(self.folder.file(name)))
                if self.flat:
                    self.interfaces[name] = self.sources[name] = wgsl.parse(data, name)
                    continue
                module = Module.parse(data, where)
                if not module.functions:
                    raise module.error("cut off before its functions")
                declared = interface(module)
                if name not in self._theirs and is_own(declared):
                    raise module.error(OWN, need="one of a kernel author")
                self.interfaces[name], self.modules[name] = declared, module
            except RefsimError as error:
                self.damaged[name] = str(error)

    def refresh(self, names: Collection[str]) -> None:
        """Take these modules as they are now. Raises as opening does if none is left that refsim knows."""
        self.read(names)
        self.operators = self._operators()

    def stages(self) -> Iterator[Stage]:
        """In which order the operators are run: the one whose module was compiled last goes first."""
        compiled = {name: self.folder.compiled(name) for name in self.interfaces}
        order = inventory.by_age(compiled, self.operators, self.own)
        return stages(order[:1], order[1:])

    @property
    def rows(self) -> list[inventory.ModuleRow]:
        """The table of the folder: of all modules that refsim can run, or of those that the named operators need."""
        found = inventory.rows(self.folder.names(), self.damaged, self.own)
        named = self.request.operators
        kernels = {kernel for op in named if op in OPS for kernel in inventory.computing(op, self.own)}
        return [row for row in found if not kernels or row.operator in kernels]

    @property
    def broken(self) -> dict[str, str]:
        """The modules of the table that cannot be read, and why."""
        return {row.module: row.note for row in self.rows if row.state == inventory.DAMAGED}

    @property
    def rounding(self) -> dict[str, tuple[Profile, ...]]:
        """The operators with kernels that are not upstream's, and the numerics that these may have besides."""
        found = {}
        for name in self.operators:
            used = [
                self.own[kernel].own
                for kernel in (name, *inventory.computing(name, self.own))
                if kernel in self.own
            ]
            if used:
                words = {own.rounding for own in used if own is not None and own.rounding}
                found[name] = tuple(PROFILES[word] for word in sorted(words))
        return found

    @property
    def options(self) -> list[str]:
        """The options of `refsim shaders` with which a case runs again as here."""
        words = ["--device", str(self.request.device)] if self.request.device else []
        words += ["--variant", self.features.variant] if self.features.variant else []
        words += ["--images"] if self.features.float_images else []
        return [*words, *self.request.again]

    @property
    def host(self) -> Host:
        """The host that calls the modules."""
        return Host(self.features, self.interfaces, self.own)

    def _written(self, call: Call) -> WrittenOutput | None:
        """The dispatch that writes a call's output; None if a kernel of ours does."""
        try:
            return written(call, self.host)
        except (UnknownOperatorError, ParameterError):
            return None

    def geometry(self, call: Call) -> Geometry | None:
        """How upstream's host launches the module that writes a call's output; None if a kernel of ours does."""
        last = self._written(call)
        return None if last is None else Geometry.of(call, last)

    @property
    def taken(self) -> set[str]:
        """The modules that run here."""
        return {name for op in self.operators for name in inventory.chosen(op, self.host)}

    def others(self) -> list[tuple[str, bool, list[str]]]:
        """(variant, images, operators) of further runs, which take modules that this one does not."""
        found, seen = [], self.taken
        for variant, images in (("fallback", False), ("unsigned", False), ("", True)):
            host = replace(self.host, features=replace(self.features, variant=variant, float_images=images))
            fresh = {op: {*inventory.chosen(op, host)} - seen for op in self.operators}
            operators = [op for op, names in fresh.items() if names and OPS[op].expand is None]
            if operators:
                found.append((variant, images, operators))
                seen |= set().union(*fresh.values())
        return found

    def refusal(self, call: Call) -> str | None:
        """Why the modules do not compute a call, so that a kernel of ours would run; None if they do."""
        return why_not(call, self.host)

    def takes(self, call: Call) -> bool:
        """Whether the modules compute a call."""
        return self.refusal(call) is None

    def steps(self, call: Call) -> list[ModuleDispatch]:
        """What a host dispatches for a call; none where a kernel of ours computes it."""
        try:
            return dispatches(call, self.host)
        except (UnknownOperatorError, ParameterError):
            return []

    def packings(self, call: Call) -> list[ModuleDispatch]:
        """What a host dispatches to pack the weights of a call."""
        return packing_dispatches(call, self.host) if self.steps(call) else []

    def writer(self, call: Call) -> str:
        """The module that writes a call's output; empty if a kernel of ours does."""
        last = self._written(call)
        return "" if last is None else last.shader

    def stores(self, module: str) -> list[tuple[str, str]]:
        """(place, source line) of each store to the module's output; empty without line numbers."""
        binding = output_binding(module, self.own)
        if module in self.sources:
            return self.sources[module].stores(binding)
        return stored(self.modules[module], binding) if module in self.modules else []

    def _nothing(self) -> FormatError:
        """Why nothing can be checked here: refsim's own modules, files of other names, or a folder too far up."""
        need = f"a kernel author's modules: {_example(self.flat)}"
        here = owned(Path(self.inside), self.folder.names())
        inside = sorted({path.parent for path in Path(self.path).glob(f"*/*{SUFFIX}")})
        below = {path: owned(path, sorted(one.stem for one in path.glob(f"*{SUFFIX}"))) for path in inside}
        if here or (below and all(below.values())):
            where = self.path if here else str(inside[0])
            names = ", ".join([*(f"{name}{SUFFIX}" for name in (here or below[inside[0]])[:2]), "..."])
            verify = [
                "refsim",
                "golden",
                "verify",
                *(op for op in self.request.operators if op in OPS),
                "-x",
                f"gpu:{self.request.device}" if self.request.device else "gpu",
            ]
            return FormatError(
                where, "holds refsim's own modules", got=names, need=need, hints=[shlex.join(verify)]
            )
        what = "no module of a kernel that refsim knows"
        if self.damaged:
            return FormatError(self.path, f"{what}: {choices.first(self.damaged.values(), 1)}")
        near = next((choices.asked(str(path)) for path, names in below.items() if not names), "")
        return FormatError(self.path, what, got=self._there(), need=need + near)

    def _operators(self) -> list[str]:
        found = inventory.computed(self.interfaces, self.own)
        if not found:
            raise self._nothing()
        wanted = self.request.operators
        for name in wanted:
            if name not in OPS or not (name in self.own or OPS[name].upstream.module or OPS[name].expand):
                raise self._unknown(name, found)
            if name not in found:
                rows = [row for row in self.rows if row.operator in inventory.computing(name, self.own)]
                files = [row.module + self.suffix for row in rows if row.variant != inventory.PACKS]
                if self.broken:
                    raise FormatError(
                        self.path, f"no module computes {name}: {choices.first(self.broken.values(), 1)}"
                    )
                got = f"modules of {choices.listed(found)}"
                need = " or ".join(files or [f"a table [{name}] in {kernels.NAME}"])
                raise FormatError(self.path, f"no module computes {name}", got=got, need=need)
        return [name for name in found if not wanted or name in wanted]

    def _unknown(self, name: str, found: Sequence[str]) -> ParameterError:
        """Why an operator cannot be checked here: there is none of the name, or none of its modules can be run."""
        need = choices.need(name, found)
        if name not in OPS:
            return ParameterError("shaders", f"no such operator ({LISTED})", got=name, need=need)
        why = "refsim does not know how ExecuTorch's host calls its module"
        return ParameterError(
            f"shaders: {name}", why, need=f"{need}; or {kernels.NAME} with a table [{name}]"
        )

    def _there(self) -> str:
        near = [
            f"{name}{self.suffix} ({meant}?)"
            for name, meant in inventory.strangers(self.folder.names(), self.own)
            if meant
        ]
        return choices.first(near, MOST_NAMES) or counted(len(self.folder.names()), f"{self.suffix} file")


def owned(folder: Path, names: Sequence[str]) -> list[str]:
    """Those of the modules in a folder that are refsim's own; the first ones decide whether it is one of refsim's."""
    found = []
    for name in names[:MOST_NAMES]:
        with suppress(RefsimError):
            where = f"{name}{SUFFIX}"
            if is_own(interface(Module.parse(bytes(read_file(folder / where)), where))):
                found.append(name)
    return found


def _example(flat: bool) -> str:
    first = next(name for name in inventory.known() if name.startswith("q8ta_"))
    files = f"{first}{SUFFIX} of a build's vulkan_compute_shaders"
    if flat:
        files = f"*{wgsl.SUFFIX} of an ExecuTorch checkout"
    return f"files such as {files}, or a {kernels.NAME} that says how others are called"


@contextmanager
def opened(
    request: Request, executor: IsolatedExecutor | None = None, recorded: bool = True
) -> Iterator[Build]:
    """Read the folder while the device opens, and choose the cases.

    ``executor`` is one of the folder that began to open, for this request; it is closed in the end.
    Raises FormatError for a folder without modules that refsim knows, ParameterError for an unknown operator or a
    pattern without cases, DeviceError or MissingDependencyError if the device cannot be used. Without ``recorded``
    there are only cases of the corpus, and a pattern may fit none of them.
    """
    one, runtime = request, request.runtime
    runner = executor or executors.of(one.folder, one.device, one.variant, one.images)
    try:
        runner.begin_opening()
        build = Build(one, runner)
        if build.flat and (one.variant or one.images or one.sanitized):
            need = "neither --variant, --images nor --sanitize"
            raise ParameterError(f"shaders {one.folder}", "options for SPIR-V, but it has WGSL", need=need)
        if runtime is not None and build.flat != runtime.flat:
            allowed = (WGSL if runtime.flat else SPIRV).suffix
            raise ParameterError(
                "--runtime", "has other kernels", got=f"a folder of {build.suffix}", need=allowed
            )
        trial = ModuleTrial(runner, build.profiles, geometry=build.geometry, own=build.rounding)
        layouts = {name: row.own.layouts for name, row in build.own.items() if row.own is not None}
        of_default = runtime in (None, Behaviour()) and not build.flat  # as the recordings are
        upstream = _recordings() if recorded and of_default else None
        build.verification = Verification(
            trial, one.count, upstream, one.pattern, build.refusal, build.flat, layouts, one.sanitized, one.repeats,
            runtime or Behaviour(),
        )  # fmt: skip
        if recorded:
            build.verification.check_pattern(build.operators)
        yield build
    finally:
        runner.close()


def _recordings() -> Path | None:
    try:
        return default_root() / "upstream"
    except MissingDependencyError:  # the corpus is not installed; the rules make its cases
        return None
