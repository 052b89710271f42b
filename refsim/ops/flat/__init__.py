"""What operators mean to a runtime that keeps every tensor as one flat, row-major buffer: ExecuTorch's WebGPU backend.

Another meaning of the same operators, not other ones: the inverse of a scale is rounded from binary64, the zero point
is added to the integer, and scalars are read by their type. docs/runtimes.md has the formulas.
"""
