"""How the runtime names its compute shaders: a stem, then the dtype and the storage of the tensors."""

from __future__ import annotations

from refsim.check.subject import BUFFER, TEXTURE_2D, TEXTURE_3D, Operand

_DTYPES = {
    "BOOL": "uint8",
    "UINT8": "uint8",
    "INT8": "int8",
    "INT32": "int32",
    "INT64": "int64",
    "FLOAT16": "half",
    "FLOAT32": "float",
    "FLOAT64": "double",
}
_STORAGES = {BUFFER: "buffer", TEXTURE_3D: "texture3d", TEXTURE_2D: "texture2d"}


def dtype_part(operand: Operand) -> str:
    """The dtype in a shader's name. A packed int8 tensor is an array of 32-bit words there."""
    return "int32" if operand.is_packed_int8 else dtype_name(operand.dtype)


def dtype_name(dtype: str) -> str:
    return _DTYPES.get(dtype, "unset")


def storage_part(operand: Operand) -> str:
    return _STORAGES[operand.storage]
