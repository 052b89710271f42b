"""Seeded faults that a comparison of bytes misses or misnames, and the kinds of findings that tell the truth.

Most of them write the right bytes on the device that they were made for. The field ``causes`` holds kinds of
`refsim.exec.finding` here.
"""

from __future__ import annotations

import re

from modules.bugs import GEMV, GENERAL, Bug, _of
from refsim.exec.finding import FOREIGN, ORDER, OUTSIDE, SAME_TWICE, TWICE, UNFILLED

RELU = "q8ta_relu_buffer"
BARRIER = "    memoryBarrierShared();\n    barrier();\n"

STAGING = """\
void main() {
    const uint number = gl_GlobalInvocationID.x;
    if (number >= out_tensor.counts.y / 4u) {
        return;
    }
    const uvec4 first = coord_at(out_tensor, OUT_LAYOUT, 4u * number), sizes = out_tensor.sizes[0];
    const uint along = inner_dim(OUT_LAYOUT), lanes = lanes_inside(out_tensor, first, along);
    int word = 0;"""

ADDING = """\
    if (worker >= min(TILE_N4, n4s - first)) {
        return;
    }
    ivec4 total = ivec4(0);
    for (uint other = 0u; other < workers; other++) {
        total += partial[other][worker];
    }
    OUT_WORD(int_epilogue, total, first + worker, uint(out_sizes.x), word)
    out_words[first + worker] = word;"""

#: Races within a workgroup, seen where its invocations run in turn, as on lavapipe, not where they run side by side.
IN_TURN = ("gemv-without-barrier", "gemv-last-adds", "gemv-clears-the-next")
HIDDEN: tuple[Bug, ...] = (
    *_of(GENERAL, "q8ta_conv2d_general", "q8ta_conv2d.comp",
        ("conv-sums-without-value", "    ivec4 sums = ivec4(0);", "    ivec4 sums;", UNFILLED),
        ("conv-past-the-end", "row >= sizes.y || oc4 >= div_up(sizes.z, 4u)", "row >= sizes.y", OUTSIDE),
        ("conv-last-row-again", "const uint row = gl_GlobalInvocationID.y,",
            "const uint row = min(gl_GlobalInvocationID.y, out_tensor.sizes[0].y - 1u),", SAME_TWICE),
    ),
    *_of(GEMV, "q8ta_linear_gemv", "q8ta_linear_gemv.comp",
        ("gemv-total-without-value", "ivec4 total = ivec4(0);", "ivec4 total;", UNFILLED),
        ("gemv-without-barrier", BARRIER, "", (ORDER, UNFILLED)),
        # the workers that add up are the last, which run last on a device that takes them in turn
        ("gemv-last-adds", BARRIER + ADDING,
            "    const uint slot = workers - 1u - worker;\n" + re.sub(r"\bworker\b", "slot", ADDING), ORDER),
        ("gemv-clears-the-next", "    out_words[first + worker] = word;",
            "    if (first + worker + 1u < n4s) {\n        out_words[first + worker + 1u] = 0;\n    }\n"
            "    out_words[first + worker] = word;", (TWICE, ORDER)),
    ),
    *_of(RELU, "q8ta_relu", "q8ta_relu.comp",
        # the guard word behind a buffer is positive, and so are zeros not negative
        ("relu-reads-behind", "in_words[word_at(in_tensor, IN_LAYOUT, at)];",
            "in_words[word_at(in_tensor, IN_LAYOUT, at)] | min(in_words[in_words.length()], 0);", FOREIGN),
        ("relu-reads-in-front", "in_words[word_at(in_tensor, IN_LAYOUT, at)];",
            "in_words[word_at(in_tensor, IN_LAYOUT, at)] | min(in_words[lanes > 4u ? 0 : -1], 0);", FOREIGN),
        ("relu-reads-padding", "max(real_value(lane(source, k)", "max(real_value(lane(source, 3u - k)", FOREIGN),
        ("relu-counts-on-64", "gl_GlobalInvocationID.x, first)",
            "64u * gl_NumWorkGroups.x - 1u - gl_GlobalInvocationID.x, first)", ORDER),
    ),
    *_of("nchw_to_int8x4_buffer", "nchw_to_int8x4", "nchw_to_int8x4.comp",
        ("stage-in-keeps-lanes", STAGING,
            "layout(set = 0, binding = 0) readonly buffer Before { int before[]; };\n"
            + STAGING.replace("int word = 0;", "int word = before[number];"), FOREIGN),
    ),
)  # fmt: skip
