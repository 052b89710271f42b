"""Flatbuffers by the rows of a schema: decoded with every offset checked, and encoded."""
