"""Every mutant: the edits that put a bug into a copy of the sources."""

from __future__ import annotations

from mutants.mutant import Mutant
from mutants.seeded import emulated, graphs, groups, native, shaders

#: By id.
ALL: dict[str, Mutant] = {
    mutant.id: mutant for module in (emulated, native, shaders, groups, graphs) for mutant in module.MUTANTS
}
