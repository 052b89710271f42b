"""SPIR-V modules of any build: read, described, rewritten for Kompute, and traced back to source lines."""
