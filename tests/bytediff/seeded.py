"""Wrong kernels: the bugs of seeded.txt, and a convolution with bugs that several tests need."""

from __future__ import annotations

from pathlib import Path

from wrong import Edit

from refsim.ops.base.case import Case

_TEXT = Path(__file__).with_name("seeded.txt").read_text(encoding="utf-8")
EDITS = tuple(Edit.of(row) for row in _TEXT.splitlines() if row and not row.startswith("#"))

CONV = Case(
    "q8ta_conv2d_general",
    dict(
        in_scale=0.5, in_zp=11, out_scale=1.0, out_zp=-9, kernel_size=(3, 2), stride=(2, 1), padding=(1, 2),
        dilation=(1, 2), activation="relu",
    ),
    {"x": ((2, 6, 9, 7), "4W4C")}, "4C1W", seed=5, features={"out_channels": 7, "bias": True}, poison=True,
)  # fmt: skip


def _of_conv(cause: str, change: str, place: str = "") -> Edit:
    return Edit.of(f"{cause} | {CONV.op} | {place} | {change}")


UNFOLDED = _of_conv("zero point not folded", "weight_sums = 0 * weight_sums")
FOLDED_TWICE = _of_conv("zero point folded twice", "weight_sums = 2 * weight_sums")
EXCHANGED = _of_conv(
    "H and W exchanged",
    "; ".join(f"{pair}_{a} = {pair}_{b}" for pair in ("KERNEL", "STRIDE", "PADDING", "DILATION")
              for a, b in ("HW", "WH")),
)  # fmt: skip
UNBORDERED = _of_conv("border padded with 0", "splat(push[IN_ZP]) => 0", "kernel")
TRUNCATED = _of_conv("truncation", "return np.rint(y) => return np.trunc(y)", "core.qmath.round_half")
UNSIGNED = _of_conv("unsigned lanes", "weight = weight ^ -0x7F7F7F80")
