"""Passes: pure functions from a `Program` to another, one module each."""
