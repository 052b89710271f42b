"""Kernels that are not ExecuTorch's: a TOML file that says how they are called. docs/own-kernels.md explains its keys.

The modules are all SPIR-V, or all WGSL for a runtime whose tensors are flat. The file lies beside them. It has one
table per operator; kernel_keys.py has the keys of a table. Keys in front of all tables stand in each that has no own.
All words are looked up in a small call of the operator when the file is read, so that a slip is found before anything
runs.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from refsim.core import choices
from refsim.core.errors import FormatError, LayoutError, ParameterError, RefsimError, UnknownOperatorError
from refsim.core.layout import LAYOUTS, OTHER_NAMES, layout
from refsim.formats import wgsl
from refsim.formats.file import held, quote, read_file
from refsim.formats.kernel_keys import KEYS, LAUNCHED, PADDING, SPIRV_ONLY
from refsim.formats.module_folder import SUFFIX as SPIRV_SUFFIX
from refsim.ops.base.arg import Kind
from refsim.ops.base.binding import bind
from refsim.ops.base.host import expression
from refsim.ops.base.host.order import ordered
from refsim.ops.base.host.row import ModuleCall, Own, PlainWords, Shader
from refsim.ops.base.host.weights import PACKINGS, Packing
from refsim.ops.base.host.words import CallSite
from refsim.ops.base.module_call import Host, WrittenOutput, dispatches, written
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call, OpSpec
from refsim.ops.flat import call as flat
from refsim.ops.flat.call import FLAT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAME = "refsim.toml"
SUFFIX = ".toml"
MAX_BYTES = 1 << 20
#: How the runtime of upstream calls the WGSL of its own source tree.
UPSTREAM_WGSL = Path(__file__).with_name("upstream_wgsl.toml")


def find(path: str | os.PathLike[str]) -> tuple[str, str | None]:
    """(The folder of modules, the file that says how they are called) for a folder or such a file.

    A folder need not have the file ``refsim.toml``.
    """
    text = os.fspath(path)
    if text.endswith(SUFFIX) and not os.path.isdir(text):
        return os.path.dirname(text) or os.curdir, text
    inside = os.path.join(text, NAME)
    return text, inside if os.path.lexists(inside) else None


def rows_of(path: str | os.PathLike[str]) -> tuple[str, dict[str, ModuleCall]]:
    """(The folder of modules, how kernels of operators are called) for a folder, or for the file of one.

    WGSL without such a file is called as upstream calls its own.
    """
    folder, file = find(path)
    if file is not None:
        return folder, read(file)
    there = wgsl.sources(folder) if not any(Path(folder).glob(f"*{SPIRV_SUFFIX}")) else {}
    return folder, read(UPSTREAM_WGSL, there) if there else {}


@cache
def _upstream_wgsl() -> Mapping[str, ModuleCall]:
    return read(UPSTREAM_WGSL, {})


def written_flat(call: Call) -> WrittenOutput | None:
    """Who writes the output of a call on flat tensors, where upstream's own kernel does; None if that is not known."""
    if not flat.is_laid_flat(call):
        return None
    try:
        return written(call, Host(rows=_upstream_wgsl()))
    except (UnknownOperatorError, ParameterError):
        return None


def is_wgsl(rows: Mapping[str, ModuleCall]) -> bool:
    """Whether these kernels are WGSL; one file has kernels of one kind."""
    return any(row.own is not None and row.own.flat for row in rows.values())


def read(path: str | os.PathLike[str], there: Mapping[str, Path] | None = None) -> dict[str, ModuleCall]:
    """Operator -> how its kernel is called. FormatError, naming file, line and key, for what is wrong with the file.

    ``there``: the modules, by name without their ending, if they do not lie beside the file. Then some may lack.
    """
    where = os.fspath(path)
    try:
        text = bytes(read_file(where, MAX_BYTES)).decode()
    except UnicodeDecodeError as error:
        got = f"{held(error.object)}, and no UTF-8 at byte {error.start}"
        raise FormatError(
            where, "no text", got=got, need="a refsim.toml with a table [OPERATOR] for each kernel"
        ) from error
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise FormatError(where, "not TOML", got=str(error)[:200] or "nested too deeply") from error
    rows, common = {}, {key: value for key, value in content.items() if key in KEYS}
    for name, table in content.items():
        if name in common:
            continue
        place = _Place(where, text, name)
        if name not in OPS:
            raise place.error("no such operator", got=quote(name), need=choices.need(name, OPS))
        if not isinstance(table, dict):
            raise place.error("not a table", got=quote(table), need=f"[{name}]")
        rows[name] = _Table(place, OPS[name], common | table, there).row()
    if not rows:
        raise FormatError(where, "no kernel", got="no table", need="a table named as an operator")
    if len({is_wgsl({name: row}) for name, row in rows.items()}) > 1:
        raise FormatError(where, "modules of two kinds", need=f"{SPIRV_SUFFIX} alone, or {wgsl.SUFFIX} alone")
    return rows


@dataclass(frozen=True)
class _Place:
    """Where a table or a key of it stands."""

    file: str
    text: str
    table: str
    key: str = ""

    def at(self, key: str) -> _Place:
        return replace(self, key=key)

    @property
    def line(self) -> int | None:
        """The line of the key, or of the table; None if it is not written in the usual way."""
        name = re.escape(self.table)
        start, inside = None, False
        for number, row in enumerate(self.text.split("\n"), 1):
            if re.match(r"\s*\[", row) and "=" not in row:
                inside = re.match(rf'\s*\[\s*["\']?{name}["\']?\s*[].]', row) is not None
                start = number if inside and start is None else start
                if inside and self.key and re.match(rf"\s*\[.*\.\s*{re.escape(self.key)}\s*\]", row):
                    return number
            elif inside and self.key and re.match(rf'\s*["\']?{re.escape(self.key)}["\']?\s*[=.]', row):
                return number
        return start

    def __str__(self) -> str:
        line = self.line
        return f"{self.file}{f':{line}' if line else ''}: {quote(self.table)[1:-1]}"

    @property
    def named(self) -> str:
        return f"{self.file} [{self.table}]"

    def error(self, what: str, *, got: object = None, need: object = None) -> FormatError:
        key = f".{self.key}" if self.key else ""
        return FormatError(f"{self}{key}", what, got=got, need=need)

    def of(self, error: RefsimError) -> FormatError:
        """An error of a word, with the place."""
        return self.error(f"{error.where}: {error.what}", got=error.got, need=error.need)


@dataclass(frozen=True)
class _Table:
    """The table of one operator while it becomes a row."""

    place: _Place
    op: OpSpec
    table: Mapping[str, Any]
    there: Mapping[str, Path] | None = None
    site: CallSite = field(init=False)

    @property
    def flat(self) -> bool:
        """Whether its module is WGSL."""
        return str(self.table.get("module", "")).endswith(wgsl.SUFFIX)

    def row(self) -> ModuleCall:
        self._check_keys()
        table, place = self.table, self.place
        textures = tuple(table.get("images", ()))
        shader = Shader(self._module(), dot_product=table.get("dot_product", False), textures=textures)
        object.__setattr__(self, "site", _site(self.op, shader, self.flat))
        if "launch" in table:
            names = [arg.name for arg in self.op.args if arg.kind in (Kind.INPUT, Kind.CONST)]
            row = ModuleCall((shader,), (*names, "out"), own=Own(place.named, launched=True))
        else:
            row = self._described(shader)
            self._check_words(row)
        layouts = self._layouts()
        relaid = {name: rows[0] for name, rows in layouts.items() if rows[0] not in self._legal(name)}
        taken = {name: rows for name, rows in layouts.items() if name not in relaid}
        assert row.own is not None
        if relaid and row.own.launched:
            raise self.place.at("layouts").error("said by launch", got=choices.listed(relaid.values()))
        return replace(row, refuses=self._refuses(taken), own=replace(row.own, layouts=taken, relaid=relaid))

    def _described(self, shader: Shader) -> ModuleCall:
        """The row of a kernel whose bindings, words and sizes the table says."""
        table = self.table
        spec = table.get("spec", ())
        local = table.get("local", "")
        return ModuleCall(
            (shader,),
            tuple(map(_as_binding, table["bindings"])),
            tuple(map(str, table.get("push", ()))),
            tuple(map(str, spec.values() if isinstance(spec, dict) else spec)),
            self._size(),
            local if isinstance(local, str) else ",".join(map(str, local)),
            {name: self._packing(name, value) for name, value in table.get("weights", {}).items()},
            own=Own(
                self.place.named,
                "groups" in table,
                table.get("rounding", ""),
                table.get("padding", PADDING[0]) == PADDING[0],
                flat=self.flat,
                overrides=tuple(spec) if isinstance(spec, dict) else (),
            ),
        )

    def _check_keys(self) -> None:
        for name, value in self.table.items():
            if name not in KEYS:
                raise self.place.at(name).error("unknown key", got=quote(name), need=choices.need(name, KEYS))
            if not KEYS[name].takes(value):
                raise self.place.at(name).error("wrong value", got=quote(value), need=KEYS[name].kind)
        if "launch" in self.table:
            self._check_launched()
        missing = [
            name
            for name, key in KEYS.items()
            if key.required
            and name not in self.table
            and not ("launch" in self.table and name not in LAUNCHED)
        ]
        if missing:
            raise self.place.error("a key is missing", got=", ".join(self.table), need=", ".join(missing))
        if self.flat:
            self._check_flat()
        if isinstance(self.table.get("spec"), dict) != (self.flat and "spec" in self.table):
            need = "a table of override constants" if self.flat else "a list of words"
            raise self.place.at("spec").error("wrong value", need=need)
        if "launch" not in self.table and ("global" in self.table) == ("groups" in self.table):
            got = "both" if "global" in self.table else "neither"
            raise self.place.error("how much is dispatched", got=got, need="global or groups")

    def _check_launched(self) -> None:
        """A kernel that is called as refsim's own needs no further words, and refsim must have one."""
        more = next((name for name in self.table if name not in LAUNCHED), None)
        if more is not None:
            raise self.place.at(more).error("said by launch", need=f"none but {choices.listed(LAUNCHED)}")
        if self.op.kernel is None:
            need = "an operator with one kernel"
            raise self.place.at("launch").error("refsim has no kernel of it", got=self.op.name, need=need)

    def _check_flat(self) -> None:
        """What is said of SPIR-V alone has no meaning for WGSL, whose workgroup nobody else says."""
        given = next((name for name in SPIRV_ONLY if name in self.table), None)
        if given is not None:
            raise self.place.at(given).error("a key for SPIR-V", need="none: tensors are flat in WGSL")
        if "local" not in self.table:
            raise self.place.error("a key is missing", got=", ".join(self.table), need="local")
        if self.op.serialized not in FLAT:
            need = ", ".join(name for name, op in OPS.items() if op.serialized in FLAT)
            raise self.place.error("refsim knows no meaning of it on flat tensors", need=need)

    def _module(self) -> str:
        name: str = self.table["module"]
        suffix = wgsl.SUFFIX if self.flat else SPIRV_SUFFIX
        stem = name.removesuffix(suffix)
        if name == stem or not stem or os.path.basename(name) != name or "\\" in name or "\0" in name:
            need = f"NAME{suffix} in the folder of the file"
            raise self.place.at("module").error("not a module's file name", got=quote(name), need=need)
        if self.there is None and not os.path.isfile(os.path.join(os.path.dirname(self.place.file), name)):
            raise self.place.at("module").error(
                "no such file", got=quote(name), need="a module beside the file"
            )
        return stem

    def _size(self) -> str | tuple[str, str, str]:
        """The global size: a rule, or three words."""
        given = self.table.get("global", self.table.get("groups"))
        if isinstance(given, str):
            return given
        x, y, z = map(str, given)
        return (x, y, z)

    def _asked(self, key: str, ask: Callable[..., Any], *arguments: Any) -> Any:
        """What a function of words answers; its error gets the place of the key."""
        try:
            return ask(*arguments)
        except (ParameterError, LayoutError, UnknownOperatorError) as error:
            raise self.place.at(key).of(error) from error

    def _packing(self, name: str, value: Any) -> Packing:
        order, add = (value, 0) if isinstance(value, str) else (value["order"], value.get("add", 0))
        bases = {} if self.op.upstream.module is None else self.op.upstream.module.packing
        place = self.place.at("weights")
        if name not in bases:
            raise place.error(
                "nothing that is packed", got=quote(name), need=choices.need(name, bases) or "no weights"
            )
        if order in PACKINGS:
            if PACKINGS[order] != bases[name]:
                near = next(word for word, packing in PACKINGS.items() if packing == bases[name])
                raise place.error("a packing for other operators", got=order, need=near)
            if not add:
                return bases[name]
            raise place.error("add", got=order, need="an order of axes")
        found: Packing = self._asked("weights", ordered, order, bases[name], bool(add))
        return found

    def _check_words(self, row: ModuleCall) -> None:
        """Look up every word in a small call of the operator."""
        local = (1, 1, 1)
        for key in ("push", "spec"):
            for one in getattr(row, key):
                self._asked(key, expression.word, self.site, one, local)
        for block in (one for one in row.bindings if isinstance(one, PlainWords)):
            for one in block.words:
                self._asked("bindings", expression.word, self.site, one)
        if not isinstance(row.global_size, str):
            key = "groups" if "groups" in self.table else "global"
            for one in row.global_size:
                self._asked(key, expression.count, self.site, one)
        for one in self.table.get("takes", ()):
            self._asked("takes", expression.holds, self.site, one)
        size, local_size = ("1", "1", "1"), "1,1,1"
        steps = {
            "global": replace(row, bindings=(), push=(), spec=(), local_size=local_size),
            "local": replace(row, bindings=(), push=(), spec=(), global_size=size),
            "bindings": replace(row, push=(), spec=(), global_size=size, local_size=local_size),
        }
        for key, part in steps.items():
            self._asked(key, dispatches, self.site.call, Host(rows={self.op.name: part}))
        known = [*self.site.tensors, *self.site.call.consts]
        for name in self.table.get("images", ()):
            if name not in known:
                raise self.place.at("images").error(
                    "no such binding", got=quote(name), need=choices.need(name, known)
                )
        outputs = [one for one in row.bindings if one == "out"]
        if len(outputs) != 1:
            raise self.place.at("bindings").error(
                "the output", got=f"bound {len(outputs)} times", need="out once"
            )

    def _layouts(self) -> dict[str, tuple[str, ...]]:
        """The layouts that the kernel takes, by argument; one of another library stands alone."""
        legal = {name: self._legal(name) for name in self.site.tensors}
        layouts = {}
        for name, given in self.table.get("layouts", {}).items():
            place = self.place.at("layouts")
            if name not in legal:
                raise place.error("no such tensor", got=quote(name), need=choices.need(name, list(legal)))
            layouts[name] = tuple(str(self._asked("layouts", layout, one)) for one in given)
            for one, spelled in zip(layouts[name], given, strict=True):
                alone = len(given) == 1 and self.site.tensors[name].is_int8
                if one not in legal[name] and not (alone and layout(one) not in LAYOUTS.values()):
                    need = (
                        ", ".join(legal[name]) + f", or alone {OTHER_NAMES}" * self.site.tensors[name].is_int8
                    )
                    raise place.error(f"the operator never has it for {name}", got=quote(spelled), need=need)
        return layouts

    def _refuses(self, layouts: Mapping[str, Sequence[str]]) -> Callable[[Call], str | None]:
        conditions, shader, flat_kernel = tuple(self.table.get("takes", ())), self.site.shader, self.flat

        def refuses(call: Call) -> str | None:
            for name, allowed in layouts.items():
                if str(call.tensors[name].layout) not in allowed:
                    return (
                        f"{name} is in {call.tensors[name].layout}, the kernel takes {' or '.join(allowed)}"
                    )
            if flat_kernel and (why := flat.refusal(call)) is not None:
                return why
            site = CallSite(call, call, call.tensors, frozenset(), shader)
            return next(
                (f"{one} does not hold" for one in conditions if not expression.holds(site, one)), None
            )

        return refuses

    def _legal(self, name: str) -> list[str]:
        """The layouts in which the operator may have a tensor."""
        tensors = (*self.op.of_kind(Kind.INPUT), self.op.output)
        return [str(one) for arg in tensors if arg.name == name for one in arg.layouts]


def _as_binding(value: Any) -> str | PlainWords:
    if isinstance(value, str):
        return value
    ((kind, inside),) = value.items()
    return PlainWords(tuple(map(str, inside)), kind == "uniform")


def _site(op: OpSpec, shader: Shader, is_flat: bool) -> CallSite:
    """A small call of an operator."""
    call: Call = bind(op.cases.example).call
    if is_flat:
        call = flat.laid_flat(call)
    return CallSite(call, call, call.tensors, frozenset(), shader)
