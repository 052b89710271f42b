"""Linear operators with 4-bit weights in groups, and the scales and zero points of the rows that they quantize."""
