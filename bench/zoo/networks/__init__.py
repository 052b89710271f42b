"""Architectures of our own, in torch; each file has one kind of task."""
