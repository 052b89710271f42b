"""Seeded bugs: each kind that really happened, put into copies of the sources, must be killed by the corpus."""
