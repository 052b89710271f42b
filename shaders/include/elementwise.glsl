// main() of the kernels that compute each output word by itself. Loops here and in what they call neither break nor
// return early: they would stay loops, and the arrays in memory. A kernel defines, before it includes this:
//   OUT, OUT_HASH           the output's push words and layout; TENSOR result (OUTPUT) and result4 (OUTPUT4)
//   void fetch(int t, int i, ivec4 p)    read what output word i, at coordinate p, needs into slot t
//   int word(int t, ivec4 p, int lanes)  the output word from slot t; `lanes` of its lanes hold elements
#ifndef REFSIM_ELEMENTWISE_GLSL
#define REFSIM_ELEMENTWISE_GLSL

ivec4 next_word(ivec4 p) {
    int outer = outer_dim(OUT_HASH), fast = dim_at(OUT_HASH, 0), next = dim_at(OUT_HASH, 1);
    int per_block = words_per_block(OUT_HASH);
    if (per_block > 1 && (along(p, outer) & (per_block - 1)) < per_block - 1) {
        p = moved(p, outer, 1);
    } else {
        if (per_block > 1) p = moved(p, outer, 1 - per_block);
        p = moved(p, fast, block_extent(OUT_HASH, fast));
        if (along(p, fast) >= push[OUT + W_STRIDE + next] * block_extent(OUT_HASH, fast)) {
            p = moved(p, fast, -along(p, fast));
            p = moved(p, next, block_extent(OUT_HASH, next));
        }
    }
    return p;
}

void main() {
    Plane plane = this_plane(OUT, OUT_HASH);
    int first = int(gl_GlobalInvocationID.x) * 4;
    int i = plane.first_word + first;
    int total = push[OUT + N_STRIDE] * push[OUT + N] * words_per_block(OUT_HASH);
    if (first >= plane.words || i >= total) return;
    ivec4 p = word_coord(OUT, OUT_HASH, plane, first);
    if ((plane.words & 3) == 0) {
        ivec4 four, at = p;
        [[unroll]] for (int t = 0; t < 4; ++t) {
            if (words_per_block(OUT_HASH) == 4) at = moved(p, outer_dim(OUT_HASH), t);  // one block: no wrap
            int lanes = lanes_inside(OUT, OUT_HASH, at);
            if (lanes > 0) fetch(t, i + t, at);
            four[t] = word(t, at, lanes);
            if (words_per_block(OUT_HASH) != 4) at = next_word(at);
        }
        result4[i >> 2] = four;
        return;
    }
    [[unroll]] for (int t = 0; t < 4; ++t) {
        if (first + t < plane.words) {
            int lanes = lanes_inside(OUT, OUT_HASH, p);
            if (lanes > 0) fetch(t, i + t, p);
            result[i + t] = word(t, p, lanes);
            p = next_word(p);
        }
    }
}

#endif
