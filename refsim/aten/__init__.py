"""Float operators inside and between delegates: one table in NumPy, and a bridge to torch for the rest.

Inside a delegate they compute as ET-VK's shaders do, outside as ExecuTorch's portable kernels do; where both are
known to the bit, so is the result. `docs/numerics.md` lists which are.
"""

from refsim.aten.bridge import Operator, find
from refsim.aten.row import Place

__all__ = ["Operator", "Place", "find"]
