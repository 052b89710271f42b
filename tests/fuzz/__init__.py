"""Hostile files: mutants of every format that refsim reads, and what the readers make of them.

``python -m tests.fuzz 100000`` runs mutants and prints a table per format; docs/hostile-files.md has the rules and a
long run. `formats` lists the formats with their seeds, mutators and readers, `runner` the processes and their limits.
The test runs a few thousand mutants and every crasher in tests/data/crashers.
"""
