"""How kernels call `pack` and `unpack` for a tensor: where they begin, and the address of their arguments."""

from __future__ import annotations

from refsim.exec.cpu import compiled
from refsim.exec.cpu.isa import Isa
from refsim.exec.cpu.job import Arguments
from refsim.exec.cpu.nhwc.kernel import PACK, S8, UNPACK, pack, unpack
from refsim.exec.cpu.strides import PackedStrides


def pack_fields(
    args: Arguments,
    x: PackedStrides,
    isa: Isa,
    *,
    element: str = S8,
    words: int = 0,
    zp: int = 0,
    input_dilation: tuple[int, int] = (1, 1),
    name: str = "pack",
    buffer: str = "x",
) -> dict[str, int]:
    """``name`` and ``name``_args of a kernel that packs an input, of any number of words if not said."""
    block = args.block(
        PACK,
        {"source": buffer},
        height=x.rows,
        width=x.pixels,
        **x.fields("{}_stride"),
        border=(zp & 255) * 0x01010101,
        input_dilation_h=input_dilation[0],
        input_dilation_w=input_dilation[1],
    )
    entry = compiled.address(pack, kind=x.kind, element=element, lanes=isa.lanes, fixed=words)
    return {name: entry, f"{name}_args": args.address(block)}


def unpack_fields(
    args: Arguments, out: PackedStrides, *, words: int = 0, name: str = "unpack"
) -> dict[str, int]:
    """The same of a kernel that unpacks its output."""
    block = args.block(UNPACK, {"out": "out"}, **out.fields("{}_stride"))
    entry = compiled.address(unpack, kind=out.kind, fixed=words)
    return {name: entry, f"{name}_args": args.address(block)}
