"""The floor: layouts, index and rounding arithmetic, tensors, buffers, launches, errors. It imports nothing above."""
