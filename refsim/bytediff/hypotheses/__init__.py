"""Every hypothesis. Where two predict the same bytes, the earlier one is named first, so specific ones come early."""

from __future__ import annotations

from refsim.bytediff.evidence import Hypothesis
from refsim.bytediff.hypotheses import addressing, constants, dispatch, numerics, quantization, window

ALL: tuple[Hypothesis, ...] = (
    dispatch.nothing_written,
    dispatch.batch_ignored,
    dispatch.tile_missing,
    addressing.lanes_rotated,
    addressing.byte_order,
    addressing.block_transposed,
    addressing.other_layout,
    addressing.hw_exchanged,
    addressing.channels_exchanged,
    quantization.zero_point_missing,
    quantization.zero_point_twice,
    quantization.border_zero,
    numerics.tie_rule,
    numerics.truncation,
    numerics.fused,
    numerics.conversion,
    numerics.clamp_order,
    numerics.relu_bound,
    numerics.relu_dropped,
    numerics.clamp_bounds,
    constants.unsigned_lanes,
    window.stride_dilation,
    window.padding_offset,
    window.reduction_short,
    quantization.alpha_ignored,
    quantization.operands_exchanged,
    constants.sums_wrong,
    constants.constants_misplaced,
    constants.weights_order,
    dispatch.stale_buffer,
    dispatch.stale_constant,
    quantization.other_quantization,
    dispatch.padding_leaked,
    dispatch.out_of_bounds,
)
