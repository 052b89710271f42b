"""Seeded bugs: each kind that really happened, put into copies of the sources, must be killed by the corpus."""

from __future__ import annotations

from refsim.mutate import graph_mutants, kernels, native, shaders
from refsim.mutate.mutant import Mutant

#: By id.
ALL: dict[str, Mutant] = {
    mutant.id: mutant for module in (kernels, native, shaders, graph_mutants) for mutant in module.MUTANTS
}
