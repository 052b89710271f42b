#version 450
#extension GL_GOOGLE_include_directive : require
#include "../include/push/probe/index.glsl"
#include "../include/index.glsl"
// Pins the formulas of include/index.glsl to refsim/core/index.py: a row of what each gives for one coordinate.

const int ROW = 16;
INPUT(0, coords);  // w, h, c, n
OUTPUT(1, rows);

void main() {
    int i = int(gl_GlobalInvocationID.x);
    if (i >= push[COUNT]) return;
    ivec4 p = ivec4(coords[4 * i], coords[4 * i + 1], coords[4 * i + 2], coords[4 * i + 3]);
    ivec4 further = lane_coord(HASH, p, i & 3);
    int at = ROW * i;
    rows[at] = block_idx(META, HASH, p);
    rows[at + 1] = intra_block_idx(HASH, p);
    rows[at + 2] = buf_idx(META, HASH, p);
    rows[at + 3] = word_idx(META, HASH, p);
    rows[at + 4] = int(inside(META, p));
    rows[at + 5] = lanes_inside(META, HASH, p);
    [[unroll]] for (int dim = 0; dim < 4; ++dim) {
        rows[at + 6 + dim] = further[dim];
        rows[at + 10 + dim] = block_extent(HASH, dim);
    }
    rows[at + 14] = words_per_block(HASH);
    rows[at + 15] = word_elements(HASH);
}
