"""Float operators inside and between delegates: a small NumPy table, and a bridge to torch for the rest.

They are not what this project exists for: they run on logical arrays, and no byte of theirs is compared
unless an int8 tensor is made from it.
"""

from refsim.aten.bridge import Operator, find

__all__ = ["Operator", "find"]
