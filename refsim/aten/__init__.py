"""Float operators inside and between delegates: a small NumPy table, and a bridge to torch for the rest.

refsim is not about them. They run on logical arrays, and their results are compared only where an int8 tensor is made
of them.
"""

from refsim.aten.bridge import Operator, find

__all__ = ["Operator", "find"]
