"""Executors, and the models that they run."""
