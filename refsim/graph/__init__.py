"""A delegate's graph: resolved and bound, its memory planned, run node by node."""
