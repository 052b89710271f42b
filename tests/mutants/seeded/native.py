"""Bugs seeded into the native vector kernels of the native executor, and into what is prepacked for them."""

# ruff: noqa: E501  (anchors are quoted as they stand in the sources)

from __future__ import annotations

from mutants.mutant import Mutant, seeded
from mutants.seeded.emulated import GENERAL, IM2COL, PW

_CPU = "refsim/exec/cpu/"
_ELEMENTS, _QUANTIZE = (_CPU + f"{name}/kernel.py" for name in ("elementwise", "quantize"))
_REPACK, _NHWC = _CPU + "relayout/repack.py", _CPU + "nhwc/prepack.py"
_TILE, _EPILOGUE, _PROBLEM = (_CPU + f"{name}.py" for name in ("tile4x4", "epilogue", "conv_problem"))
_WINOGRAD, _TILES = _CPU + "winograd/prepack.py", _CPU + "amx/tiles.py"
_PREPACK, _PROOF = _CPU + "gemm/prepack.py", _CPU + "elementwise/proof.py"
_BLOCK = _CPU + "gemm/block.py"


native = seeded("native", "cpu")

# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    native("P3-cells", "P3", "q8ta_clone", "block transposed",
        (_TILE, "tuple(4 * (k % 4) + k // 4 for k in range(16))", "tuple(range(16))"),
        (_REPACK, "lines = zipped(lines, 2, size=4)", "lines = zipped(lines, 0, size=4)")),
    native("P4-quantize", "P4", "q8ta_quantize", "byte order",
        (_QUANTIZE, "(requant.integers(t) & 255) << (8 * k)", "(requant.integers(t) & 255) << (24 - 8 * k)"),
        (_QUANTIZE, "[16 * n + 4 * k + i for n", "[16 * n + 4 * (3 - k) + i for n")),
    native("P5-add", "P5", "q8ta_add", "unsigned lanes",
        (_ELEMENTS, "(q.sext(I32) - a.i32", "((q.sext(I32) & 255) - a.i32"),
        (_PROOF, "q = BYTES.astype(np.int32)", "q = BYTES.astype(np.int32) % 256")),
    native("P6-mask", "P6", "q8ta_add", "padding leaked", (_ELEMENTS, "fn.load(word, I32) & a.i32(\"mask\")", "fn.load(word, I32)")),
    native("P7-pack", "P7", PW, "batch ignored", (_BLOCK, "self.image,\n            self.row0 * a.stride_h", "self.image * 0,\n            self.row0 * a.stride_h")),
    native("I1-rows", "I1", GENERAL, "last tile missing",
        (_PREPACK, "-(-conv.out.rows // block_h), -(-conv.out.pixels // block_w)", "max(1, conv.out.rows // block_h), max(1, conv.out.pixels // block_w)"),
        (_PREPACK, "BLOCK_PIXELS = 24, 256", "BLOCK_PIXELS = 24, 32")),
    native("I2-exchanged", "I2", GENERAL, "stride or dilation", (_PROBLEM, "= p.stride, p.padding, p.dilation, p.groups", "= p.dilation, p.padding, p.stride, p.groups")),
    native("I3-padding", "I3", IM2COL, "H and W exchanged", (_PROBLEM, "= p.stride, p.padding, p.dilation, p.groups", "= p.stride, p.padding[::-1], p.dilation, p.groups")),
    native("N2-border", "N2", GENERAL, "border padded with 0", (_NHWC, "border=(zp & 255) * 0x01010101", "border=0")),
    native("N3-missing", "N3", "q8ta_linear", "zero point not folded", (_PROBLEM, "first = first - conv.in_zp * sums", "first = first - 0 * sums")),
    native("N3-winograd", "N3", "q8ta_conv2d", ("zero point not folded", "zero point folded twice"),
        (_WINOGRAD, "(3, transform.shift)):  #", "(3, 0)):  #"),
        (_TILES, "return lacking(isa) or refused()", "return \"not in this mutant\"")),
    native("N4-again", "N4", "q8ta_add", "clamp order",
        (_EPILOGUE, "0.0 if relu else -128.0 - zp, \"high\": 127.0 - zp", "0.0 if relu else -128.0, \"high\": 127.0"),
        (_EPILOGUE, "    if not bound <= _LIMIT:\n        return FULL\n", "    return FULL\n")),
    native("N5-bound", "N5", GENERAL, "relu bound", (_EPILOGUE, "0.0 if relu else -128.0 - zp", "0.0 - zp if relu else -128.0 - zp")),
    native("N7-add", "N7", "q8ta_add", ("known defect of upstream", "alpha ignored"),
        (_ELEMENTS, "if formula.scaled:", "if False:"),
        (_PROOF, "v[\"alpha\"] * real(\"b\")", "real(\"b\")")),
    native("S2-run", "S2", PW, "reduction too short", (_PREPACK, "run_k4s=run_k4s,", "run_k4s=run_k4s - 1,")),
)
# fmt: on
