"""What docs/modules.md and docs/own-kernels.md say of modules of other builds, and of what they are given."""

from __future__ import annotations

from collections.abc import Iterable

from page_tables.markdown import markdown
from refsim.formats.kernel_keys import KEYS
from refsim.ops.base.host.row import ModuleCall
from refsim.ops.base.host.weights import PACKINGS
from refsim.ops.base.registry import OPS


def _called() -> Iterable[tuple[str, ModuleCall]]:
    return ((name, op.upstream.module) for name, op in OPS.items() if op.upstream.module is not None)


def _words(row: ModuleCall, *fields: str) -> Iterable[str]:
    """The words of some fields; what a later release does differently stands behind them."""
    for field in fields:
        found = [getattr(release, field) for release in (row, *row.later)]
        between = ", " if field == "global_size" else " "
        told = [each if isinstance(each, str) else between.join(each) for each in found]
        yield "; later: ".join(f"`{each}`" if each else "" for each in dict.fromkeys(told))


def modules() -> str:
    """Each operator's modules, and what they are given."""
    rows = (
        (
            f"`{name}`",
            " ".join(f"`{shader.name}`" for shader in row.shaders),
            *_words(row, "bindings", "push", "spec"),
        )
        for name, row in _called()
        if row.shaders
    )
    return markdown(
        ("operator", "modules", "bindings from 0", "push words", "specialization words from 3"), rows
    )


def module_sizes() -> str:
    """Each operator's global size and workgroup."""
    rows = (
        (f"`{name}`", *_words(row, "global_size", "local_size")) for name, row in _called() if row.shaders
    )
    return markdown(("operator", "global size", "workgroup"), rows)


def packings() -> str:
    """How weights are packed, and for which operators."""
    rows = []
    for name, packing in PACKINGS.items():
        users = (f"`{op}`" for op, row in _called() if packing in row.packing.values())
        shaders = f"`{packing.shader}_buffer` `{packing.shader}_texture2d`"
        rows.append((name, ", ".join(users), shaders, packing.sizes_are, packing.texel))
    return markdown(("packing", "operators", "modules", "sizes", "texel (x, y)"), rows)


def kernel_keys() -> str:
    """The keys of a table of `refsim.toml`."""
    rows = (
        (f"`{name}`", key.kind, f"{key.meaning}{'; required' if key.required else ''}")
        for name, key in KEYS.items()
    )
    return markdown(("key", "value", "what it says"), rows)
