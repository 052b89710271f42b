"""Seeded bugs: each kind that really happened, put into copies of the sources, must be killed by the corpus.

`make mutants` and `refsim mutate` run them. What is seeded lies in `mutants.seeded`; a copy of the sources runs in
processes of its own, of which `mutants.runner` is the program.
"""
