"""Byte-level comparison of two buffers: what differs, where, in which shape, and the likely cause."""
