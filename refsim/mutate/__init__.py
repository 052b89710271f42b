"""Seeded bugs: each kind that really happened, put into copies of the sources, must be killed by the corpus."""

from __future__ import annotations

from refsim.mutate import graph_mutants, kernels, shaders
from refsim.mutate.mutant import Mutant

#: By id.
ALL: dict[str, Mutant] = {
    mutant.id: mutant for mutant in (*kernels.MUTANTS, *shaders.MUTANTS, *graph_mutants.MUTANTS)
}
